#include "runtime/nameless_file.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <stdexcept>

namespace radserve {

NamelessFile::NamelessFile() : file_(memfd_create("radserve-model", MFD_CLOEXEC)) {
  if (file_ < 0) throw std::runtime_error("no file in memory could be made");
}

NamelessFile::~NamelessFile() { close(file_); }

void NamelessFile::Write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(file_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) throw std::runtime_error("a file in memory could not be written");
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
}

std::string NamelessFile::path() const {
  return std::string(kNamelessFolder) + std::to_string(file_);
}

}  // namespace radserve
