#include "runtime/graph_source.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <new>
#include <set>
#include <stdexcept>
#include <vector>

#include "base/error.h"
#include "runtime/onnx_file.h"

namespace radserve {
namespace {

std::vector<char> Contents(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const std::streamoff size = file ? static_cast<std::streamoff>(file.tellg()) : -1;
  std::vector<char> bytes(size > 0 ? static_cast<size_t>(size) : 0);
  if (size < 0 || !file.seekg(0) || !file.read(bytes.data(), size))
    throw std::runtime_error("the file of weights " + path.filename().string() + " cannot be read");
  return bytes;
}

/// What opens the files here is not the runtime, which looks at that itself.
bool StaysInside(const std::filesystem::path& location) {
  return !location.empty() && location.is_relative() &&
         std::ranges::none_of(location, [](const auto& part) { return part == ".."; });
}

}  // namespace

GraphSource::GraphSource(const std::string& path, const std::string& code) : path_(path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  try {
    for (const std::string& location : ExternalLocations(path).value_or(std::set<std::string>())) {
      const std::string plain = PlainLocation(location);
      if (!StaysInside(plain))
        throw std::runtime_error("it keeps weights in \"" + plain + "\", outside of its folder");
      if (!files_.contains(plain)) files_.emplace(plain, Contents(folder / plain));
    }
    if (!files_.empty()) graph_ = WithConstantsInside(onnx_file::MappedFile(path).bytes(), files_);
  } catch (const std::bad_alloc&) {
    throw EngineError(code, "The memory did not suffice to read the model's weights.");
  } catch (const std::runtime_error& e) {
    throw EngineError(code, std::string("The model cannot be read: ") + e.what() + ".");
  }
}

Ort::Session GraphSource::Open(Ort::SessionOptions& options) {
  if (files_.empty()) return {Env(), path_.c_str(), options};
  std::vector<std::string> names;
  std::vector<char*> contents;
  std::vector<size_t> lengths;
  for (auto& [name, content] : files_) {
    names.push_back(name);
    contents.push_back(content.data());
    lengths.push_back(content.size());
  }
  options.AddExternalInitializersFromFilesInMemory(names, contents, lengths);
  return {Env(), graph_.data(), graph_.size(), options};
}

}  // namespace radserve
