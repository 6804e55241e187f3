#include <atomic>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/sha256.h"
#include "base/thread_team.h"
#include "check.h"

namespace radserve::test {
namespace {

std::string Hex(const std::string& message) {
  static const char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (const std::byte byte : Sha256(std::as_bytes(std::span(message)))) {
    hex += kDigits[std::to_integer<int>(byte) >> 4];
    hex += kDigits[std::to_integer<int>(byte) & 15];
  }
  return hex;
}

TEST("SHA-256 of NIST's examples, and of lengths around a block") {
  EQUAL(Hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EQUAL(Hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EQUAL(Hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EQUAL(Hex(std::string(1000000, 'a')),
        "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  // What sha256sum gives.
  EQUAL(Hex(std::string(55, 'x')),
        "d5e285683cd4efc02d021a5c62014694958901005d6f71e89e0989fac77e4072");
  EQUAL(Hex(std::string(56, 'x')),
        "04c26261370ee7541549d16dee320c723e3fd14671e66a099afe0a377c16888e");
  EQUAL(Hex(std::string(63, 'x')),
        "75220b47218278e656f2013bb8f0c455a25eaf01e86c64924e9d48d89776d6f2");
  EQUAL(Hex(std::string(64, 'x')),
        "7ce100971f64e7001e8fe5a51973ecdfe1ced42befe7ee8d5fd6219506b5393c");
  EQUAL(Hex(std::string(65, 'x')),
        "9537c5fdf120482f7d58d25e9ed583f52c02b4e304ea814db1633ad565aed7e9");
}
END;

TEST("a team takes each step once, loop after loop, and helpers only where they may") {
  bool wide = true;
  ThreadTeam team(3, [&] { return wide; });
  for (const size_t count : {size_t{0}, size_t{1}, size_t{2}, size_t{1000}}) {
    for (int turn = 0; turn < 50; ++turn) {
      std::vector<std::atomic<int>> taken(count);
      team.For(count, [&](size_t i) { ++taken[i]; });
      for (const auto& times : taken) EQUAL(times.load(), 1);
    }
  }
  wide = false;
  const auto own = std::this_thread::get_id();
  int others = 0;
  team.For(100, [&](size_t) { others += std::this_thread::get_id() == own ? 0 : 1; });
  EQUAL(others, 0);
  int alone = 0;
  ThreadTeam().For(3, [&](size_t i) { alone = alone * 10 + static_cast<int>(i); });
  EQUAL(alone, 12);
}
END;

TEST("a step that throws ends the loop, and the team goes on") {
  ThreadTeam team(2, [] { return true; });
  for (int turn = 0; turn < 20; ++turn) {
    EQUAL(CodeOf([&] {
            team.For(100, [](size_t i) {
              if (i % 10 == 3) throw EngineError("output_invalid", "step");
            });
          }),
          "output_invalid");
    std::atomic<int> sum = 0;
    team.For(10, [&](size_t i) { sum += static_cast<int>(i); });
    EQUAL(sum.load(), 45);
  }
}
END;

}  // namespace
}  // namespace radserve::test
