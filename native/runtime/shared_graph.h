#pragma once

#include <cstddef>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/graph_source.h"
#include "runtime/onnx_file.h"
#include "runtime/ort.h"

namespace radserve {

/// The large weights of a graph, once for all sessions that they are added to. Outlives those
/// sessions.
class SharedWeights {
 public:
  /// Copies the initializers of a model's graph whose content lies in it. Throws std::bad_alloc.
  explicit SharedWeights(onnx_file::Bytes model);
  SharedWeights(const SharedWeights&) = delete;
  SharedWeights& operator=(const SharedWeights&) = delete;

  /// A session of that model which takes these weights in place of its own. The session keeps
  /// nothing of `model`; `stop` ends its making. Throws Ort::Exception.
  Ort::Session Open(onnx_file::Bytes model, Ort::SessionOptions& options,
                    const std::stop_token& stop);
  size_t bytes() const { return bytes_; }

 private:
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };

  size_t bytes_ = 0;
  std::unique_ptr<std::byte[], Free> memory_;
  /// Over memory_, by their names.
  std::vector<std::pair<std::string, Ort::Value>> values_;
  /// Copies that kernels make of them (panels of a matrix for its product), which sessions share
  /// too.
  Ort::PrepackedWeightsContainer prepacked_;
};

/// A model as the runtime optimises it for this processor, in memory. Its initializers are the
/// weights that runs read: convolutions have reordered theirs, and folded normalisations into them,
/// so that no two sessions of the model itself could share them.
class OptimisedModel {
 public:
  /// @param options of a session that optimises, is shown to `look`, and ends. Throws
  /// Ort::Exception, also if the model cannot be written; std::runtime_error if it keeps weights in
  /// files.
  OptimisedModel(GraphSource& source, Ort::SessionOptions& options,
                 const std::function<void(const Ort::Session&)>& look);
  OptimisedModel(const OptimisedModel&) = delete;
  OptimisedModel& operator=(const OptimisedModel&) = delete;

  onnx_file::Bytes bytes() const { return file_->bytes(); }

 private:
  std::optional<onnx_file::MappedFile> file_;
};

}  // namespace radserve
