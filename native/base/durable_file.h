#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace radserve {

struct WriteOutcome {
  /// Errno of the system call that failed (errno(3)); 0 if none did.
  int error = 0;
  /// That call's name.
  const char* call = "";
  /// The bytes that were read back are those that were written.
  bool same = false;
};

/// Makes a new file `path` (mode 0644) of these bytes, waits until the disk has it, closes it,
/// opens it again without following a link, and compares what it holds. Blocks; throws nothing. A
/// file that was made and could not be finished stays.
WriteOutcome WriteDurably(const std::string& path, const uint8_t* bytes, size_t size) noexcept;

struct ReadOutcome {
  /// Errno of the system call that failed (errno(3)); 0 if none did.
  int error = 0;
  /// That call's name.
  const char* call = "";
  /// It is a regular file.
  bool plain = false;
  /// Bytes of the file.
  uint64_t size = 0;
  /// Bytes that were read: fewer where the file became shorter meanwhile.
  size_t read = 0;
  /// Of those; absent where the file did not fit.
  std::optional<std::array<std::byte, 32>> sha256;
};

/// Reads a regular file into `room`, if it is large enough, and hashes it. Follows no link. Blocks;
/// throws nothing.
ReadOutcome ReadWhole(const std::string& path, std::span<uint8_t> room) noexcept;

/// Gives an open file, which may have no name yet (O_TMPFILE), the name `path`; linkat(2). Returns
/// -1 and sets errno where that fails. Throws nothing.
int LinkOpenFile(int fd, const std::string& path) noexcept;

/// What an open file needs until the disk has it under its name.
struct Settling {
  int fd = -1;
  /// Written where the file stands.
  const uint8_t* bytes = nullptr;
  size_t size = 0;
  /// The name that a file without one (O_TMPFILE) gets; empty if it gets none now.
  std::string path;
  /// The folder of that name.
  std::string folder;
};

struct SettleOutcome {
  /// Errno of the system call that failed (errno(3)); 0 if none did.
  int error = 0;
  /// That call's name.
  const char* call = "";
  /// The file has its name.
  bool linked = false;
};

/// Writes the bytes and waits until the disk has the file; then gives it its name and waits until
/// the disk has the folder, too. Stops at the first call that fails. Blocks; throws nothing.
SettleOutcome Settle(const Settling& file) noexcept;

/// A file that a descriptor names without having opened it.
struct PinOutcome {
  /// Errno of the system call that failed (errno(3)); 0 if none did.
  int error = 0;
  /// That call's name.
  const char* call = "";
  int fd = -1;
  /// Number of the device that it lies on (stat(2)).
  uint64_t device = 0;
};

/// Pins what `path` names with O_PATH and `flags`, and says where it lies. Blocks where a share
/// does not answer; throws nothing. The caller closes the descriptor.
PinOutcome PinPath(const std::string& path, int flags) noexcept;

/// The same where the kernel can say it from memory (openat2(2), RESOLVE_CACHED), without waiting
/// for a disk or a share. Else, and where the kernel or its guard does not know that call, `error`
/// is EAGAIN. Throws nothing. folder: where a relative path begins, a descriptor; AT_FDCWD where
/// there is none.
PinOutcome PinFromMemory(int folder, const std::string& path, int flags) noexcept;

/// Whether a directory entry has one of the names; links are not followed. Blocks; throws nothing.
/// Returns an errno, 0 if one has, ENOENT if none.
int AnyThere(const std::vector<std::string>& paths) noexcept;

/// Reads from where the file stands, as long as its bytes are in memory already (preadv2(2),
/// RWF_NOWAIT). Returns how many were read; less than `size` says nothing of the file's end. Throws
/// nothing.
size_t ReadFromMemory(int fd, uint8_t* bytes, size_t size) noexcept;

}  // namespace radserve
