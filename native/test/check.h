#pragma once

#include <cmath>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"

/// The few words that the tests need; no library, so that sanitizer builds need nothing but the
/// compiler.
namespace radserve::test {

struct Case {
  std::string name;
  std::function<void()> body;
};

inline std::vector<Case>& Cases() {
  static std::vector<Case> cases;
  return cases;
}

inline int& Failures() {
  static int failures = 0;
  return failures;
}

struct Register {
  Register(std::string name, std::function<void()> body) {
    Cases().push_back({std::move(name), std::move(body)});
  }
};

inline void Report(bool good, const std::string& what, int line) {
  if (good) return;
  ++Failures();
  std::cerr << "  line " << line << ": " << what << "\n";
}

template <typename A, typename B>
void Equal(const A& found, const B& expected, const std::string& what, int line) {
  if (found == expected) return;
  ++Failures();
  std::cerr << "  line " << line << ": " << what << ": expected " << expected << ", found " << found
            << "\n";
}

inline void Near(double found, double expected, double tolerance, const std::string& what,
                 int line) {
  if (std::fabs(found - expected) <= tolerance) return;
  ++Failures();
  std::cerr << "  line " << line << ": " << what << ": expected " << expected << ", found " << found
            << "\n";
}

/// The code of the EngineError that `body` throws, or "none".
inline std::string CodeOf(const std::function<void()>& body) {
  try {
    body();
  } catch (const EngineError& e) {
    return e.code();
  }
  return "none";
}

/// Runs the tests whose names contain `filter`.
inline int RunAll(const std::string& filter = "") {
  for (const Case& test : Cases()) {
    if (test.name.find(filter) == std::string::npos) continue;
    const int before = Failures();
    test.body();
    std::cout << (Failures() == before ? "ok " : "not ok ") << test.name << "\n";
  }
  return Failures() == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace radserve::test

#define RADSERVE_JOIN_(a, b) a##b
#define RADSERVE_JOIN(a, b) RADSERVE_JOIN_(a, b)
#define TEST(name) static const radserve::test::Register RADSERVE_JOIN(test_, __LINE__)(name, []
#define END )
#define CHECK(condition) radserve::test::Report((condition), #condition, __LINE__)
#define EQUAL(found, expected) radserve::test::Equal((found), (expected), #found, __LINE__)
#define NEAR(found, expected, tolerance) \
  radserve::test::Near((found), (expected), (tolerance), #found, __LINE__)

#if !defined(RADSERVE_TEST_OWN_MAIN)
int main() { return radserve::test::RunAll(); }
#endif
