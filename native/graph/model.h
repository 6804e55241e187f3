#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/tensor.h"
#include "graph/residence.h"
#include "runtime/session.h"
#include "runtime/session_device.h"
#include "scheduling/batcher.h"

namespace radserve {

class RunRequest;

/// Tensors that go into a model, and those that must come out: |found - expected| <= absolute +
/// relative * |expected| for each element.
struct Canary {
  std::vector<Tensor> feeds;
  std::vector<Tensor> expected;
  double absolute = 0;
  double relative = 0;
  /// How long its run may take.
  std::chrono::milliseconds most_time{0};
};

/// A graph that is loaded: tensors go in by the names of its inputs, and come out by those of its
/// outputs. What a model of images knows beside that is in a class of its own (engine/). The
/// registry of the engine and the requests under way share it.
struct Model {
  std::unique_ptr<Session> session;
  /// What the session is read from again, where that has no name of its own.
  std::shared_ptr<const void> source;
  SessionSettings settings;
  /// The environments that hold it, and how often each: it goes with the last hold. Under the
  /// engine's lock.
  std::map<uint64_t, size_t> holders;
  /// What it is made of and how: who loads the same holds this one. "" for one that is not shared.
  std::string key;
  /// Its number in the registry, from Engine::Warm on; 0 before.
  uint64_t id = 0;
  std::string name;
  std::string version;
  /// Most rows that may run together.
  int64_t max_batch = 1;
  /// Runs its rows in batches, and the device that it feeds; nullptr if each runs on its own
  /// thread. Set before Keep.
  Batcher* batcher = nullptr;
  SessionDevice* device = nullptr;
  mutable RunStats runs;
  /// The output that it must still give when it is loaded again; under the engine's lock.
  std::shared_ptr<const Canary> canary;
  /// Requests use the model through it.
  mutable Residence residence;
  /// Called when the last user is done and the session's memory is given back.
  std::function<void()> released;

  Model() = default;
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;
  virtual ~Model();
  /// Whether it may be unloaded while nobody uses it, and loaded again for its next use.
  bool Evictable() const { return !settings.hashes.empty(); }
  /// Names of the outputs that its rows give, each once: all that the graph has.
  virtual std::vector<std::string> OutputNames() const;
  /// A request that runs tensors through it.
  virtual std::shared_ptr<RunRequest> MakeRun() const;

  // What Engine::Warm asks.

  /// Whether every input of the graph is one that RowShape knows.
  virtual bool FeedsAll() const { return true; }
  /// The shape of one row of an input, without the batch dimension; nullopt unless it is known, or
  /// sides are made up.
  virtual std::optional<std::vector<int64_t>> RowShape(const TensorInfo& input, bool made_up) const;
  /// Whether the input takes whatever numbers: not so an index into a table, which only 0 is sure
  /// to be in the range of.
  virtual bool TakesAnyNumbers(const TensorInfo& input) const;
  /// Whether what goes in is larger than what the graph takes, and goes through it part by part.
  virtual bool RunsByWindows() const { return false; }
  /// Looks at what a run has taken; after it, and before that is given back.
  virtual void SeeWindows() const {}
};

/// A use of a model that has begun: its last share ends it. It keeps the model.
std::shared_ptr<const void> UseOf(const std::shared_ptr<const Model>& model);

/// The model as one that ends on a thread of the engine, whoever drops the last share of it: to
/// free a gigabyte of weights takes seconds, and it may be the thread that serves requests that
/// drops it.
std::shared_ptr<Model> ShareModel(std::unique_ptr<Model> model);

}  // namespace radserve
