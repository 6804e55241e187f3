// Functions of a newer glibc than 2.31 that libstdc++ of GCC 12 asks for, for the packed addon
// alone (cmake/old-glibc.cmake). Both stay inside the addon: its version script exports neither.
#include <sys/random.h>

#include <cstdint>
#include <cstdlib>

extern "C" {

// glibc 2.32 sets it while a process has one thread, and shared_ptr then counts without atomic
// steps. Never is always right.
char __libc_single_threaded = 0;  // NOLINT(bugprone-reserved-identifier): the name is glibc's.

// glibc 2.36; std::random_device names it. Not called by Radserve, whose results have no chance in
// them.
std::uint32_t arc4random() {
  std::uint32_t value = 0;
  if (getrandom(&value, sizeof value, 0) != sizeof value) std::abort();
  return value;
}
}
