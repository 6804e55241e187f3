#pragma once

#include <cstdlib>
#include <string>

namespace radserve::test {

/// Steps of a randomised test: `usual`, a tenth under a sanitizer, or what RADSERVE_TEST_STEPS
/// says.
inline int Steps(int usual) {
  if (const char* wanted = std::getenv("RADSERVE_TEST_STEPS")) return std::stoi(wanted);
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  return usual / 10;
#else
  return usual;
#endif
}

}  // namespace radserve::test
