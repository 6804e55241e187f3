#include "runtime/session.h"

#include <malloc.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/error.h"
#include "runtime/cuda.h"
#include "runtime/loaded_graph.h"
#include "runtime/mean.h"
#include "runtime/run_memory.h"
#include "runtime/weights.h"

namespace radserve {
namespace {

/// The tensors in words, for messages: "x float32 [-1,1,64,64]".
std::string TensorsText(const std::vector<TensorInfo>& tensors) {
  std::string text;
  for (const TensorInfo& info : tensors) {
    text += (text.empty() ? "" : ", ") + info.name + " " + std::string(DtypeName(info.dtype)) +
            " " + ShapeText(info.shape);
  }
  return text;
}

/// Throws `code` unless a graph takes and gives what the first one does.
void CheckAlike(const GraphInfo& first, const GraphInfo& other, size_t number,
                const std::string& code) {
  const auto check = [&](const std::vector<TensorInfo>& a, const std::vector<TensorInfo>& b,
                         const std::string& what) {
    const std::string expected = TensorsText(a);
    const std::string found = TensorsText(b);
    if (expected == found) return;
    throw EngineError(code, "Expected graphs with the same " + what +
                                " in an ensemble; the first has " + expected + ", number " +
                                std::to_string(number) + " has " + found + ".");
  };
  check(first.inputs, other.inputs, "inputs");
  check(first.outputs, other.outputs, "outputs");
}

std::shared_ptr<LoadedGraph> LoadGraph(const GraphOrder& order) {
  const bool openvino = order.settings.provider == Provider::kOpenVino;
  return openvino ? LoadOpenVinoGraph(order) : LoadOrtGraph(order);
}

}  // namespace

size_t GpuUse::Room() const {
  const size_t rest =
      limit == 0 ? std::numeric_limits<size_t>::max() : limit - std::min(limit, taken);
  return total == 0 ? rest : std::min(rest, free);
}

void ReturnMemory() {
  DropRunMemory();
  malloc_trim(0);
}

size_t BytesOfWeights(const std::string& path) { return CountWeights(path).bytes; }

Session::Session(const std::string& path, const SessionSettings& settings, const std::string& code)
    : Session(std::span(&path, 1), settings, code, nullptr) {}

Session::Session(std::span<const std::string> paths, const SessionSettings& settings,
                 const std::string& code, BeforeMean before_mean)
    : paths_(paths.begin(), paths.end()),
      settings_(settings),
      hashes_(settings.hashes),
      code_(code),
      before_mean_(std::move(before_mean)) {
  if (paths_.empty()) throw EngineError(code, "Expected at least one graph, found none.");
  States states;
  for (const std::string& path : paths_) {
    // On a GPU it may have to be made anew.
    const bool note = OnGpu() && settings.hashes.empty();
    states.push_back(LoadGraph({path, settings, code, nullptr, note ? &hashes_ : nullptr}));
    facts_.push_back(states.back()->facts);
    CheckAlike(facts_.front().graph, facts_.back().graph, facts_.size(), code);
  }
  states_ = std::make_shared<const States>(std::move(states));
  settings_.stop = {};
  // Building a session takes twice the memory that it keeps, and glibc holds on to what was freed.
  ReturnMemory();
}

void Session::Reload() {
  States states;
  for (size_t i = 0; i < paths_.size(); ++i) {
    states.push_back(LoadGraph({paths_[i], settings_, code_, &facts_[i], &hashes_}));
  }
  {
    const std::lock_guard lock(mutex_);
    states_ = std::make_shared<const States>(std::move(states));
  }
  ReturnMemory();
}

void Session::Unload() {
  {
    // Freed without the lock, because it takes a while.
    std::shared_ptr<const States> gone;
    const std::scoped_lock lock(refreshing_, mutex_);
    gone.swap(states_);
  }
  ReturnMemory();
}

std::shared_ptr<const Session::States> Session::Here() const {
  const std::lock_guard lock(mutex_);
  return states_;
}

std::shared_ptr<const Session::States> Session::Loaded() const {
  if (std::shared_ptr<const States> states = Here()) return states;
  throw EngineError("model_unavailable", "The model has left the memory and is not back yet.");
}

size_t Session::Weights() const {
  size_t bytes = 0;
  for (const GraphFacts& facts : facts_) bytes += facts.weights;
  return bytes;
}

Session::~Session() { Unload(); }

std::vector<SessionMemory> Session::Memory() const {
  std::vector<SessionMemory> out;
  const std::lock_guard looking(refreshing_);
  const std::shared_ptr<const States> states = Here();
  if (states == nullptr) return out;
  out = states->front()->Memory();
  for (const auto& other : std::span(*states).subspan(1)) {
    const std::vector<SessionMemory> more = other->Memory();
    for (size_t i = 0; i < out.size(); ++i) out[i].bytes += more.at(i).bytes;
  }
  return out;
}

size_t Session::BytesOfRuns() const {
  size_t kept = 0;
  const std::lock_guard looking(refreshing_);
  const std::shared_ptr<const States> states = Here();
  if (states == nullptr) return most_;
  for (const auto& state : *states) kept += state->Kept();
  return std::max<size_t>(kept, most_);
}

std::vector<Tensor> Session::Run(std::span<const Tensor> feeds,
                                 std::span<const std::string> outputs, bool wide,
                                 const std::stop_token& stop) const {
  const std::shared_ptr<const States> states = Loaded();
  const auto once = [&](LoadedGraph& graph) {
    return graph.Run(feeds, outputs, wide, stop, most_);
  };
  if (states->size() == 1) return once(*states->front());
  Mean mean(before_mean_);
  for (const auto& state : *states) mean.Add(once(*state));
  return mean.Take();
}

std::unique_ptr<Bucket> Session::MakeBucket(int64_t capacity,
                                            const std::vector<std::vector<int64_t>>& row_shapes,
                                            std::span<const std::string> outputs, bool own) {
  std::vector<std::unique_ptr<Bucket>> graphs;
  const std::shared_ptr<const States> states = Loaded();
  for (size_t i = 0; i < states->size(); ++i) {
    const std::shared_ptr<LoadedGraph> graph = own && OnGpu() ? Another(i) : (*states)[i];
    graphs.push_back(graph->MakeBucket(capacity, row_shapes, outputs));
  }
  if (graphs.size() == 1) return std::move(graphs.front());
  return MakeMeanBucket(std::move(graphs), before_mean_);
}

std::shared_ptr<LoadedGraph> Session::Another(size_t graph) {
  GraphFacts facts = facts_[graph];
  facts.graphs = facts.graphs && !forgo_graphs_;
  // Beside them there is to be room for what a run takes.
  if (UseOfGpu(settings_.device, settings_.device_memory).Room() / 2 < facts.weights)
    throw OutOfMemory("The GPU has no room for one more session of the model.");
  try {
    std::shared_ptr<LoadedGraph> loaded =
        LoadGraph({paths_[graph], settings_, code_, &facts, &hashes_, true});
    if (facts.graphs && !loaded->facts.graphs) ForgoGraphs();
    return loaded;
  } catch (const NoRoomToLoad& e) {
    throw OutOfMemory(e.what());
  }
}

std::shared_ptr<std::byte> Session::MakeRows(size_t bytes) const {
  return Loaded()->front()->MakeRows(bytes);
}

}  // namespace radserve
