#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace radserve {

/// Where all paths of nameless files lie.
constexpr std::string_view kNamelessFolder = "/proc/self/fd/";

/// A file without a name, in memory: for what is read by a path alone.
class NamelessFile {
 public:
  /// Throws std::runtime_error.
  NamelessFile();
  ~NamelessFile();
  NamelessFile(const NamelessFile&) = delete;
  NamelessFile& operator=(const NamelessFile&) = delete;

  /// Adds these bytes at its end. Throws std::runtime_error where there is no memory for them.
  void Write(std::span<const std::byte> bytes);
  /// Opening it in this process opens the file.
  std::string path() const;

 private:
  int file_;
};

}  // namespace radserve
