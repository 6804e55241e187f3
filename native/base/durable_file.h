#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace radserve {

/// What came of writing a file.
struct WriteOutcome {
  /// Of the system call that failed (errno(3)); 0 if none did.
  int error = 0;
  /// That call's name.
  const char* call = "";
  /// What was read back is what was written.
  bool same = false;
};

/// Makes a new file `path` (mode 0644) of these bytes, waits until the disk has it, closes it, opens it again without
/// following a link, and compares what it holds. Blocks; throws nothing. A file that was made and could not be finished
/// stays.
WriteOutcome WriteDurably(const std::string& path, const uint8_t* bytes, size_t size) noexcept;

/// A file that a descriptor names without having opened it.
struct PinOutcome {
  /// Of the system call that failed (errno(3)); 0 if none did.
  int error = 0;
  /// That call's name.
  const char* call = "";
  int fd = -1;
  /// Number of the device that it lies on (stat(2)).
  uint64_t device = 0;
};

/// Pins what `path` names with O_PATH and `flags`, and says where it lies. Blocks where a share does not answer; throws
/// nothing. The caller closes the descriptor.
PinOutcome PinPath(const std::string& path, int flags) noexcept;

}  // namespace radserve
