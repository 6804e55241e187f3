#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

namespace radserve {

using Clock = std::chrono::steady_clock;

enum class Priority { kStat, kRoutine, kBulk };
inline constexpr size_t kPriorities = 3;

/// The order in which work starts: who is next. Knows neither threads nor clocks; the caller says
/// what time it is.
///
/// 1. Class: stat, then routine, then bulk.
/// 2. Aging: if an item below a class has waited longer than `age` of that class, one start in
///    `share` passes that class over. So bulk gets at least an eighth of a saturated engine, and a
///    stat waits only for what runs already, unless something has starved behind stats for a whole
///    minute.
/// 3. Within a class the flows (models) share time equally, by start-time fair queueing (Goyal,
///    Vin, Cheng: Start-time Fair Queueing, SIGCOMM 1996): the flow with the least start tag is
///    next, and its tag moves on by what the start costs. A flow that comes anew begins where the
///    others are, and neither saves up nor owes.
/// 4. Within a flow the earliest deadline first, then arrival. An item without a deadline counts as
///    due `horizon` after its arrival, and so does one with a later deadline: neither starves.
class FairQueue {
 public:
  struct Options {
    uint64_t share = 8;
    /// How long an item below stat, and one below routine, waits before it passes.
    std::array<Clock::duration, 2> age = {std::chrono::seconds(60), std::chrono::seconds(2)};
    Clock::duration horizon = std::chrono::seconds(60);
  };
  struct Item {
    /// Rises with every arrival.
    uint64_t id = 0;
    Priority priority = Priority::kRoutine;
    uint64_t flow = 0;
    std::optional<Clock::time_point> deadline;
    Clock::time_point arrived;
  };
  /// Whether work of that flow and class may start now.
  using Eligible = std::function<bool(uint64_t flow, Priority)>;

  FairQueue() = default;
  explicit FairQueue(const Options& options) : options_(options) {}

  void Add(const Item& item);
  /// Returns false if no such item waits.
  bool Remove(uint64_t id);
  /// The item to start next; nullptr if no item may. Valid until the queue changes.
  const Item* Next(Clock::time_point now, const Eligible& eligible) const;
  /// Takes an item that Next gave out, and charges its flow.
  Item Start(uint64_t id, Clock::duration cost);
  /// Corrects what Start charged; negative where the work was cheaper.
  void Charge(Priority priority, uint64_t flow, Clock::duration cost);

  size_t size() const { return items_.size(); }
  size_t Count(Priority priority) const { return classes_[Index(priority)].count; }
  /// Calls `visit` for all items of one flow and class in the order in which they would start,
  /// until it returns false.
  void Visit(Priority priority, uint64_t flow, const std::function<bool(const Item&)>& visit) const;

  static size_t Index(Priority priority) { return static_cast<size_t>(priority); }

 private:
  using Key = std::pair<Clock::time_point, uint64_t>;
  struct Flow {
    Clock::duration start{};
    /// The items that wait, by due time, and the same by arrival.
    std::map<Key, const Item*> due;
    std::set<Key> arrivals;
  };
  struct Class {
    std::map<uint64_t, Flow> flows;
    /// Start tag of what started last.
    Clock::duration now{};
    size_t count = 0;
    /// Starts since this class was passed over.
    uint64_t starts = 0;
  };

  Key DueKey(const Item& item) const;
  void Erase(const Item& item);
  bool AgedBelow(size_t level, Clock::time_point now, const Eligible& eligible) const;

  const Options options_;
  std::unordered_map<uint64_t, Item> items_;
  std::array<Class, kPriorities> classes_;
};

}  // namespace radserve
