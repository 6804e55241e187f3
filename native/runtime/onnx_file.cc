#include "runtime/onnx_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <limits>

namespace radserve::onnx_file {

std::optional<uint64_t> Message::Varint() {
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    if (rest_.empty()) return std::nullopt;
    const auto byte = std::to_integer<uint64_t>(rest_.front());
    rest_ = rest_.subspan(1);
    value |= (byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
  return std::nullopt;
}

std::optional<Field> Message::Read() {
  const std::optional<uint64_t> tag = Varint();
  if (!tag || *tag > std::numeric_limits<uint32_t>::max()) return std::nullopt;
  Field field;
  field.number = *tag >> 3;
  switch (*tag & 7) {
    case 0:
      if (const auto value = Varint()) {
        field.value = *value;
        return field;
      }
      return std::nullopt;
    case 1:
      return Take(8) ? std::optional(field) : std::nullopt;
    case 2: {
      const std::optional<uint64_t> size = Varint();
      const auto bytes = size ? Take(*size) : std::nullopt;
      if (!bytes) return std::nullopt;
      field.bytes = *bytes;
      field.has_bytes = true;
      return field;
    }
    case 5:
      return Take(4) ? std::optional(field) : std::nullopt;
    default:
      return std::nullopt;
  }
}

std::optional<Bytes> Message::Take(uint64_t size) {
  if (size > rest_.size()) return std::nullopt;
  const Bytes taken = rest_.first(size);
  rest_ = rest_.subspan(size);
  return taken;
}

std::vector<Bytes> All(Bytes message, uint64_t number) {
  std::vector<Bytes> found;
  Message fields(message);
  while (const auto field = fields.Next()) {
    if (field->number == number && field->has_bytes) found.push_back(field->bytes);
  }
  return found;
}

std::string_view First(Bytes message, uint64_t number) {
  const std::vector<Bytes> found = All(message, number);
  return found.empty() ? std::string_view() : TextOf(found.front());
}

MappedFile::MappedFile(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  struct stat status {};
  const bool known = fstat(file, &status) == 0 && status.st_size > 0;
  const auto size = static_cast<size_t>(known ? status.st_size : 0);
  void* memory = known ? mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0) : MAP_FAILED;
  close(file);
  if (memory != MAP_FAILED) bytes_ = Bytes(static_cast<const std::byte*>(memory), size);
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace radserve::onnx_file
