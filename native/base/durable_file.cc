#include "base/durable_file.h"

#include <fcntl.h>
#include <sys/stat.h>
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

WriteOutcome Failed(const char* call) { return {errno, call, false}; }

WriteOutcome Write(const char* path, const uint8_t* bytes, size_t size) {
  const Descriptor file(Again([&] { return open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644); }));
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
constexpr size_t kChunk = 32 * 1024;

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
    if (found == 0 || std::memcmp(chunk.data(), bytes + at, static_cast<size_t>(found)) != 0) return outcome;
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
