#include "base/durable_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>

#include "base/sha256.h"

namespace radserve {
namespace {

/// An open file, closed with this object.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

/// Repeats a system call that a signal interrupts.
template <typename Call>
auto Again(const Call& call) {
  decltype(call()) result{};
  do {
    result = call();
  } while (result < 0 && errno == EINTR);
  return result;
}

/// As linux/openat2.h has it since Linux 5.6, which older headers do not know.
struct OpenHow {
  uint64_t flags = 0;
  uint64_t mode = 0;
  uint64_t resolve = 0;
};
constexpr long kOpenat2 = 437;
/// Since Linux 5.12.
constexpr uint64_t kResolveCached = 0x20;

WriteOutcome Failed(const char* call) { return {errno, call, false}; }

/// Bytes of one write(2). The page cache makes pages as large as the call, and larger ones are
/// seldom free: ext4 takes twice as long for half a megabyte at once.
constexpr size_t kWritten = size_t{128} * 1024;

bool WriteAll(int fd, const uint8_t* bytes, size_t size) {
  for (size_t at = 0; at < size;) {
    const size_t most = std::min(size - at, kWritten);
    const ssize_t written = Again([&] { return write(fd, bytes + at, most); });
    if (written < 0) return false;
    at += static_cast<size_t>(written);
  }
  return true;
}

WriteOutcome Write(const char* path, const uint8_t* bytes, size_t size) {
  const Descriptor file(
      Again([&] { return open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644); }));
  if (file.get() < 0) return Failed("open");
  if (!WriteAll(file.get(), bytes, size)) return Failed("write");
  if (Again([&] { return fsync(file.get()); }) != 0) return Failed("fsync");
  return {};
}

/// Small enough for the processor's own memory.
constexpr size_t kChunk = size_t{32} * 1024;

/// No link is followed, and no pipe is waited for.
constexpr int kPlain = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;

WriteOutcome Compare(const char* path, const uint8_t* bytes, size_t size) {
  const Descriptor file(Again([&] { return open(path, kPlain); }));
  if (file.get() < 0) return Failed("open");
  struct stat facts {};
  if (fstat(file.get(), &facts) != 0) return Failed("fstat");
  WriteOutcome outcome;
  if (!S_ISREG(facts.st_mode) || static_cast<size_t>(facts.st_size) != size) return outcome;
  std::array<uint8_t, kChunk> chunk;
  for (size_t at = 0; at < size;) {
    const size_t most = std::min(chunk.size(), size - at);
    const ssize_t found = Again([&] { return read(file.get(), chunk.data(), most); });
    if (found < 0) return Failed("read");
    if (found == 0 || std::memcmp(chunk.data(), bytes + at, static_cast<size_t>(found)) != 0)
      return outcome;
    at += static_cast<size_t>(found);
  }
  outcome.same = true;
  return outcome;
}

}  // namespace

WriteOutcome WriteDurably(const std::string& path, const uint8_t* bytes, size_t size) noexcept {
  const WriteOutcome outcome = Write(path.c_str(), bytes, size);
  return outcome.error != 0 ? outcome : Compare(path.c_str(), bytes, size);
}

SettleOutcome Settle(const Settling& file) noexcept {
  SettleOutcome outcome;
  const auto failed = [&outcome](const char* call) {
    outcome.error = errno;
    outcome.call = call;
    return outcome;
  };
  if (!WriteAll(file.fd, file.bytes, file.size)) return failed("write");
  if (Again([&] { return fsync(file.fd); }) != 0) return failed("fsync");
  if (file.path.empty()) return outcome;
  if (LinkOpenFile(file.fd, file.path) != 0) return failed("linkat");
  outcome.linked = true;
  const int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
  const Descriptor folder(Again([&] { return open(file.folder.c_str(), flags); }));
  if (folder.get() < 0) return failed("open");
  if (Again([&] { return fsync(folder.get()); }) != 0) return failed("fsync");
  return outcome;
}

ReadOutcome ReadWhole(const std::string& path, std::span<uint8_t> room) noexcept {
  ReadOutcome outcome;
  const auto failed = [&outcome](const char* call) {
    outcome.error = errno;
    outcome.call = call;
    return outcome;
  };
  const Descriptor file(Again([&] { return open(path.c_str(), kPlain); }));
  if (file.get() < 0) return failed("open");
  struct stat facts {};
  if (fstat(file.get(), &facts) != 0) return failed("fstat");
  outcome.plain = S_ISREG(facts.st_mode);
  if (!outcome.plain) return outcome;
  outcome.size = static_cast<uint64_t>(facts.st_size);
  if (outcome.size > room.size()) return outcome;
  while (outcome.read < outcome.size) {
    const size_t most = std::min<size_t>(outcome.size - outcome.read, SSIZE_MAX);
    const ssize_t found = Again([&] { return read(file.get(), room.data() + outcome.read, most); });
    if (found < 0) return failed("read");
    if (found == 0) break;
    outcome.read += static_cast<size_t>(found);
  }
  outcome.sha256 = Sha256(std::as_bytes(room.first(outcome.read)));
  return outcome;
}

int LinkOpenFile(int fd, const std::string& path) noexcept {
  const std::string open_file = "/proc/self/fd/" + std::to_string(fd);
  return linkat(AT_FDCWD, open_file.c_str(), AT_FDCWD, path.c_str(), AT_SYMLINK_FOLLOW);
}

PinOutcome PinFromMemory(int folder, const std::string& path, int flags) noexcept {
  PinOutcome outcome;
  OpenHow how;
  how.flags = static_cast<uint64_t>(O_PATH | O_CLOEXEC | flags);
  how.resolve = kResolveCached;
  const int fd = static_cast<int>(
      Again([&] { return syscall(kOpenat2, folder, path.c_str(), &how, sizeof(how)); }));
  struct statx facts {};
  if (fd < 0) {
    outcome.error = errno == ENOENT ? ENOENT : EAGAIN;
    outcome.call = "open";
  } else if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, 0, &facts) != 0) {
    outcome.error = EAGAIN;
    outcome.call = "statx";
    close(fd);
  } else {
    outcome.fd = fd;
    outcome.device = makedev(facts.stx_dev_major, facts.stx_dev_minor);
  }
  return outcome;
}

int AnyThere(const std::vector<std::string>& paths) noexcept {
  for (const std::string& path : paths) {
    struct stat facts {};
    if (lstat(path.c_str(), &facts) == 0) return 0;
    if (errno != ENOENT) return errno;
  }
  return ENOENT;
}

size_t ReadFromMemory(int fd, uint8_t* bytes, size_t size) noexcept {
  size_t done = 0;
  while (done < size) {
    const iovec rest = {bytes + done, size - done};
    const ssize_t found = Again([&] { return preadv2(fd, &rest, 1, -1, RWF_NOWAIT); });
    if (found <= 0) break;
    done += static_cast<size_t>(found);
  }
  return done;
}

PinOutcome PinPath(const std::string& path, int flags) noexcept {
  PinOutcome outcome;
  const int fd = Again([&] { return open(path.c_str(), O_PATH | O_CLOEXEC | flags); });
  if (fd < 0) {
    outcome.error = errno;
    outcome.call = "open";
    return outcome;
  }
  struct stat facts {};
  if (fstat(fd, &facts) != 0) {
    outcome.error = errno;
    outcome.call = "fstat";
    close(fd);
    return outcome;
  }
  outcome.fd = fd;
  outcome.device = facts.st_dev;
  return outcome;
}

}  // namespace radserve
