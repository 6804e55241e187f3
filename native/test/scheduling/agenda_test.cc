#include "scheduling/agenda.h"

#include <algorithm>
#include <queue>
#include <random>
#include <set>

#include "check.h"
#include "steps.h"

using namespace radserve;
using namespace radserve::test;
using namespace std::chrono_literals;

namespace {

using EntryPtr = Agenda::EntryPtr;
using Time = Clock::time_point;

/// Never runs: the agenda only orders it.
struct StubTask : Task {
  void Run(const TaskContext&) override { CHECK(false); }
  void Done(const std::optional<Failure>&) noexcept override { ++ends; }
  Clock::duration DeviceTime() const override { return device; }
  Clock::duration device{};
  int ends = 0;
};

std::shared_ptr<StubTask> MakeTask(Priority priority, uint64_t flow = 0) {
  auto task = std::make_shared<StubTask>();
  task->priority = priority;
  task->flow = flow;
  return task;
}

// ---- Millions of random steps against a model that is too simple to be wrong: one plain list.

/// What the agenda must do, by scanning a list.
class SimpleModel {
 public:
  explicit SimpleModel(const FairQueue::Options& order) : order_(order) {}

  struct Known {
    EntryPtr entry;
    std::shared_ptr<StubTask> task;
    Time arrived;
    Agenda::State state = Agenda::State::kWaiting;
    bool resumed_early = false;
    Time Due(Clock::duration horizon) const {
      const Time latest = arrived + horizon;
      return task->deadline ? std::min(*task->deadline, latest) : latest;
    }
  };

  std::vector<Known> live;
  std::map<uint64_t, size_t> start_limits;

  size_t Count(Agenda::State state) const {
    return static_cast<size_t>(
        std::count_if(live.begin(), live.end(), [&](const Known& k) { return k.state == state; }));
  }
  Known& Of(const EntryPtr& entry) {
    return *std::find_if(live.begin(), live.end(),
                         [&](const Known& k) { return k.entry == entry; });
  }
  void Drop(const EntryPtr& entry) {
    std::erase_if(live, [&](const Known& k) { return k.entry == entry; });
  }

  /// Checks and notes that `entry` starts now; nullptr says that the agenda starts none.
  void Start(const EntryPtr& entry, Time now) {
    if (Count(Agenda::State::kResumed) > 0) {
      CHECK(entry != nullptr && Of(entry).state == Agenda::State::kResumed);
      if (entry != nullptr) Of(entry).state = Agenda::State::kRunning;
      return;
    }
    const std::optional<size_t> level = Level(now);
    CHECK(level.has_value() == (entry != nullptr));
    if (entry == nullptr || !level) return;
    Known& known = Of(entry);
    CHECK(known.state == Agenda::State::kWaiting);
    CHECK(MayStart(known));
    EQUAL(static_cast<size_t>(known.task->priority), *level);
    for (const Known& other : live) {
      if (other.state != Agenda::State::kWaiting || other.task->flow != known.task->flow ||
          other.task->priority != known.task->priority) {
        continue;
      }
      CHECK(std::pair(known.Due(order_.horizon), known.entry->number) <=
            std::pair(other.Due(order_.horizon), other.entry->number));
    }
    for (size_t above = 0; above < *level; ++above) {
      if (Any(above, [](const Known&) { return true; })) starts_[above] = 0;
    }
    ++starts_[*level];
    known.state = Agenda::State::kRunning;
  }

 private:
  template <typename Match>
  bool Any(size_t level, const Match& match) const {
    return std::any_of(live.begin(), live.end(), [&](const Known& k) {
      return k.state == Agenda::State::kWaiting && static_cast<size_t>(k.task->priority) == level &&
             match(k);
    });
  }
  bool MayStart(const Known& known) const {
    const auto limit = start_limits.find(known.task->flow);
    if (limit == start_limits.end() || limit->second == 0) return true;
    size_t started = 0;
    for (const Known& k : live)
      started += k.task->flow == known.task->flow && k.state != Agenda::State::kWaiting;
    return started < limit->second * (known.task->priority == Priority::kStat ? 2 : 1);
  }
  std::optional<size_t> Level(Time now) const {
    for (size_t level = 0; level < kPriorities; ++level) {
      if (!Any(level, [&](const Known& k) { return MayStart(k); })) continue;
      bool aged = false;
      for (size_t below = level + 1; below < kPriorities; ++below) {
        aged = aged || Any(below, [&](const Known& k) {
                 return MayStart(k) && now - k.arrived >= order_.age[level];
               });
      }
      if (starts_[level] + 1 >= order_.share && aged) continue;
      return level;
    }
    return std::nullopt;
  }

  const FairQueue::Options order_;
  std::array<uint64_t, kPriorities> starts_{};
};

/// Drives an agenda and its model with the same random steps.
class Walk {
 public:
  static constexpr size_t kThreads = 3;
  static constexpr size_t kMostWaiting = 24;

  explicit Walk(uint64_t seed) : random_(seed) {
    for (uint64_t flow : {1, 2}) {
      agenda_.SetStartLimit(flow, flow + 1);
      model_.start_limits[flow] = flow + 1;
    }
  }

  void Step() {
    now_ += Clock::duration(std::chrono::microseconds(Pick(400)));
    ExpireDeadlines();
    const uint64_t kind = Pick(100);
    if (kind < 40) {
      Submit();
    } else if (kind < 62) {
      Start();
    } else if (kind < 82) {
      EndOne();
    } else if (kind < 88) {
      ParkOne();
    } else if (kind < 95) {
      ResumeOne();
    } else {
      Cancel(kind);
    }
    CheckCounts();
  }

  /// All that is left ends; then every task that was taken has ended once.
  void Finish() {
    for (const EntryPtr& entry : agenda_.Matching([](const Task&) { return true; })) Stop(entry);
    while (!agenda_.idle()) {
      ResumeOne();
      Start();
      EndOne();
    }
    EQUAL(ended_, taken_);
    EQUAL(agenda_.GetStats().completed + agenda_.GetStats().failed, taken_);
  }

 private:
  uint64_t Pick(uint64_t n) { return random_() % n; }

  void Submit() {
    if (agenda_.waiting() == kMostWaiting) return;
    auto task = MakeTask(static_cast<Priority>(Pick(3)), Pick(4));
    task->cancel_id = Pick(20);
    task->environment = Pick(3);
    if (Pick(3) == 0)
      task->deadline = now_ + std::chrono::microseconds(static_cast<int64_t>(Pick(20'000)) - 200);
    const bool late = task->deadline && *task->deadline <= now_;
    EntryPtr entry;
    EQUAL(CodeOf([&] { entry = agenda_.Add(task, now_); }), late ? "deadline_exceeded" : "none");
    if (entry == nullptr) return;
    ++taken_;
    model_.live.push_back({entry, task, now_});
  }

  void Start() {
    if (agenda_.running() >= kThreads) return;
    const EntryPtr entry = agenda_.Next(now_);
    CHECK(entry == nullptr || !cancelled_.contains(entry->number) ||
          model_.Of(entry).state != Agenda::State::kWaiting);
    model_.Start(entry, now_);
  }

  SimpleModel::Known* One(Agenda::State state) {
    std::vector<SimpleModel::Known*> some;
    for (auto& known : model_.live) {
      if (known.state == state) some.push_back(&known);
    }
    return some.empty() ? nullptr : some[Pick(some.size())];
  }

  void EndOne() {
    const auto* known = One(Agenda::State::kRunning);
    if (known == nullptr || known->resumed_early) return;
    const EntryPtr entry = known->entry;
    agenda_.Finish(entry, Pick(5) != 0 && !entry->reason, now_);
    Ended(entry);
  }

  void ParkOne() {
    auto* known = One(Agenda::State::kRunning);
    if (known == nullptr) return;
    const bool early = known->resumed_early;
    EQUAL(agenda_.Park(known->entry, now_), early);
    known->state = early ? Agenda::State::kResumed : Agenda::State::kParked;
    known->resumed_early = false;
  }

  void ResumeOne() {
    if (auto* running = Pick(4) == 0 ? One(Agenda::State::kRunning) : nullptr) {
      CHECK(!agenda_.Resume(running->entry));
      // It will park, and be resumed at once.
      running->resumed_early = true;
      EQUAL(agenda_.Park(running->entry, now_), true);
      running->resumed_early = false;
      running->state = Agenda::State::kResumed;
      return;
    }
    auto* known = One(Agenda::State::kParked);
    if (known == nullptr) return;
    CHECK(agenda_.Resume(known->entry));
    known->state = Agenda::State::kResumed;
  }

  void Cancel(uint64_t kind) {
    const uint64_t wanted = 1 + Pick(19);
    const uint64_t environment = Pick(3);
    const bool by_environment = kind == 99 && Pick(10) == 0;
    for (const EntryPtr& entry : agenda_.Matching([&](const Task& task) {
           return by_environment ? task.environment == environment : task.cancel_id == wanted;
         })) {
      Stop(entry);
    }
  }

  void ExpireDeadlines() {
    while (const EntryPtr entry = agenda_.Overdue(now_)) {
      CHECK(*entry->task->deadline <= now_);
      Stop(entry);
    }
    if (const auto next = agenda_.NextDeadline()) CHECK(*next > now_);
  }

  void Stop(const EntryPtr& entry) {
    CHECK(entry->state == model_.Of(entry).state);
    cancelled_.insert(entry->number);
    if (entry->state != Agenda::State::kWaiting) {
      entry->reason = Failure{"cancelled", ""};
      return;
    }
    agenda_.Withdraw(entry);
    Ended(entry);
  }

  void Ended(const EntryPtr& entry) {
    CHECK(entry->state == Agenda::State::kEnded);
    CHECK(++model_.Of(entry).task->ends == 1);
    ++ended_;
    cancelled_.erase(entry->number);
    model_.Drop(entry);
  }

  void CheckCounts() {
    EQUAL(agenda_.waiting(), model_.Count(Agenda::State::kWaiting));
    EQUAL(agenda_.running(), model_.Count(Agenda::State::kRunning));
    if (++checks_ % 64 != 0) return;
    const Agenda::Stats stats = agenda_.GetStats();
    EQUAL(stats.parked, model_.Count(Agenda::State::kParked));
  }

  const FairQueue::Options order_ = {.share = 4, .age = {2ms, 500us}, .horizon = 5ms};
  Agenda agenda_{order_};
  SimpleModel model_{order_};
  std::mt19937_64 random_;
  Time now_ = Time(1h);
  std::set<uint64_t> cancelled_;
  uint64_t taken_ = 0;
  uint64_t ended_ = 0;
  uint64_t checks_ = 0;
};

TEST("random steps: nothing lost, nothing twice, in order, within bounds") {
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    Walk walk(seed);
    const int before = Failures();
    for (int i = 0; i < Steps(2'000'000) / 4 && Failures() == before; ++i) walk.Step();
    if (Failures() == before) walk.Finish();
  }
}
END;

// ---- Virtual time: threads that are always exactly as fast as said.

class Simulation {
 public:
  explicit Simulation(size_t threads) : threads_(threads) {}

  struct Finished {
    std::shared_ptr<StubTask> task;
    Time submitted, started, ended;
  };

  Time now() const { return now_; }
  std::vector<Finished> finished;
  /// Called after each end: closed loops submit their next one.
  std::function<void(const Finished&)> on_end = [](const Finished&) {};

  void Submit(const std::shared_ptr<StubTask>& task, Clock::duration takes) {
    const EntryPtr entry = agenda_.Add(task, now_);
    takes_[entry->number] = takes;
  }
  void At(Time time, std::function<void()> event) { events_.emplace(time, std::move(event)); }

  void RunUntil(Time end) {
    for (;;) {
      while (running_ < threads_) {
        const EntryPtr entry = agenda_.Next(now_);
        if (entry == nullptr) break;
        ++running_;
        At(now_ + takes_.at(entry->number), [this, entry] { End(entry); });
      }
      if (events_.empty() || events_.begin()->first > end) return;
      const auto node = events_.extract(events_.begin());
      now_ = std::max(now_, node.key());
      node.mapped()();
    }
  }

 private:
  void End(const EntryPtr& entry) {
    --running_;
    agenda_.Finish(entry, true, now_);
    finished.push_back(
        {std::static_pointer_cast<StubTask>(entry->task), entry->submitted, entry->started, now_});
    on_end(finished.back());
  }

  size_t threads_;
  Agenda agenda_;
  Time now_ = Time(1h);
  size_t running_ = 0;
  std::multimap<Time, std::function<void()>> events_;
  std::map<uint64_t, Clock::duration> takes_;
};

TEST("a single request of one model does not wait for a thousand of another") {
  Simulation simulation(2);
  for (int i = 0; i < 1000; ++i) simulation.Submit(MakeTask(Priority::kRoutine, 1), 50ms);
  simulation.RunUntil(simulation.now() + 1s);
  const Time submitted = simulation.now();
  auto single = MakeTask(Priority::kRoutine, 2);
  simulation.Submit(single, 50ms);
  simulation.RunUntil(submitted + 200ms);
  const auto found = std::find_if(simulation.finished.begin(), simulation.finished.end(),
                                  [&](const auto& f) { return f.task == single; });
  CHECK(found != simulation.finished.end());
  if (found != simulation.finished.end()) CHECK(found->started - submitted <= 50ms);
}
END;

TEST("models share time, not turns") {
  Simulation simulation(1);
  for (int i = 0; i < 400; ++i) simulation.Submit(MakeTask(Priority::kRoutine, 1), 40ms);
  for (int i = 0; i < 8000; ++i) simulation.Submit(MakeTask(Priority::kRoutine, 2), 2ms);
  simulation.RunUntil(simulation.now() + 10s);
  Clock::duration heavy{};
  Clock::duration light{};
  for (const auto& f : simulation.finished)
    (f.task->flow == 1 ? heavy : light) += f.ended - f.started;
  CHECK(std::chrono::abs(heavy - light) < 250ms);
}
END;

TEST("bulk gets its eighth of an engine that routine saturates, and routine the rest") {
  Simulation simulation(2);
  simulation.on_end = [&](const auto& f) {
    if (f.task->priority == Priority::kRoutine)
      simulation.Submit(MakeTask(Priority::kRoutine, 1), 10ms);
  };
  for (int i = 0; i < 8; ++i) simulation.Submit(MakeTask(Priority::kRoutine, 1), 10ms);
  for (int i = 0; i < 5000; ++i) simulation.Submit(MakeTask(Priority::kBulk, 1), 10ms);
  simulation.RunUntil(simulation.now() + 100s);
  double bulk = 0;
  for (const auto& f : simulation.finished) bulk += f.task->priority == Priority::kBulk;
  NEAR(bulk / static_cast<double>(simulation.finished.size()), 0.125, 0.01);
}
END;

TEST("what starves behind stats for a minute goes ahead, one start in eight") {
  Simulation simulation(1);
  simulation.on_end = [&](const auto& f) {
    if (f.task->priority == Priority::kStat) simulation.Submit(MakeTask(Priority::kStat, 1), 10ms);
  };
  for (int i = 0; i < 4; ++i) simulation.Submit(MakeTask(Priority::kStat, 1), 10ms);
  simulation.Submit(MakeTask(Priority::kBulk, 1), 10ms);
  const Time begin = simulation.now();
  simulation.RunUntil(begin + 59s);
  const auto bulk = [&] {
    return std::find_if(simulation.finished.begin(), simulation.finished.end(),
                        [](const auto& f) { return f.task->priority == Priority::kBulk; });
  };
  CHECK(bulk() == simulation.finished.end());
  simulation.RunUntil(begin + 61s);
  CHECK(bulk() != simulation.finished.end());
}
END;

TEST("a stat waits for no more than what runs, while routine and bulk saturate the engine") {
  constexpr auto kRun = 55ms;
  Simulation simulation(2);
  simulation.on_end = [&](const auto& f) {
    if (f.task->priority == Priority::kRoutine)
      simulation.Submit(MakeTask(Priority::kRoutine, 1), kRun);
  };
  for (int i = 0; i < 64; ++i) simulation.Submit(MakeTask(Priority::kRoutine, 1), kRun);
  for (int i = 0; i < 1000; ++i) simulation.Submit(MakeTask(Priority::kBulk, 2), kRun);
  std::mt19937_64 random(7);
  for (int i = 0; i < 500; ++i) {
    simulation.At(simulation.now() + std::chrono::microseconds(random() % 50'000'000),
                  [&] { simulation.Submit(MakeTask(Priority::kStat, 1), kRun); });
  }
  simulation.RunUntil(simulation.now() + 52s);
  std::vector<Clock::duration> latency;
  for (const auto& f : simulation.finished) {
    if (f.task->priority == Priority::kStat) latency.push_back(f.ended - f.submitted);
  }
  EQUAL(latency.size(), 500u);
  std::sort(latency.begin(), latency.end());
  CHECK(latency[latency.size() * 95 / 100] <= 2 * kRun);
}
END;

TEST(
    "a model is charged what it took, though its device was expected to take something else "
    "meanwhile") {
  Agenda agenda;
  const Time now(1h);
  const auto begin = [&](uint64_t flow, Clock::duration device) {
    auto task = MakeTask(Priority::kRoutine, flow);
    task->device = device;
    agenda.Add(task, now);
  };
  const auto started = [&] { return agenda.Next(now); };
  // Eight of one model start while nothing is known, and each takes a second of the device.
  for (int i = 0; i < 8; ++i) begin(1, 1s);
  std::vector<EntryPtr> running;
  for (int i = 0; i < 8; ++i) running.push_back(started());
  // The other model has had nothing yet, and has eight of half a second.
  for (int i = 0; i < 8; ++i) begin(1, 1s);
  for (int i = 0; i < 8; ++i) begin(2, 500ms);
  for (const EntryPtr& entry : running) agenda.Finish(entry, true, now);
  for (int i = 0; i < 8; ++i) {
    const EntryPtr entry = started();
    EQUAL(entry->task->flow, 2u);
    agenda.Finish(entry, true, now);
  }
}
END;

/// An agenda with two places, and what runs there.
struct Places {
  Agenda agenda{{}, 2};
  Time now = Clock::now();

  void Submit(uint32_t subject, Priority priority = Priority::kRoutine) {
    auto task = MakeTask(priority, 1);
    task->subject = subject;
    agenda.Add(task, now);
  }
  /// Starts what may start; whose it is.
  std::vector<uint32_t> Start() {
    std::vector<uint32_t> subjects;
    while (const EntryPtr entry = agenda.Next(now)) {
      running.push_back(entry);
      subjects.push_back(entry->task->subject);
    }
    return subjects;
  }
  /// They are told to stop, and go on.
  void BecomeLate(size_t count) {
    for (size_t i = 0; i < count; ++i) agenda.Told(running[i], now);
    now += 2s;
    for (size_t i = 0; i < count; ++i) CHECK(agenda.Late(now) != nullptr);
    CHECK(agenda.Late(now) == nullptr);
  }
  void End(size_t count) {
    for (size_t i = 0; i < count; ++i) agenda.Finish(running[i], false, now);
    running.erase(running.begin(), running.begin() + static_cast<ptrdiff_t>(count));
  }

  std::vector<EntryPtr> running;
};

using Subjects = std::vector<uint32_t>;

TEST("one subject has all places, and another one more at once") {
  Places places;
  for (int i = 0; i < 4; ++i) places.Submit(1);
  CHECK((places.Start() == Subjects{1, 1}));
  places.Submit(2);
  places.Submit(2);
  CHECK((places.Start() == Subjects{2}));
  places.Submit(3, Priority::kBulk);
  CHECK(places.Start().empty());
  places.Submit(1, Priority::kStat);
  CHECK((places.Start() == Subjects{1}));
  places.End(4);
  CHECK(places.Start().size() >= 2);
}
END;

TEST("a late run keeps its subject's share, and no place of others") {
  Places places;
  for (int i = 0; i < 4; ++i) places.Submit(1);
  CHECK((places.Start() == Subjects{1, 1}));
  places.BecomeLate(2);
  EQUAL(places.agenda.GetStats().late_runs, size_t{2});
  EQUAL(places.agenda.GetStats().flows.at(1).late_runs, size_t{2});
  CHECK(places.Start().empty());
  for (int i = 0; i < 4; ++i) places.Submit(2);
  CHECK((places.Start() == Subjects{2, 2}));
  places.End(1);
  EQUAL(places.agenda.GetStats().late_runs, size_t{1});
  CHECK(places.Start().empty());
  places.End(1);
  places.End(2);
  CHECK(places.Start().size() >= 2);
}
END;

TEST("late runs beyond the places take these away, but for one of whoever has none, and for stat") {
  Places places;
  for (uint32_t subject = 1; subject <= 2; ++subject) {
    places.Submit(subject);
    places.Submit(subject);
    EQUAL(places.Start().size(), size_t{2});
    std::ranges::reverse(places.running);
    places.BecomeLate(2);
  }
  places.Submit(3);
  places.Submit(3);
  CHECK((places.Start() == Subjects{3}));
  places.Submit(4);
  CHECK(places.Start().empty());
  places.Submit(4, Priority::kStat);
  CHECK((places.Start() == Subjects{4}));
}
END;

TEST("whoever told to stop ends in time, or waits for a device, is not late") {
  Places places;
  places.Submit(1);
  places.Submit(1);
  places.Start();
  for (const EntryPtr& entry : places.running) places.agenda.Told(entry, places.now);
  places.agenda.Finish(places.running[0], false, places.now);
  places.agenda.Park(places.running[1], places.now);
  CHECK(places.agenda.NextLook().has_value());
  places.now += 2s;
  CHECK(places.agenda.Late(places.now) == nullptr);
  EQUAL(places.agenda.GetStats().late_runs, size_t{0});
}
END;

}  // namespace
