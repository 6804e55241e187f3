#include "runtime/independence.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "base/error.h"

namespace radserve {
namespace {

using Row = std::vector<Tensor>;

/// Rounding is less than this part of the largest number of a tensor, and what graphs that mix
/// their rows do to a row is more.
constexpr float kRounding = 0.1F;
/// A label may change by rounding where two are as likely: so many of a tensor at most.
constexpr double kChanged = 0.01;

bool SameShapes(const Row& a, const Row& b) {
  return std::ranges::equal(a, b, [](const Tensor& x, const Tensor& y) {
    return x.dtype == y.dtype && x.shape == y.shape;
  });
}

bool IsNear(const Tensor& a, const Tensor& b) {
  const std::vector<float> one = AsFloats(a);
  const std::vector<float> other = AsFloats(b);
  float most = 0;
  for (const float value : one) most = std::max(most, std::isfinite(value) ? std::fabs(value) : 0);
  size_t changed = 0;
  for (size_t i = 0; i < one.size(); ++i) {
    const bool same = one[i] == other[i] || (std::isnan(one[i]) && std::isnan(other[i]));
    if (!same && !(std::fabs(one[i] - other[i]) <= kRounding * most)) ++changed;
  }
  return static_cast<double>(changed) <= kChanged * static_cast<double>(one.size());
}

bool AreNear(const Row& a, const Row& b) {
  return SameShapes(a, b) && std::ranges::equal(a, b, IsNear);
}

}  // namespace

void CopyRow(std::span<const Tensor> row, int64_t to, Bucket& bucket) {
  for (size_t i = 0; i < row.size(); ++i)
    std::memcpy(bucket.Row(i, to).data(), row[i].data, row[i].Bytes());
}

bool SameBits(const Row& a, const Row& b) {
  return SameShapes(a, b) && std::ranges::equal(a, b, [](const Tensor& x, const Tensor& y) {
           return std::memcmp(x.data, y.data, x.Bytes()) == 0;
         });
}

bool RowsAreIndependent(Session& session, std::span<const std::string> outputs, int64_t rows,
                        std::span<Tensor> row, const RowFiller& fill, const std::stop_token& stop) {
  std::vector<std::vector<int64_t>> shapes;
  for (const Tensor& input : row) shapes.emplace_back(input.shape.begin() + 1, input.shape.end());
  const auto count = static_cast<size_t>(rows);
  const std::unique_ptr<Bucket> bucket = session.MakeBucket(rows, shapes, outputs);
  const auto run = [&](const std::vector<size_t>& patterns) {
    for (size_t at = 0; at < count; ++at) {
      fill(patterns[at], row);
      CopyRow(row, static_cast<int64_t>(at), *bucket);
    }
    bucket->Run(rows, stop);
    std::vector<Row> found;
    for (size_t at = 0; at < count; ++at)
      found.push_back(bucket->TakeRow(static_cast<int64_t>(at)));
    return found;
  };
  std::vector<size_t> patterns(count);
  std::iota(patterns.begin(), patterns.end(), size_t{0});
  const std::vector<Row> first = run(patterns);
  const bool exact = std::ranges::equal(first, run(patterns), SameBits);
  // The rows in every second place stay what they are, and their neighbours become others.
  for (size_t kept = 0; kept < 2; ++kept) {
    std::vector<size_t> changed = patterns;
    for (size_t at = 1 - kept; at < count; at += 2) changed[at] += count;
    const std::vector<Row> beside = run(changed);
    for (size_t at = kept; at < count; at += 2) {
      if (!(exact ? SameBits : AreNear)(first[at], beside[at])) return false;
    }
  }
  std::ranges::reverse(patterns);
  const std::vector<Row> turned = run(patterns);
  for (size_t at = 0; at < count; ++at) {
    if (!AreNear(first[at], turned[count - 1 - at])) return false;
  }
  for (const size_t at : {size_t{0}, count - 1}) {
    fill(at, row);
    if (!AreNear(first[at], session.Run(row, outputs, true, stop))) return false;
  }
  return true;
}

}  // namespace radserve
