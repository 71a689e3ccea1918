#include "client/command-line.h"

#include "support/test.h"

namespace capstan {

namespace {

constexpr OptionRule RULES[] = {
    {"--json"_kj, ""_kj, "print JSON"_kj},
    {"--task"_kj, "ID"_kj, "the task"_kj},
    {"--env"_kj, "K=V"_kj, "a variable"_kj, true},
    {"--help"_kj, ""_kj, "help"_kj},
};

Result<Arguments> read(std::initializer_list<const char*> words) {
  return readArguments(kj::arrayPtr(words.begin(), words.size()), RULES);
}

kj::String refusal(std::initializer_list<const char*> words) {
  return kj::str(read(words).get<Problem>());
}

}  // namespace

TEST_CASE("options stand anywhere before the double dash") {
  auto result = read({"run", "--json", "--task=a=b", "x", "--env", "A=1", "--env", "B=2", "--",
                      "ls", "--json", "--"});
  auto& arguments = result.get<Arguments>();
  CHECK(arguments.has("--json"));
  CHECK(KJ_ASSERT_NONNULL(arguments.get("--task")) == "a=b");
  CHECK(kj::strArray(arguments.all("--env"), ",") == "A=1,B=2");
  CHECK(kj::strArray(arguments.words(), ",") == "run,x");
  CHECK(kj::strArray(KJ_ASSERT_NONNULL(arguments.rest()), ",") == "ls,--json,--");
}

TEST_CASE("an empty command after the double dash is told from none") {
  CHECK(read({"run"}).get<Arguments>().rest() == nullptr);
  CHECK(KJ_ASSERT_NONNULL(read({"run", "--"}).get<Arguments>().rest()).size() == 0);
  CHECK(read({"-h"}).get<Arguments>().has("--help"));
  CHECK(kj::strArray(read({"-"}).get<Arguments>().words(), ",") == "-");
}

TEST_CASE("a wrong option is refused with the cure") {
  CHECK(refusal({"--jsno"}) == "unknown option --jsno (did you mean --json?)");
  CHECK(refusal({"--quite-different"}) ==
        "unknown option --quite-different (--help shows the options)");
  CHECK(refusal({"--task"}) == "--task needs a value (--task ID)");
  CHECK(refusal({"--json=yes"}) == "--json takes no value");
  CHECK(refusal({"--task", "a", "--task", "b"}) == "--task is given twice");
}

TEST_CASE("help shows every option with its text, aligned") {
  CHECK(helpOf(RULES) ==
        "  --json     print JSON\n  --task ID  the task\n  --env K=V  a variable\n"
        "  --help     help\n");
}

}  // namespace capstan
