#include "domain/evidence.h"

#include "support/test.h"

#include <string>

namespace capstan {

TEST_CASE("evidence: what may be shown of a failure") {
  struct Case {
    kj::StringPtr text, shown;
  };
  const Case cases[] = {
      {"connection refused"_kj, "connection refused"_kj},
      {"exit 137, signal=9"_kj, "exit 137, signal=9"_kj},
      {"cannot open /home/ann/.ssh/id_ed25519: permission denied"_kj,
       "cannot open <path>: permission denied"_kj},
      {"'/etc/x' and ~/y"_kj, "'<path>' and <path>"_kj},
      {"/srv/build.sh:12: syntax error"_kj, "<path>:12: syntax error"_kj},
      {"a/b of image repo/name:tag"_kj, "a/b of image repo/name:tag"_kj},
      {"GET https://ann:pw@host:6443/api/v1?token=abc failed"_kj,
       "GET https://<hidden>@host:6443/... failed"_kj},
      {"unix:/run/user/1000/x.sock: gone"_kj, "unix:<path>: gone"_kj},
      {"API_KEY=hunter2 HOME=/root x=1"_kj, "API_KEY=<hidden> HOME=<hidden> x=1"_kj},
      {"Authorization: Bearer abc.def and more"_kj, "Authorization: Bearer <hidden> and more"_kj},
      {"Authorization:Bearer abc"_kj, "Authorization:<hidden> <hidden>"_kj},
      {"api-key: hunter2"_kj, "api-key: <hidden>"_kj},
      {"access_token=hunter2;"_kj, "access_token=<hidden>;"_kj},
      {"password hunter"_kj, "password hunter"_kj},
      {"got ghp_0123456789abcdef0123 from it"_kj, "got <hidden> from it"_kj},
      {"eyJhbGciOiJIUzI1NiJ9.e30.x"_kj, "<hidden>"_kj},
      {"two\nlines\tand\033[31m red\033[0m"_kj, "two lines and red"_kj},
      {""_kj, ""_kj},
      {"/"_kj, "/"_kj},
      {"key: value"_kj, "key: value"_kj},
  };
  for (auto& each: cases) {
    CAPTURE(each.text.cStr());
    CHECK(evidenceText(each.text, 1000) == each.shown);
  }
}

TEST_CASE("evidence: it is cut between characters and stays valid") {
  CHECK(evidenceText("abcdefgh", 8) == "abcdefgh");
  CHECK(evidenceText("abcdefghi", 8) == "abcde...");
  CHECK(evidenceText("abcd\xc3\xa4\xc3\xa4", 7) == "abcd...");
  auto broken = evidenceText("a\xff\xfe z", 100);
  CHECK(broken.startsWith("a"));
  CHECK_FALSE(std::string(broken.cStr()).find('\xff') != std::string::npos);
  std::string large(1'000'000, 'x');
  CHECK(evidenceText(large.c_str(), 100).size() == 100);
}

TEST_CASE("evidence: of a problem the code stays and the hint goes") {
  auto shown = evidenceOf(Problem(ErrorCode::UNREACHABLE, kj::str("no answer"))
                              .because(kj::str("open /a/b: ENOENT"))
                              .advise(kj::str("see /a/b"))
                              .from("ssh", kj::str("EX")),
                          100);
  CHECK(shown.code == ErrorCode::UNREACHABLE);
  CHECK(shown.message == "no answer: open <path>: ENOENT");
  CHECK(shown.source == "ssh");
  CHECK(shown.upstreamCode == "EX");
  CHECK(shown.hint.size() == 0);
}

}  // namespace capstan
