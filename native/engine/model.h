#ifndef RADSERVE_MODEL_H_
#define RADSERVE_MODEL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/spec.h"
#include "runtime/session.h"
#include "runtime/session_device.h"
#include "scheduling/batcher.h"

namespace radserve {

/// A model that is loaded. The registry of the engine and the requests under way share it.
struct Model {
  std::unique_ptr<Session> session;
  std::vector<InputSpec> inputs;
  std::vector<OutputSpec> outputs;
  SessionSettings settings;
  /// The environment that loaded it.
  uint64_t environment = 0;
  /// Its number in the registry, from Engine::Warm on; 0 before.
  uint64_t id = 0;
  std::string name;
  std::string version;
  /// Most rows that may run together.
  int64_t max_batch = 1;
  /// Runs its images in batches; nullptr if each runs on its own thread. Set before Keep.
  Batcher* batcher = nullptr;
  mutable RunStats runs;
  /// Called when the last user is done and the session's memory is back.
  std::function<void()> released;

  Model() = default;
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;
  ~Model();
  /// Names of the raw outputs, each once, in the manifest's order.
  std::vector<std::string> OutputNames() const;
};

}  // namespace radserve

#endif  // RADSERVE_MODEL_H_
