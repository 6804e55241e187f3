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
#include <cstring>

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

WriteOutcome Write(const char* path, const uint8_t* bytes, size_t size) {
  const Descriptor file(
      Again([&] { return open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644); }));
  if (file.get() < 0) return Failed("open");
  for (size_t at = 0; at < size;) {
    const ssize_t written = Again([&] { return write(file.get(), bytes + at, size - at); });
    if (written < 0) return Failed("write");
    at += static_cast<size_t>(written);
  }
  if (Again([&] { return fsync(file.get()); }) != 0) return Failed("fsync");
  return {};
}

/// Small enough for the processor's own memory.
constexpr size_t kChunk = size_t{32} * 1024;

WriteOutcome Compare(const char* path, const uint8_t* bytes, size_t size) {
  const int flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
  const Descriptor file(Again([&] { return open(path, flags); }));
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
