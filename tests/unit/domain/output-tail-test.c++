// What is kept of a process's output.
#include "domain/output-tail.h"

#include "support/test.h"

#include <cstring>

namespace capstan {

namespace {

kj::String shown(std::initializer_list<kj::StringPtr> pieces,
                 kj::ArrayPtr<const kj::String> secrets = nullptr, size_t limit = 100) {
  OutputTail tail(secrets, limit);
  for (auto piece: pieces)
    tail.add(piece.asBytes());
  tail.finish();
  return tail.text();
}

// The text in all pieces of one octet.
kj::String dripped(kj::StringPtr text, kj::ArrayPtr<const kj::String> secrets, size_t limit = 100) {
  OutputTail tail(secrets, limit);
  for (auto& octet: text.asBytes())
    tail.add(kj::arrayPtr(&octet, 1));
  tail.finish();
  return tail.text();
}

}  // namespace

TEST_CASE("output within the limit is kept as it is, beyond it its end") {
  CHECK(shown({"a\n", "\tb\n"}) == "a\n\tb\n");
  CHECK(shown({}) == "");
  CHECK(shown({"1234567", "89"}, nullptr, 8) == "23456789");
  OutputTail tail(nullptr, 1000);
  auto line = kj::str(kj::repeat('x', 999), '\n');
  for (int i = 0; i < 1000; ++i)
    tail.add(line.asBytes());
  tail.add("end"_kj.asBytes());
  tail.finish();
  CHECK(tail.text() == kj::str(kj::repeat('x', 996), "\nend"));
}

TEST_CASE("output is cut between characters and always valid UTF-8") {
  CHECK(shown({"a\u00e4\u00f6"}, nullptr, 5) == "a\u00e4\u00f6");
  CHECK(shown({"a\u00e4\u00f6"}, nullptr, 4) == "\u00e4\u00f6");
  CHECK(shown({"aa\u20ac\u00f6"}, nullptr, 4) == "\u00f6");
  CHECK(shown({"\xff", "a\xc3", "(\xe2\x82"}) == "\ufffda\ufffd(\ufffd\ufffd");
  // What it grows by is cut again.
  CHECK(shown({"\xff\xff\xff\xff"}, nullptr, 4) == "\ufffd");
}

TEST_CASE("a character that has come only in part is shown when it is whole") {
  OutputTail tail(nullptr, 100);
  tail.add("a\xe2\x82"_kj.asBytes());
  CHECK(tail.text() == "a");
  tail.add("\xac"_kj.asBytes());
  CHECK(tail.text() == "a\u20ac");
}

TEST_CASE("secrets are masked wherever the pieces begin") {
  auto secrets = kj::arr(kj::str("hunter2"), kj::str("hunter2-long"), kj::str(""), kj::str("hx"));
  kj::StringPtr text = "a hunter2 b hunter2-long c hunter hunter2-lon hhhunter2 hx h"_kj;
  kj::StringPtr masked = "a *** b *** c hunter ***-lon hh*** *** h"_kj;
  CHECK(shown({text}, secrets) == masked);
  CHECK(dripped(text, secrets) == masked);
  for (size_t i = 1; i < text.size(); ++i) {
    auto head = kj::str(text.slice(0, i));
    CHECK(shown({head, text.slice(i)}, secrets) == masked);
  }
}

TEST_CASE("the beginning of what may be a secret is not shown before it is decided") {
  auto secrets = kj::arr(kj::str("hunter2"));
  OutputTail tail(secrets, 100);
  tail.add("a hunter"_kj.asBytes());
  CHECK(tail.text() == "a ");
  tail.add("2"_kj.asBytes());
  CHECK(tail.text() == "a ***");
  tail.add("hunt"_kj.asBytes());
  CHECK(tail.text() == "a ***");
  tail.finish();
  CHECK(tail.text() == "a ***hunt");
}

TEST_CASE("the cut leaves no end of a secret") {
  auto secrets = kj::arr(kj::str("0123456789abcdef"));
  for (size_t limit = 4; limit < 24; ++limit)
    CHECK(shown({"x 0123456789abcdef", " y"}, secrets, limit).size() <= 7);
}

TEST_CASE("lines of a secret are secrets if they are long enough") {
  auto secrets = kj::arr(kj::str("-----BEGIN-----\nMIIEabcdefgh\nab\n"));
  CHECK(shown({"key: MIIEabcdefgh ab\n"}, secrets) == "key: *** ab\n");
  CHECK(shown({"-----BEGIN-----\nMIIEabcdefgh\nab\nx"}, secrets) == "***x");
}

TEST_CASE("terminal sequences and control characters go, rewritten lines show their last state") {
  CHECK(shown({"\x1b[1;31mred\x1b[0m", "\x07\x08.\x7f"}) == "red.");
  CHECK(shown({"\x1b]0;title\x07text"}) == "text");
  CHECK(shown({"\x1b]0;title\x1b\\text"}) == "text");
  CHECK(shown({"\x1b(B", "x"}) == "Bx");
  CHECK(shown({"\xc2\x9b", "31mx"}) == "31mx");
  CHECK(shown({"a\r\nb\r\n"}) == "a\nb\n");
  CHECK(shown({"x\n10%\r50%", "\r100%", "\ndone\n"}) == "x\n100%\ndone\n");
  CHECK(shown({"10%\r"}) == "10%");
  CHECK(shown({kj::heapString("a\0b", 3)}) == "ab");
}

TEST_CASE("a gap is told and the last line found") {
  OutputTail tail(nullptr, 400);
  tail.add("a"_kj.asBytes());
  tail.gap(12);
  tail.add("fatal: no\n \n"_kj.asBytes());
  tail.finish();
  CHECK(tail.text() == "a\n[12 octets were lost]\nfatal: no\n \n");
  CHECK(tail.lastLine() == "fatal: no");
  OutputTail longOne(nullptr, 400);
  longOne.add(kj::str(kj::repeat('x', 299), "\u20ac").asBytes());
  longOne.finish();
  CHECK(longOne.lastLine() == kj::str(kj::repeat('x', 299)));
  CHECK(OutputTail(nullptr, 400).lastLine() == "");
}

}  // namespace capstan
