#include "runtime/session_device.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "base/error.h"

namespace radserve {
namespace {

/// Places kept: six sizes for each of ten shapes, say. Those that were not used for longest make room.
constexpr size_t kPlaces = 64;

/// Memory for prepared rows is allocated in blocks of so many bytes, or of so many of the largest batches if
/// that is less.
constexpr size_t kBlockBytes = size_t{64} << 20;
constexpr int64_t kBatches = 4;

}  // namespace

void RunStats::Ran(size_t rows, Clock::duration took) {
  const std::lock_guard lock(mutex_);
  figures_.batches.Add(static_cast<double>(rows));
  figures_.run.Add(took);
}

void RunStats::Gathered() {
  const std::lock_guard lock(mutex_);
  ++figures_.gathered;
}

RunStats::Figures RunStats::Get() const {
  const std::lock_guard lock(mutex_);
  return figures_;
}

void SessionDevice::AddModel(uint64_t id, Model model) {
  const std::lock_guard lock(mutex_);
  models_.emplace(id, std::move(model));
}

size_t SessionDevice::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

std::shared_ptr<Bucket> SessionDevice::Take(Places::iterator place) {
  bytes_ -= place->second.bytes;
  std::shared_ptr<Bucket> bucket = std::move(place->second.bucket);
  places_.erase(place);
  return bucket;
}

void SessionDevice::RemoveModel(uint64_t id) {
  Clear(id);
  const std::lock_guard lock(mutex_);
  models_.erase(id);
}

void SessionDevice::Clear(uint64_t id) {
  staging_.Remove(id);
  TakePlaces(id, true);
}

std::vector<std::shared_ptr<Bucket>> SessionDevice::TakePlaces(uint64_t id, bool all) {
  const std::lock_guard lock(mutex_);
  std::vector<Places::iterator> places;
  for (auto place = places_.begin(); place != places_.end(); ++place) {
    if (place->first.first.model == id) places.push_back(place);
  }
  std::ranges::sort(places, {}, [](const auto& place) { return place->second.used; });
  if (!all && !places.empty()) places.resize(1);
  std::vector<std::shared_ptr<Bucket>> taken;
  for (const auto& place : places) taken.push_back(Take(place));
  return taken;
}

void SessionDevice::Renew(uint64_t id, const Model& model, bool graphs) {
  TakePlaces(id, true);
  model.session->Renew(graphs);
}

std::shared_ptr<Bucket> SessionDevice::PlaceFor(const BucketKey& key, int64_t capacity, size_t bytes,
                                                const Model& model) {
  const size_t whole = bytes * static_cast<size_t>(capacity);
  {
    // Outlives the lock: what memory gives back may take a while.
    std::vector<std::shared_ptr<Bucket>> gone;
    const std::lock_guard lock(mutex_);
    const auto found = places_.find({key, capacity});
    if (found != places_.end()) {
      found->second.used = ++uses_;
      return found->second.bucket;
    }
    while (!places_.empty() && (places_.size() >= kPlaces || bytes_ + whole > most_bytes_)) {
      gone.push_back(Take(std::min_element(places_.begin(), places_.end(), [](const auto& a, const auto& b) {
        return a.second.used < b.second.used;
      })));
    }
  }
  std::shared_ptr<Bucket> made;
  while (made == nullptr) {
    try {
      made = model.session->MakeBucket(capacity, key.row_shapes, model.outputs);
    } catch (const OutOfMemory&) {
      if (TakePlaces(key.model, false).empty()) throw;
    }
  }
  const std::lock_guard lock(mutex_);
  places_.emplace(std::pair(key, capacity), Place{made, whole, ++uses_});
  bytes_ += whole;
  return made;
}

void SessionDevice::Measure(const BucketKey& key, int64_t capacity, const Bucket& bucket) {
  const std::lock_guard lock(mutex_);
  const auto found = places_.find({key, capacity});
  if (found == places_.end() || found->second.bucket.get() != &bucket) return;
  bytes_ -= std::exchange(found->second.bytes, bucket.Bytes());
  bytes_ += found->second.bytes;
}

Tensor SessionDevice::NewRow(const BucketKey& key, std::string name, Dtype dtype) {
  Tensor row{std::move(name), dtype, {1}, nullptr, nullptr};
  const std::vector<int64_t>& shape = key.row_shapes.at(0);
  row.shape.insert(row.shape.end(), shape.begin(), shape.end());
  const Session* session = nullptr;
  Staging::Block block = {row.Bytes(), 1};
  {
    const std::lock_guard lock(mutex_);
    const Model& model = models_.at(key.model);
    session = model.session;
    const auto most = static_cast<int64_t>(kBlockBytes / std::max<size_t>(block.row_bytes, 1));
    block.rows = std::clamp<int64_t>(most, 1, kBatches * model.max_batch);
  }
  const std::shared_ptr<std::byte> place =
      staging_.Take(key, block, [session](size_t bytes) { return session->MakeRows(bytes); });
  if (place == nullptr) return MakeTensorForOverwrite(std::move(row.name), dtype, std::move(row.shape));
  row.data = place.get();
  row.owner = place;
  return row;
}

Device::Result SessionDevice::Run(int64_t capacity, std::span<const std::shared_ptr<BatchRow>> rows,
                                  const std::stop_token& stop) {
  const BucketKey& key = rows.front()->key;
  Model model;
  {
    const std::lock_guard lock(mutex_);
    model = models_.at(key.model);
  }
  size_t row_bytes = 0;
  for (const Tensor& input : rows.front()->inputs) row_bytes += input.Bytes();
  const auto run = [&] {
    const std::shared_ptr<Bucket> bucket = PlaceFor(key, capacity, row_bytes, model);
    Result result = RunIn(*bucket, rows, stop, *model.stats);
    Measure(key, capacity, *bucket);
    return result;
  };
  const auto renewed = [&] {
    try {
      Renew(key.model, model, true);
      return true;
    } catch (const EngineError&) {
      // It is worn, and the next run tries again.
      return false;
    }
  };
  try {
    if (model.session->Worn()) Renew(key.model, model, true);
    return run();
  } catch (const NotCaptured&) {
    // Once more, below.
  } catch (const OutOfMemory&) {
    if (!model.session->OnGpu() || !renewed() || capacity > 1) throw;
    // One row may fit now that the model's other buckets have given their memory back.
    return run();
  }
  Renew(key.model, model, false);
  return run();
}

Device::Result SessionDevice::RunIn(Bucket& bucket, std::span<const std::shared_ptr<BatchRow>> rows,
                                    const std::stop_token& stop, RunStats& stats) {
  const auto count = static_cast<int64_t>(rows.size());
  const std::optional<Staging::Batch> joined = Join(rows, bucket.Reads(count));
  if (!joined) Copy(rows, bucket);
  const auto filled = Clock::now();
  if (joined) {
    bucket.RunOver(joined->data, count, stop);
  } else {
    bucket.Run(count, stop);
  }
  Result result;
  result.ran = Clock::now() - filled;
  result.outputs.resize(rows.size());
  for (size_t r = 0; r < rows.size(); ++r) {
    result.outputs[joined ? joined->order[r] : r] = bucket.TakeRow(static_cast<int64_t>(r));
  }
  if (!joined) stats.Gathered();
  stats.Ran(rows.size(), result.ran);
  return result;
}

std::optional<Staging::Batch> SessionDevice::Join(std::span<const std::shared_ptr<BatchRow>> rows,
                                                  int64_t size) {
  if (rows.front()->inputs.size() != 1) return std::nullopt;
  std::vector<const std::byte*> data;
  for (const auto& row : rows) data.push_back(row->inputs.front().data);
  return staging_.Join(data, size);
}

void SessionDevice::Copy(std::span<const std::shared_ptr<BatchRow>> rows, Bucket& bucket) {
  for (size_t r = 0; r < rows.size(); ++r) {
    for (size_t i = 0; i < rows[r]->inputs.size(); ++i) {
      const Tensor& input = rows[r]->inputs[i];
      const std::span<std::byte> row = bucket.Row(i, static_cast<int64_t>(r));
      if (row.size() != input.Bytes()) throw EngineError("internal", "A row does not fit its bucket.");
      std::memcpy(row.data(), input.data, row.size());
    }
  }
}

}  // namespace radserve
