#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "runtime/graph_source.h"
#include "runtime/session.h"

namespace radserve {

/// One graph in memory, as the library holds it that computes it. Session has one for each of its
/// graphs, and nobody else knows which library that is.
struct LoadedGraph {
  GraphFacts facts;

  LoadedGraph() = default;
  virtual ~LoadedGraph() = default;
  LoadedGraph(const LoadedGraph&) = delete;
  LoadedGraph& operator=(const LoadedGraph&) = delete;

  /// See Session::Run. `most` becomes what the run took beside the weights, if that is more and
  /// known.
  virtual std::vector<Tensor> Run(std::span<const Tensor> feeds,
                                  std::span<const std::string> outputs, bool wide,
                                  const std::stop_token& stop, std::atomic<size_t>& most) = 0;
  /// See Session::Memory; the wide session first.
  virtual std::vector<SessionMemory> Memory() const = 0;
  /// Bytes that runs keep for the next.
  virtual size_t Kept() const = 0;
  /// See Session::MakeBucket. The bucket keeps the graph alive.
  virtual std::unique_ptr<Bucket> MakeBucket(int64_t capacity,
                                             const std::vector<std::vector<int64_t>>& row_shapes,
                                             std::span<const std::string> outputs) = 0;
  /// See Session::MakeRows.
  virtual std::shared_ptr<std::byte> MakeRows(size_t bytes) const = 0;
};

/// What a graph is loaded by.
struct GraphOrder {
  const std::string& path;
  const SessionSettings& settings;
  /// Of the EngineError for what is wrong with it.
  const std::string& code;
  /// Of one that is loaded again, what was found when it was loaded first.
  const GraphFacts* known = nullptr;
  /// Those of its files, which are noted the first time, if there is a place for them.
  GraphSource::Hashes* hashes = nullptr;
  /// For one bucket, which alone runs in it.
  bool own = false;
};

/// By ONNX Runtime, on the CPU or a GPU. Throws EngineError with the order's code; NoRoomToLoad.
std::shared_ptr<LoadedGraph> LoadOrtGraph(const GraphOrder& order);
/// By OpenVINO, on the CPU. Throws the same.
std::shared_ptr<LoadedGraph> LoadOpenVinoGraph(const GraphOrder& order);

/// Inputs and outputs of a graph, with next to no memory. Throws EngineError with `code`.
GraphInfo DescribeGraph(const std::string& path, const std::string& code, bool every_type);

}  // namespace radserve
