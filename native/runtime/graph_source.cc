#include "runtime/graph_source.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <new>
#include <set>
#include <stdexcept>
#include <vector>

#include "base/error.h"
#include "base/sha256.h"
#include "runtime/onnx_file.h"

namespace radserve {
namespace {

std::vector<char> Contents(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const std::streamoff size = file ? static_cast<std::streamoff>(file.tellg()) : -1;
  std::vector<char> bytes(size > 0 ? static_cast<size_t>(size) : 0);
  if (size < 0 || !file.seekg(0) || !file.read(bytes.data(), size))
    throw std::runtime_error("the file " + path.filename().string() + " cannot be read");
  return bytes;
}

std::string Hex(std::span<const std::byte> bytes) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string text;
  for (const std::byte byte : bytes) {
    text += kDigits[std::to_integer<int>(byte) >> 4];
    text += kDigits[std::to_integer<int>(byte) & 15];
  }
  return text;
}

void CheckHash(const std::filesystem::path& path, std::span<const char> content, GraphSource::Hashes& hashes,
               bool note) {
  const std::string name = path.lexically_normal().string();
  const std::string found = Hex(Sha256(std::as_bytes(content)));
  if (note) hashes[name] = found;
  const auto known = hashes.find(name);
  const std::string expected = known == hashes.end() ? "none" : known->second;
  if (found == expected) return;
  throw std::runtime_error("expected " + path.filename().string() + " with the sha256 " + expected +
                           " that it had when the model was loaded, found " + found +
                           "; put that file back, or load what lies there with radserve models reload");
}

/// What opens the files here is not the runtime, which looks at that itself.
bool StaysInside(const std::filesystem::path& location) {
  return !location.empty() && location.is_relative() &&
         std::ranges::none_of(location, [](const auto& part) { return part == ".."; });
}

}  // namespace

GraphSource::GraphSource(const std::string& path, const std::string& code, Hashes* hashes, bool note)
    : path_(path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  try {
    if (hashes != nullptr) {
      const std::vector<char> graph = Contents(path);
      CheckHash(path, graph, *hashes, note);
      graph_.assign(graph.begin(), graph.end());
    }
    const auto locations =
        hashes == nullptr ? ExternalLocations(path) : ExternalLocations(std::as_bytes(std::span(graph_)));
    for (const std::string& location : locations.value_or(std::set<std::string>())) {
      const std::string plain = PlainLocation(location);
      if (!StaysInside(plain))
        throw std::runtime_error("it keeps weights in \"" + plain + "\", outside of its folder");
      if (files_.contains(plain)) continue;
      const auto file = files_.emplace(plain, Contents(folder / plain)).first;
      if (hashes != nullptr) CheckHash(folder / plain, file->second, *hashes, note);
    }
    if (files_.empty()) return;
    graph_ = hashes == nullptr ? WithConstantsInside(onnx_file::MappedFile(path).bytes(), files_)
                               : WithConstantsInside(std::as_bytes(std::span(graph_)), files_);
  } catch (const std::bad_alloc&) {
    throw EngineError(code, "The memory did not suffice to read the model's weights.");
  } catch (const std::runtime_error& e) {
    throw EngineError(code, std::string("The model cannot be read: ") + e.what() + ".");
  }
}

Ort::Session GraphSource::Open(Ort::SessionOptions& options) {
  if (graph_.empty()) return {Env(), path_.c_str(), options};
  if (files_.empty()) return {Env(), graph_.data(), graph_.size(), options};
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
