#include "runtime/graph_source.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <list>
#include <new>
#include <optional>
#include <stdexcept>

#include "base/error.h"
#include "base/sha256.h"
#include "runtime/onnx_file.h"

namespace radserve {
namespace {

[[noreturn]] void ThrowUnreadable(const std::filesystem::path& path) {
  throw std::runtime_error("the file " + path.filename().string() + " cannot be read");
}

std::vector<char> ContentsOf(const std::filesystem::path& path, const std::stop_token& stop) {
  constexpr std::streamoff kPiece = std::streamoff{64} << 20;
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const std::streamoff size = file ? static_cast<std::streamoff>(file.tellg()) : -1;
  std::vector<char> bytes(size > 0 ? static_cast<size_t>(size) : 0);
  if (size < 0 || !file.seekg(0)) ThrowUnreadable(path);
  for (std::streamoff at = 0; at < size; at += kPiece) {
    CheckStop(stop);
    if (!file.read(bytes.data() + at, std::min(kPiece, size - at))) ThrowUnreadable(path);
  }
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

void CheckHash(const std::filesystem::path& path, std::span<const char> content,
               GraphSource::Hashes& hashes, bool note) {
  const std::string name = path.lexically_normal().string();
  const std::string found = Hex(Sha256(std::as_bytes(content)));
  if (note) hashes[name] = found;
  const auto known = hashes.find(name);
  const std::string expected = known == hashes.end() ? "none" : known->second;
  if (found == expected) return;
  throw std::runtime_error(
      "expected " + path.filename().string() + " with the sha256 " + expected +
      " that it had when the model was loaded, found " + found +
      "; put that file back, or load what lies there with radserve models reload");
}

/// The files are opened here and not by the runtime, which looks at that itself.
bool StaysInside(const std::filesystem::path& location) {
  return !location.empty() && location.is_relative() &&
         std::ranges::none_of(location, [](const auto& part) { return part == ".."; });
}

/// The names of the files beside the graph, without a leading "./".
std::set<std::string> FilesBeside(onnx_file::Bytes graph) {
  std::set<std::string> names;
  for (const std::string& location : ExternalLocations(graph).value_or(std::set<std::string>())) {
    const std::string plain = PlainLocation(location);
    if (!StaysInside(plain))
      throw std::runtime_error("it keeps weights in \"" + plain + "\", outside of its folder");
    names.insert(plain);
  }
  return names;
}

/// Does what reads a graph. Throws EngineError with `code` for what is wrong with it.
template <typename Body>
void Reading(const std::string& code, const Body& body) {
  try {
    body();
  } catch (const std::bad_alloc&) {
    throw EngineError(code, "The memory did not suffice to read the model's weights.");
  } catch (const EngineError&) {
    throw;
  } catch (const std::runtime_error& e) {
    throw EngineError(code, std::string("The model cannot be read: ") + e.what() + ".");
  }
}

/// Of files in memory the runtime takes no tensor of more bytes.
constexpr size_t kMostEmbedded = size_t{1} << 31;

/// Gives the runtime tensors by themselves, which it reads where they lie.
void AddLarge(const std::vector<RawInitializer>& initializers, Ort::SessionOptions& options) {
  const Ort::MemoryInfo where = Ort::MemoryInfo::CreateCpu(OrtDeviceAllocator, OrtMemTypeDefault);
  std::vector<std::string> names;
  std::vector<Ort::Value> values;
  for (const RawInitializer& each : initializers) {
    names.push_back(each.name);
    // It has no form for memory that is only read
    auto* const content = const_cast<std::byte*>(each.content.data());
    values.push_back(Ort::Value::CreateTensor(where, content, each.content.size(),
                                              each.shape.data(), each.shape.size(),
                                              static_cast<ONNXTensorElementDataType>(each.type)));
  }
  options.AddExternalInitializers(names, values);
}

}  // namespace

GraphSource::GraphSource(const std::string& path, const std::string& code,
                         const std::stop_token& stop, Hashes* hashes, bool note)
    : path_(path), stop_(stop) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  Reading(code, [&] {
    if (hashes != nullptr) {
      const std::vector<char> graph = ContentsOf(path, stop);
      CheckHash(path, graph, *hashes, note);
      graph_.assign(graph.begin(), graph.end());
    }
    std::optional<onnx_file::MappedFile> mapped;
    if (hashes == nullptr) mapped.emplace(path);
    const onnx_file::Bytes graph = mapped ? mapped->bytes() : std::as_bytes(std::span(graph_));
    OutsideFiles contents;
    for (const std::string& name : FilesBeside(graph)) {
      const std::vector<char>& content = (*files_)[name] = ContentsOf(folder / name, stop);
      contents.emplace(name, std::string_view(content.data(), content.size()));
      if (hashes != nullptr) CheckHash(folder / name, content, *hashes, note);
    }
    if (!files_->empty()) graph_ = WithConstantsInside(graph, contents);
  });
}

std::string GraphSource::Whole(const std::string& code) const {
  std::string whole;
  Reading(code, [&] {
    if (graph_.empty()) {
      const std::vector<char> graph = ContentsOf(path_, stop_);
      whole.assign(graph.begin(), graph.end());
    } else {
      OutsideFiles files;
      for (const auto& [name, content] : *files_)
        files.emplace(name, std::string_view(content.data(), content.size()));
      whole = files.empty() ? graph_ : WithAllInside(std::as_bytes(std::span(graph_)), files);
    }
    if (whole.size() >= kMostEmbedded)
      throw std::runtime_error("it has " + std::to_string(whole.size()) +
                               " bytes with its weights, and OpenVINO reads less than 2 GiB");
  });
  return whole;
}

Ort::Session GraphSource::Open(Ort::SessionOptions& options) {
  const LoadEnd end(options, stop_);
  if (graph_.empty()) return {Env(), path_.c_str(), options};
  if (files_->empty()) return {Env(), graph_.data(), graph_.size(), options};
  std::vector<std::string> names;
  std::vector<char*> contents;
  std::vector<size_t> lengths;
  OutsideFiles files;
  for (auto& [name, content] : *files_) {
    names.push_back(name);
    contents.push_back(content.data());
    lengths.push_back(content.size());
    files.emplace(name, std::string_view(content.data(), content.size()));
  }
  const std::vector<RawInitializer> large =
      OutsideInitializers(std::as_bytes(std::span(graph_)), files, kMostEmbedded);
  keeps_ = !large.empty();
  if (keeps_) AddLarge(large, options);
  options.AddExternalInitializersFromFilesInMemory(names, contents, lengths);
  return {Env(), graph_.data(), graph_.size(), options};
}

Ort::Session OpenWithoutWeights(const std::string& path, const std::string& code,
                                Ort::SessionOptions& options, std::set<std::string>& inputs) {
  std::string bare;
  Reading(code, [&] {
    const onnx_file::MappedFile graph(path);
    std::list<onnx_file::MappedFile> files;
    OutsideFiles contents;
    for (const std::string& name : FilesBeside(graph.bytes())) {
      const std::filesystem::path beside = std::filesystem::path(path).parent_path() / name;
      const onnx_file::Bytes content = files.emplace_back(beside.string()).bytes();
      if (content.empty()) ThrowUnreadable(beside);
      contents.emplace(name, onnx_file::TextOf(content));
    }
    bare = WithoutWeights(graph.bytes(), contents, inputs);
  });
  // The runtime has the best words for a file that is no ONNX at all.
  if (inputs.empty()) return {Env(), path.c_str(), options};
  return {Env(), bare.data(), bare.size(), options};
}

}  // namespace radserve
