#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace radserve {

/// Counts by fixed buckets that double: the first ends at `first`, the last has no end. Not for
/// several threads.
template <size_t size>
class Histogram {
 public:
  explicit Histogram(double first) : first_(first) {}

  void Add(double value) {
    size_t i = 0;
    for (double end = first_; i < size && value > end; end *= 2) ++i;
    ++counts_[i];
    sum_ += value;
  }

  /// Upper ends of all buckets but the last.
  std::array<double, size> Ends() const {
    std::array<double, size> ends{};
    double end = first_;
    for (double& e : ends) {
      e = end;
      end *= 2;
    }
    return ends;
  }
  const std::array<uint64_t, size + 1>& counts() const { return counts_; }
  double sum() const { return sum_; }

 private:
  double first_;
  std::array<uint64_t, size + 1> counts_{};
  double sum_ = 0;
};

/// Seconds, from a quarter of a millisecond to 131 s.
class DurationHistogram : public Histogram<20> {
 public:
  DurationHistogram() : Histogram(0.00025) {}
  void Add(std::chrono::nanoseconds duration) {
    Histogram::Add(std::chrono::duration<double>(duration).count());
  }
};

/// Rows in a batch: 1, 2, 4, ... 512, more.
class BatchHistogram : public Histogram<10> {
 public:
  BatchHistogram() : Histogram(1) {}
};

}  // namespace radserve
