/// Engine::Warm: the first request after a load finds everything warm, and what to do with many is
/// known.
#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "graph/engine.h"
#include "graph/limit.h"
#include "runtime/independence.h"

namespace radserve {
namespace {

/// On the CPU, models whose single run takes longer are not warmed here, and longer than the second
/// not measured: a load must not take several times as long as an image.
constexpr auto kLongRun = std::chrono::milliseconds(500);
constexpr auto kShortRun = std::chrono::milliseconds(100);
/// Rows of the batch that shows whether batches pay on the CPU.
constexpr int64_t kProbeRows = 8;
/// How much cheaper they must make an image.
constexpr double kPays = 1.10;
/// So many numbers are compared for each size of a batch: of a few, all may be rounded to the same
/// by chance.
constexpr size_t kNumbersCompared = 128;
/// No more rows are run alone, and then no larger batches are tried for their bits, once that has
/// taken so long.
constexpr auto kSameBitsPatience = std::chrono::seconds(4);

Tensor Row(const TensorInfo& input, std::vector<int64_t> shape) {
  shape.insert(shape.begin(), 1);
  return MakeTensor(input.name, input.dtype, std::move(shape));
}

template <typename Body>
Clock::duration Took(const Body& body) {
  const auto begun = Clock::now();
  body();
  return Clock::now() - begun;
}

/// Numbers that differ from place to place, and from one `pattern` to the next: zeros would be the
/// same in any order. Their range and mean differ too, or a graph that takes those over the whole
/// batch would give each row what it gives alone.
void FillPattern(size_t pattern, Tensor& row) {
  const bool whole = row.dtype != Dtype::kFloat32 && row.dtype != Dtype::kFloat16;
  const auto turn = static_cast<float>(pattern % kProbeRows);
  const float most = (whole ? 100.0F : 1.0F) / (1 + turn);
  const float least = (whole ? 100.0F : 1.0F) * turn / (2 * kProbeRows);
  std::vector<float> values(row.Elements());
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>((i + 97 * pattern) * (2654435761U + 2 * pattern) % 1021) /
                    1021.0F * most +
                least;
  }
  StoreRow(row.dtype, values.data(), values.size(), row.data, 1);
}

void FillRow(const Model& model, size_t pattern, std::span<Tensor> inputs) {
  const std::vector<TensorInfo>& graph = model.session->graph().inputs;
  for (Tensor& input : inputs) {
    if (model.TakesAnyNumbers(*std::ranges::find(graph, input.name, &TensorInfo::name)))
      FillPattern(pattern, input);
  }
}

/// The largest number of rows up to which every number of them gives the bits of the same rows run
/// alone: a result must not depend on who else asked at that moment.
int64_t SameBitsUpTo(const Model& model, BatchRow& row, const std::stop_token& stop) {
  auto begun = Clock::now();
  const auto over = [&] { return Clock::now() - begun >= kSameBitsPatience; };
  std::vector<std::vector<Tensor>> alone;
  // Rows that are all the same would hide what the graph mixes.
  const auto rows_compared = static_cast<size_t>(std::min(kProbeRows, model.max_batch));
  for (size_t numbers = 0;
       (numbers < kNumbersCompared || alone.size() < rows_compared) && !over();) {
    FillRow(model, alone.size(), row.inputs);
    alone.push_back(model.session->Run(row.inputs, model.OutputNames(), true, stop));
    // A row without numbers must not be asked for forever.
    ++numbers;
    for (const Tensor& output : alone.back()) numbers += output.Elements();
  }
  begun = Clock::now();
  const auto bucket =
      model.session->MakeBucket(model.max_batch, row.key.row_shapes, model.OutputNames());
  for (int64_t rows = 1; rows <= model.max_batch; ++rows) {
    for (size_t done = 0; done < alone.size(); done += static_cast<size_t>(rows)) {
      if (over()) return rows - 1;
      const auto pattern = [&](int64_t at) {
        return (done + static_cast<size_t>(at)) % alone.size();
      };
      for (int64_t at = 0; at < rows; ++at) {
        FillRow(model, pattern(at), row.inputs);
        CopyRow(row.inputs, at, *bucket);
      }
      bucket->Run(rows, stop);
      for (int64_t at = 0; at < rows; ++at) {
        if (!SameBits(alone[pattern(at)], bucket->TakeRow(at))) return rows - 1;
      }
    }
  }
  return model.max_batch;
}

/// Runs both sessions once; the largest batch over all cores, if it makes an image cheaper than
/// images side by side, one core each. 1 if it does not.
int64_t LargestOnCpu(const Model& model, BatchRow& row, int threads, const std::stop_token& stop) {
  const std::vector<std::string> names = model.OutputNames();
  const auto run = [&](bool wide) {
    const Limit limit(kLongRun, stop);
    model.session->Run(row.inputs, names, wide, limit.token());
  };
  try {
    run(true);
    if (Took([&] { run(false); }) > kShortRun || model.max_batch < 2) return 1;
    const Clock::duration alone = std::min(Took([&] { run(false); }), Took([&] { run(false); }));
    const int64_t rows = std::min(kProbeRows, model.max_batch);
    const auto bucket = model.session->MakeBucket(rows, row.key.row_shapes, names);
    for (int64_t i = 0; i < rows; ++i) CopyRow(row.inputs, i, *bucket);
    bucket->Run(rows, stop);
    const Clock::duration together =
        std::min(Took([&] { bucket->Run(rows, stop); }), Took([&] { bucket->Run(rows, stop); }));
    const double side_by_side = static_cast<double>(alone.count()) / threads;
    int64_t largest = 1;
    if (side_by_side > kPays * static_cast<double>(together.count()) / static_cast<double>(rows)) {
      largest = SameBitsUpTo(model, row, stop);
    }
    if (largest < 2) {
      // No run to come is as large as those were.
      ReturnMemory();
      run(true);
    }
    return largest;
  } catch (const EngineError&) {
    // It takes too long, or the graph takes no batches, or not what the manifest says: that is told
    // by who compares the two.
    return 1;
  }
}

/// A row for each input of the graph, in its order, with a pattern; nullptr unless the model knows
/// the shape of each, or sides are made up.
std::shared_ptr<BatchRow> PatternRow(const Model& model, const std::vector<TensorInfo>& graph,
                                     bool made_up = false) {
  auto row = std::make_shared<BatchRow>();
  row->key.model = model.id;
  for (const TensorInfo& info : graph) {
    const std::optional<std::vector<int64_t>> shape = model.RowShape(info, made_up);
    if (!shape) return nullptr;
    row->key.row_shapes.push_back(*shape);
    row->inputs.push_back(Row(info, *shape));
  }
  FillRow(model, 0, row->inputs);
  return row;
}

/// Runs one window over all cores, as the first of an image would.
void WarmWindow(const Model& model, const BatchRow& row, const std::stop_token& stop) {
  try {
    const Limit limit(kLongRun, stop);
    model.session->Run(row.inputs, model.OutputNames(), true, limit.token());
  } catch (const EngineError&) {
    // It takes too long, or the graph does not take what the manifest says: that is told by who
    // compares the two.
  }
  model.SeeWindows();
}

/// The largest batch on a GPU: what the manifest says if the rows of such a batch are independent,
/// else 1. What rows that depend on each other would give depends on who else asked at that moment.
int64_t LargestOnGpu(const Model& model, BatchRow& row, const std::stop_token& stop) {
  const std::vector<std::string> names = model.OutputNames();
  const RowFiller fill = [&](size_t pattern, std::span<Tensor> inputs) {
    FillRow(model, pattern, inputs);
  };
  int64_t rows = model.max_batch;
  while (rows > 1) {
    try {
      const bool independent =
          RowsAreIndependent(*model.session, names, rows, row.inputs, fill, stop);
      return independent ? rows : 1;
    } catch (const OutOfMemory&) {
      rows /= 2;
    } catch (const EngineError&) {
      // The graph takes no batches, or not what the manifest says: that is told by who compares the
      // two.
      return 1;
    }
  }
  return 1;
}

bool AnyBatch(const TensorInfo& input) { return !input.shape.empty() && input.shape[0] == -1; }

}  // namespace

Engine::Place& Engine::PlaceFor(const SessionSettings& settings) {
  const std::lock_guard lock(mutex_);
  Place& place = places_[settings.OnGpu() ? settings.device : kCpu];
  if (place.batcher == nullptr) {
    auto device = std::make_unique<SessionDevice>();
    place.device = device.get();
    place.use.device = settings.device;
    place.use.limit = settings.device_memory;
    place.batcher = std::make_unique<Batcher>(std::move(device), settings.OnGpu() ? 2 : 1);
  }
  return place;
}

void Engine::Warm(const std::shared_ptr<Model>& model, const std::stop_token& stop) {
  model->id = NewId();
  const std::vector<TensorInfo>& graph = model->session->graph().inputs;
  // A model that does not fit its manifest is refused with words of its own; here it is only not
  // warmed.
  const bool fed = model->FeedsAll();
  if (!fed || !model->session->TakesBatches() || !std::ranges::all_of(graph, AnyBatch))
    model->max_batch = 1;
  const std::shared_ptr<BatchRow> row = fed ? PatternRow(*model, graph) : nullptr;
  const bool cuda = model->settings.OnGpu();
  // Windows of a GPU run in batches there.
  if (model->RunsByWindows() && !(cuda && fed && row && graph.size() == 1)) {
    // Over all cores two windows take as long together as one after the other, and twice the
    // memory.
    if (!cuda) model->max_batch = 1;
    if (row) WarmWindow(*model, *row, stop);
    return;
  }
  if (!cuda) {
    model->max_batch = row ? LargestOnCpu(*model, *row, threads_, stop) : 1;
    if (model->max_batch < 2) return;
  }
  if (cuda && !fed) return;
  if (cuda && model->max_batch > 1) {
    const std::shared_ptr<BatchRow> probe = PatternRow(*model, graph, true);
    model->max_batch = probe ? LargestOnGpu(*model, *probe, stop) : 1;
    // What these runs took is for others.
    ShrinkGpu(model->settings.device);
  }
  const Place& place = PlaceFor(model->settings);
  place.batcher->AddModel(model->id, model->max_batch, cuda);
  place.device->AddModel(
      model->id, {model->session.get(), model->OutputNames(), &model->runs, model->max_batch});
  model->batcher = place.batcher.get();
  model->device = place.device;
  work_.SetStartLimit(model->id, static_cast<size_t>(2 * model->max_batch + threads_));
  if (!row) return;
  if (row->inputs.size() == 1) {
    Tensor& input = row->inputs[0];
    const Tensor plain =
        std::exchange(input, place.device->NewRow(row->key, input.name, input.dtype));
    std::memcpy(input.data, plain.data, plain.Bytes());
  }
  place.batcher->Warm(row, model->max_batch, stop);
}

}  // namespace radserve
