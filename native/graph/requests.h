#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "base/tensor.h"
#include "graph/client.h"
#include "graph/engine.h"
#include "scheduling/task.h"

namespace radserve {

/// A task that answers by completion. Results lie in the task when the completion without a failure
/// has come.
class Request : public Task {
 public:
  void Done(const std::optional<Failure>& failure) noexcept override;

  std::shared_ptr<Client> client;
  uint64_t ticket = 0;
};

class InspectRequest : public Request {
 public:
  void Run(const TaskContext& context) override;

  std::string path;
  GraphInfo graph;
};

class LoadRequest : public Request {
 public:
  void Run(const TaskContext& context) override;
  /// Takes the model back if the load failed after all.
  void Done(const std::optional<Failure>& failure) noexcept override;

  /// The graphs of the model; of several the mean is taken.
  std::vector<std::string> paths;
  /// A graph that is given instead of a path, and its owner.
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;
  /// Whether another load of the same files, or bytes, in the same way gives the same model.
  bool shared = false;
  /// CUDA: the GPUs that it may go to.
  std::vector<int> gpus;
  /// CPU: cores that a run alone may use, at most those of the engine; 0 for all of those.
  int threads = 0;
  /// The caller fills the settings; the session comes with Run. Where another has loaded it, it is
  /// that one's model afterwards.
  std::shared_ptr<Model> model;
  uint64_t id = 0;

 protected:
  /// What is done with each of several graphs' outputs before their mean is taken.
  virtual BeforeMean TakeBeforeMean() { return {}; }

 private:
  /// The key of a model that is shared. Throws model_unavailable if there is no such file.
  std::string Key(const std::stop_token& stop) const;
  /// Bytes as a file that a session is made of.
  void WriteBytes();
};

/// Work for one model. It runs on one engine thread, unless the model runs in batches: then the
/// request parks while the device has its row.
class ModelRequest : public Request {
 public:
  Clock::duration DeviceTime() const override;
  /// Ends its use of the model before it answers.
  void Done(const std::optional<Failure>& failure) noexcept override;

  std::shared_ptr<const Model> model;

 protected:
  /// Begins the request's use of the model. False if the model is unloaded: the request is parked,
  /// and runs again once the model is loaded. Throws why it cannot be loaded.
  bool AcquireModel(const TaskContext& context);
  /// Runs the model on this thread.
  virtual std::vector<Tensor> RunHere(std::span<const Tensor> inputs,
                                      std::span<const std::string> outputs,
                                      const TaskContext& context);
  /// Whether this run is to go to the device with others.
  bool Batched(const TaskContext& context) const;
  /// Makes the input where the device that is to run it likes to have it.
  TensorMaker InputMaker() const;
  std::shared_ptr<BatchRow> MakeRow(std::vector<Tensor> inputs) const;
  void Park(const TaskContext& context, std::vector<Tensor> inputs);
  bool parked() const { return row_ != nullptr; }
  /// Outputs that came while it was parked, in the order of Model::OutputNames, and how long its
  /// batch ran. Where that was crowded out the row runs here, and waits for the memory. Throws what
  /// failed.
  std::pair<std::vector<Tensor>, Clock::duration> TakeRow(const TaskContext& context);

 private:
  std::shared_ptr<Residence::PendingUse> pending_;
  /// Present while the request uses the model.
  std::shared_ptr<const void> use_;
  std::shared_ptr<BatchRow> row_;
  std::optional<std::stop_callback<std::function<void()>>> on_stop_;
};

/// Tensors through one model. One row goes the way of all rows, so that what a canary shows holds
/// for images, too.
class RunRequest : public ModelRequest {
 public:
  void Run(const TaskContext& context) override;
  /// Runs the model on this thread, whether or not it is loaded for others.
  std::vector<Tensor> RunNow(const TaskContext& context) {
    return RunHere(feeds, Wanted(), context);
  }

  /// In memory that their owners keep, or the environment.
  std::vector<Tensor> feeds;
  /// Those that are asked for; all of the graph where there are none.
  std::vector<std::string> wanted;
  /// In that order, or the graph's.
  std::vector<Tensor> outputs;

 private:
  /// One row for a graph whose outputs are all among those that its rows give.
  bool IsRow() const;
  std::vector<std::string> Wanted() const;
};

}  // namespace radserve
