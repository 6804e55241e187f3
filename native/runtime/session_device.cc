#include "runtime/session_device.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>

#include "base/error.h"

namespace radserve {
namespace {

/// Places kept: eight sizes for each of eight models in two lanes, say. Those that were not used
/// for longest make room.
constexpr size_t kPlaces = 128;

/// Memory for prepared rows is allocated in blocks of so many bytes, or of so many of the largest
/// batches if that is less.
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
  DropPlaces(id);
}

void SessionDevice::DropPlaces(uint64_t id, int64_t lane) {
  // Outlives the lock: what memory gives back may take a while.
  std::vector<std::shared_ptr<Bucket>> gone;
  const std::lock_guard lock(mutex_);
  for (auto place = places_.begin(); place != places_.end();) {
    const auto here = place++;
    if (here->first.bucket.model == id && here->first.lane >= lane) gone.push_back(Take(here));
  }
}

std::shared_ptr<Bucket> SessionDevice::TakeOldest(std::optional<uint64_t> owner, uint64_t before) {
  const std::lock_guard lock(mutex_);
  auto oldest = places_.end();
  for (auto place = places_.begin(); place != places_.end(); ++place) {
    if (owner && (place->first.bucket.model != *owner || place->second.bucket->Shared())) continue;
    if (place->second.used >= before) continue;
    if (oldest == places_.end() || place->second.used < oldest->second.used) oldest = place;
  }
  return oldest == places_.end() ? nullptr : Take(oldest);
}

std::shared_ptr<Bucket> SessionDevice::PlaceFor(const PlaceKey& key, size_t bytes,
                                                const Model& model, bool own) {
  const size_t whole = bytes * static_cast<size_t>(key.capacity);
  std::shared_ptr<Bucket> bucket;
  uint64_t before = 0;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = places_.find(key); found != places_.end()) {
      Place& place = found->second;
      bucket = place.bucket;
      before = std::exchange(place.used, ++uses_);
      // Used so often, a session of its own is worth trying: at the second, fourth, eighth use.
      own = std::has_single_bit(++place.runs) && bucket->Shared();
      if (!own) return bucket;
    }
  }
  const auto full = [&] {
    const std::lock_guard lock(mutex_);
    return !places_.empty() && (places_.size() >= kPlaces || bytes_ + whole > most_bytes_);
  };
  while (bucket == nullptr && full()) TakeOldest({}, std::numeric_limits<uint64_t>::max());
  const auto make = [&](bool alone) {
    bucket = model.session->MakeBucket(key.capacity, key.bucket.row_shapes, model.outputs, alone);
  };
  while (own) {
    try {
      make(true);
      break;
    } catch (const OutOfMemory&) {
      if (key.lane > 0) throw;
      // Buckets by turns that do not all fit would make each other's sessions anew all the time.
      own = TakeOldest(key.bucket.model, before) != nullptr;
    }
  }
  if (bucket == nullptr) make(false);
  const std::lock_guard lock(mutex_);
  Place& place = places_[key];
  bytes_ += whole - std::exchange(place.bytes, whole);
  place.bucket = bucket;
  place.used = ++uses_;
  return bucket;
}

void SessionDevice::Measure(const PlaceKey& key, const Bucket& bucket) {
  const std::lock_guard lock(mutex_);
  const auto found = places_.find(key);
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
  if (place == nullptr)
    return MakeTensorForOverwrite(std::move(row.name), dtype, std::move(row.shape));
  row.data = place.get();
  row.owner = place;
  return row;
}

Device::Result SessionDevice::Run(int64_t lane, int64_t capacity,
                                  std::span<const std::shared_ptr<BatchRow>> rows,
                                  const std::stop_token& stop) {
  const PlaceKey key = {rows.front()->key, capacity, lane};
  const uint64_t id = key.bucket.model;
  Model model;
  {
    const std::lock_guard lock(mutex_);
    model = models_.at(id);
  }
  size_t row_bytes = 0;
  for (const Tensor& input : rows.front()->inputs) row_bytes += input.Bytes();
  const auto run = [&](bool own) {
    const std::shared_ptr<Bucket> bucket = PlaceFor(key, row_bytes, model, own);
    Result result = RunIn(*bucket, rows, stop, *model.stats);
    Measure(key, *bucket);
    return result;
  };
  const bool own = (rows.front()->comes_again || lane > 0) && model.session->OnGpu();
  try {
    return run(own);
  } catch (const NotCaptured&) {
    model.session->ForgoGraphs();
  } catch (const OutOfMemory&) {
    if (!model.session->OnGpu()) throw;
    DropPlaces(id, lane);
    ShrinkGpu(model.session->device());
    if (capacity > 1 || lane > 0) throw;
    // One row may fit now that the model's other buckets have given their memory back, or else once
    // those of all other models have, which rest.
    try {
      return run(false);
    } catch (const OutOfMemory&) {
      while (TakeOldest({}, std::numeric_limits<uint64_t>::max()) != nullptr) {
      }
      ShrinkGpu(model.session->device());
    }
    return run(false);
  }
  DropPlaces(id);
  return run(own);
}

Device::Result SessionDevice::RunIn(Bucket& bucket, std::span<const std::shared_ptr<BatchRow>> rows,
                                    const std::stop_token& stop, RunStats& stats) {
  // Neighbours come one after the other, because the bucket reads those at once.
  std::vector<size_t> order(rows.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, {}, [&](size_t i) { return rows[i]->inputs.front().data; });
  std::vector<RowInputs> inputs(rows.size());
  for (size_t r = 0; r < rows.size(); ++r) {
    for (const Tensor& input : rows[order[r]]->inputs)
      inputs[r].emplace_back(input.data, input.Bytes());
  }
  const auto begun = Clock::now();
  if (bucket.RunRows(inputs, stop)) stats.Gathered();
  Result result;
  result.ran = Clock::now() - begun;
  result.outputs.resize(rows.size());
  for (size_t r = 0; r < rows.size(); ++r)
    result.outputs[order[r]] = bucket.TakeRow(static_cast<int64_t>(r));
  stats.Ran(rows.size(), result.ran);
  return result;
}

}  // namespace radserve
