/// Throughput on mixed shapes of a device of known cost, in virtual time: the planner's and a naive batcher's
/// share of what the device could do without changes of shape. Prints {"fake_device": {...}}.
#include "fake_device.h"

#include <iostream>

int main() {
  using namespace radserve::test;
  const FakeCost cost;
  constexpr int64_t kLargest = 32;
  const double ideal = 1000 / cost.Ideal(kLargest);
  Planned planned(kLargest);
  Naive naive(kLargest);
  Planned planned_open(kLargest);
  Naive naive_open(kLargest);
  std::cout << "{\"fake_device\": {\"run_ms\": " << cost.Run(1) << ", \"change_ms\": " << cost.change
            << ", \"shapes\": 4, \"saturated\": " << ClosedLoop(cost, planned, 4, 64) / ideal
            << ", \"saturated_naive\": " << ClosedLoop(cost, naive, 4, 64) / ideal
            << ", \"four_fifths_load\": " << OpenLoop(cost, planned_open, 4, 0.8 * ideal) / ideal
            << ", \"four_fifths_load_naive\": " << OpenLoop(cost, naive_open, 4, 0.8 * ideal) / ideal
            << "}}\n";
}
