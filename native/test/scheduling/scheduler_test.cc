#include "scheduling/scheduler.h"

#include <atomic>
#include <latch>
#include <mutex>
#include <random>
#include <semaphore>
#include <thread>

#include "check.h"
#include "steps.h"

using namespace radserve;
using namespace radserve::test;

namespace {

/// Stands for a model: runs `body`, keeps the outcome, opens a gate when done.
class FakeTask : public Task {
 public:
  explicit FakeTask(std::function<void(const Lane&)> body = [](const Lane&) {}) : body_(std::move(body)) {}
  void Run(const Lane& lane) override { body_(lane); }
  bool MayRunOnCaller() const override { return may_run_on_caller; }
  void Done(const std::optional<Failure>& failure) noexcept override {
    outcome_ = failure ? failure->code : "done";
    ++calls_;
    done_.release();
  }
  std::string Outcome() {
    done_.acquire();
    CHECK(calls_ == 1);
    return outcome_;
  }

  bool may_run_on_caller = true;

 private:
  std::function<void(const Lane&)> body_;
  std::string outcome_;
  std::atomic<int> calls_ = 0;
  std::binary_semaphore done_{0};
};

using TaskPtr = std::shared_ptr<FakeTask>;

/// Holds one thread of the scheduler until released.
struct Blocker {
  std::latch started{1};
  std::latch release{1};
  TaskPtr task = std::make_shared<FakeTask>([this](const Lane&) {
    started.count_down();
    release.wait();
  });
  explicit Blocker(Scheduler& scheduler) {
    scheduler.Submit(task);
    started.wait();
  }
  void Release() {
    release.count_down();
    EQUAL(task->Outcome(), "done");
  }
};

/// Runs until it is asked to stop.
TaskPtr Endless(std::latch& started) {
  return std::make_shared<FakeTask>([&started](const Lane& lane) {
    std::binary_semaphore stopped(0);
    const std::stop_callback on_stop(lane.stop(), [&] { stopped.release(); });
    started.count_down();
    stopped.acquire();
    throw std::runtime_error("stopped between two nodes");
  });
}

TEST("work runs and failures keep their code") {
  Scheduler scheduler({.threads = 2, .items = 100, .bytes = 1 << 20});
  auto good = std::make_shared<FakeTask>();
  auto bad = std::make_shared<FakeTask>([](const Lane&) { throw EngineError("output_invalid", "x"); });
  auto odd = std::make_shared<FakeTask>([](const Lane&) { throw std::runtime_error("x"); });
  for (const auto& task : {good, bad, odd}) scheduler.Submit(task);
  EQUAL(good->Outcome(), "done");
  EQUAL(bad->Outcome(), "output_invalid");
  EQUAL(odd->Outcome(), "internal");
}
END;

TEST("stat before routine before bulk, earliest deadline first") {
  Scheduler scheduler({.threads = 1, .items = 100, .bytes = 1 << 20});
  Blocker blocker(scheduler);
  std::vector<std::string> order;
  std::vector<TaskPtr> tasks;
  const auto add = [&](const std::string& name, Priority priority, int seconds) {
    tasks.push_back(std::make_shared<FakeTask>([&order, name](const Lane&) { order.push_back(name); }));
    tasks.back()->priority = priority;
    if (seconds > 0) tasks.back()->deadline = Clock::now() + std::chrono::seconds(seconds);
    scheduler.Submit(tasks.back());
  };
  add("bulk", Priority::kBulk, 0);
  add("late", Priority::kRoutine, 50);
  add("none", Priority::kRoutine, 0);
  add("far", Priority::kRoutine, 2000);
  add("soon", Priority::kRoutine, 40);
  add("stat", Priority::kStat, 0);
  blocker.Release();
  for (const auto& task : tasks) EQUAL(task->Outcome(), "done");
  CHECK((order == std::vector<std::string>{"stat", "soon", "late", "none", "far", "bulk"}));
}
END;

TEST("a full queue refuses, by number and by bytes") {
  Scheduler scheduler({.threads = 1, .items = 2, .bytes = 1000});
  Blocker blocker(scheduler);
  std::vector<TaskPtr> tasks;
  const auto submit = [&](size_t bytes) {
    tasks.push_back(std::make_shared<FakeTask>());
    tasks.back()->bytes = bytes;
    return CodeOf([&] { scheduler.Submit(tasks.back()); });
  };
  EQUAL(submit(5000), "none");  // Alone in the queue, it may be larger than the bound.
  EQUAL(submit(1), "overloaded");
  blocker.Release();
  EQUAL(tasks[0]->Outcome(), "done");
  Blocker again(scheduler);
  EQUAL(submit(1), "none");
  EQUAL(submit(1), "none");
  EQUAL(submit(1), "overloaded");
  EQUAL(scheduler.GetStats().refused, 2u);
  again.Release();
}
END;

TEST("cancel ends waiting work at once and stops running work") {
  Scheduler scheduler({.threads = 1, .items = 100, .bytes = 1 << 20});
  std::latch started(1);
  const TaskPtr running = Endless(started);
  running->cancel_id = 5;
  scheduler.Submit(running);
  started.wait();
  auto waiting = std::make_shared<FakeTask>([](const Lane&) { CHECK(false); });
  waiting->cancel_id = 7;
  scheduler.Submit(waiting);
  scheduler.Cancel(7);
  EQUAL(waiting->Outcome(), "cancelled");
  scheduler.Cancel(5);
  EQUAL(running->Outcome(), "cancelled");
  scheduler.Cancel(5);
}
END;

TEST("an owner's work goes with the owner") {
  Scheduler scheduler({.threads = 1, .items = 100, .bytes = 1 << 20});
  std::latch started(1);
  const TaskPtr mine = Endless(started);
  mine->owner = 1;
  scheduler.Submit(mine);
  started.wait();
  auto other = std::make_shared<FakeTask>();
  other->owner = 2;
  scheduler.Submit(other);
  scheduler.CancelOwner(1);
  EQUAL(mine->Outcome(), "cancelled");
  EQUAL(other->Outcome(), "done");
}
END;

TEST("deadlines end waiting and running work") {
  Scheduler scheduler({.threads = 1, .items = 100, .bytes = 1 << 20});
  std::latch started(1);
  const TaskPtr running = Endless(started);
  scheduler.Submit(running);
  started.wait();
  auto waiting = std::make_shared<FakeTask>([](const Lane&) { CHECK(false); });
  waiting->deadline = Clock::now() + std::chrono::milliseconds(5);
  scheduler.Submit(waiting);
  EQUAL(waiting->Outcome(), "deadline_exceeded");
  scheduler.CancelOwner(0);
  EQUAL(running->Outcome(), "cancelled");
  std::latch again(1);
  const TaskPtr slow = Endless(again);
  slow->deadline = Clock::now() + std::chrono::milliseconds(20);
  scheduler.Submit(slow);
  EQUAL(slow->Outcome(), "deadline_exceeded");
  auto late = std::make_shared<FakeTask>();
  late->deadline = Clock::now() - std::chrono::milliseconds(1);
  EQUAL(CodeOf([&] { scheduler.Submit(late); }), "deadline_exceeded");
}
END;

TEST("a request alone is wide, among many it is narrow") {
  Scheduler scheduler({.threads = 2, .items = 100, .bytes = 1 << 20});
  bool alone = false;
  bool crowded = true;
  auto first = std::make_shared<FakeTask>([&](const Lane& lane) { alone = lane.Wide(); });
  scheduler.Submit(first);
  EQUAL(first->Outcome(), "done");
  Blocker blocker(scheduler);
  auto second = std::make_shared<FakeTask>([&](const Lane& lane) { crowded = lane.Wide(); });
  scheduler.Submit(second);
  EQUAL(second->Outcome(), "done");
  blocker.Release();
  CHECK(alone && !crowded);
}
END;

TEST("stop ends everything and refuses more") {
  Scheduler scheduler({.threads = 1, .items = 100, .bytes = 1 << 20});
  std::latch started(1);
  const TaskPtr running = Endless(started);
  scheduler.Submit(running);
  started.wait();
  auto waiting = std::make_shared<FakeTask>();
  scheduler.Submit(waiting);
  CHECK(scheduler.Stop(std::chrono::seconds(60)));
  EQUAL(running->Outcome(), "shutting_down");
  EQUAL(waiting->Outcome(), "shutting_down");
  EQUAL(CodeOf([&] { scheduler.Submit(std::make_shared<FakeTask>()); }), "shutting_down");
  CHECK(scheduler.Stop(std::chrono::seconds(1)));
}
END;

// ---- Runs on the caller's thread.

constexpr auto kShort = std::chrono::seconds(10);

/// A scheduler that knows tasks of flow 0 to be short, and has nothing to do.
struct Learned {
  explicit Learned(int threads) : scheduler({.threads = threads, .items = 100, .bytes = 1 << 20}) {
    for (int i = 0; i < 16; ++i) {
      auto task = std::make_shared<FakeTask>();
      scheduler.Submit(task);
      EQUAL(task->Outcome(), "done");
    }
  }
  /// One that is held, as the caller expects.
  void Hold(const TaskPtr& task) { CHECK(scheduler.SubmitHeld(task, kShort)); }
  void NotHeld(const TaskPtr& task, Clock::duration limit) {
    CHECK(!scheduler.SubmitHeld(task, limit));
    EQUAL(task->Outcome(), "done");
  }

  Scheduler scheduler;
};

TEST("a held task runs on the caller's thread, wide, and counts like any other") {
  Learned learned(2);
  bool wide = false;
  std::thread::id where;
  auto task = std::make_shared<FakeTask>([&](const Lane& lane) {
    wide = lane.Wide();
    where = std::this_thread::get_id();
  });
  learned.Hold(task);
  EQUAL(learned.scheduler.GetStats().queued[1], 1u);
  learned.scheduler.RunHeld(task->owner);
  CHECK(wide && where == std::this_thread::get_id());
  EQUAL(task->Outcome(), "done");
  const Scheduler::Stats stats = learned.scheduler.GetStats();
  EQUAL(stats.completed, 17u);
  EQUAL(stats.running + stats.queued[1], 0u);
  EQUAL(stats.flows.at(0).started[1], 17u);
}
END;

TEST("only short work that has been learned, and that asks for it, is held") {
  Learned learned(2);
  auto unknown = std::make_shared<FakeTask>();
  unknown->flow = 7;
  auto larger = std::make_shared<FakeTask>();
  larger->bytes = 1000;
  auto shy = std::make_shared<FakeTask>();
  shy->may_run_on_caller = false;
  for (const auto& task : {unknown, larger, shy}) learned.NotHeld(task, kShort);
  learned.NotHeld(std::make_shared<FakeTask>(), std::chrono::nanoseconds(1));
  Blocker blocker(learned.scheduler);
  learned.NotHeld(std::make_shared<FakeTask>(), kShort);
  blocker.Release();
}
END;

TEST("nothing is held until it has run eight times") {
  Scheduler scheduler({.threads = 1, .items = 100, .bytes = 1 << 20});
  for (int run = 0; run < 10; ++run) {
    auto task = std::make_shared<FakeTask>();
    EQUAL(scheduler.SubmitHeld(task, kShort), run >= 8);
    scheduler.RunHeld(0);
    EQUAL(task->Outcome(), "done");
  }
}
END;

TEST("what has parked is not held by the time that it spent on threads") {
  Scheduler scheduler({.threads = 1, .items = 100, .bytes = 1 << 20});
  for (int i = 0; i < 17; ++i) {
    int runs = 0;
    auto task = std::make_shared<FakeTask>([&runs](const Lane& lane) {
      if (++runs == 1) lane.Park()();
    });
    CHECK(!scheduler.SubmitHeld(task, kShort));
    EQUAL(task->Outcome(), "done");
  }
}
END;

TEST("what comes while a task is held sends both to the threads") {
  for (int threads : {1, 2}) {
    Learned learned(threads);
    const auto caller = std::this_thread::get_id();
    std::latch both(2);
    const auto body = [&both, caller, threads](const Lane&) {
      CHECK(std::this_thread::get_id() != caller);
      if (threads == 2) both.arrive_and_wait();
    };
    auto first = std::make_shared<FakeTask>(body);
    auto second = std::make_shared<FakeTask>(body);
    learned.Hold(first);
    CHECK(!learned.scheduler.SubmitHeld(second, kShort));
    EQUAL(first->Outcome(), "done");
    EQUAL(second->Outcome(), "done");
    learned.scheduler.RunHeld(0);
  }
}
END;

TEST("a task of another owner is left alone") {
  Learned learned(1);
  auto task = std::make_shared<FakeTask>();
  task->owner = 3;
  learned.Hold(task);
  learned.scheduler.RunHeld(4);
  EQUAL(learned.scheduler.GetStats().queued[1], 1u);
  learned.scheduler.RunHeld(3);
  EQUAL(task->Outcome(), "done");
}
END;

TEST("what comes while a held task runs goes to a thread at once") {
  Learned learned(2);
  auto second = std::make_shared<FakeTask>([](const Lane& lane) { CHECK(!lane.Wide()); });
  auto first = std::make_shared<FakeTask>([&](const Lane& lane) {
    CHECK(!learned.scheduler.SubmitHeld(second, kShort));
    EQUAL(second->Outcome(), "done");
    CHECK(lane.Wide());
  });
  learned.Hold(first);
  learned.scheduler.RunHeld(0);
  EQUAL(first->Outcome(), "done");
}
END;

TEST("a held task that runs takes the place of a thread") {
  Learned learned(1);
  std::atomic<bool> ended = false;
  auto second = std::make_shared<FakeTask>([&](const Lane&) { CHECK(ended); });
  auto first = std::make_shared<FakeTask>([&](const Lane&) {
    learned.scheduler.Submit(second);
    // Time for a thread that does not wait its turn.
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    ended = true;
  });
  learned.Hold(first);
  learned.scheduler.RunHeld(0);
  EQUAL(first->Outcome(), "done");
  EQUAL(second->Outcome(), "done");
}
END;

TEST("a held task is cancelled, expires and is stopped like any that waits") {
  Learned learned(2);
  const auto held = [&] {
    auto task = std::make_shared<FakeTask>([](const Lane&) { CHECK(false); });
    task->cancel_id = 5;
    task->owner = 6;
    return task;
  };
  auto cancelled = held();
  learned.Hold(cancelled);
  learned.scheduler.Cancel(5);
  EQUAL(cancelled->Outcome(), "cancelled");
  learned.scheduler.RunHeld(6);
  auto owned = held();
  learned.Hold(owned);
  learned.scheduler.CancelOwner(6);
  EQUAL(owned->Outcome(), "cancelled");
  auto late = held();
  late->deadline = Clock::now() + std::chrono::milliseconds(5);
  learned.Hold(late);
  EQUAL(late->Outcome(), "deadline_exceeded");
  learned.scheduler.RunHeld(6);
  auto stopped = held();
  learned.Hold(stopped);
  CHECK(learned.scheduler.Stop(std::chrono::seconds(60)));
  EQUAL(stopped->Outcome(), "shutting_down");
  learned.scheduler.RunHeld(6);
  EQUAL(CodeOf([&] { learned.scheduler.SubmitHeld(held(), kShort); }), "shutting_down");
}
END;

TEST("a held task that runs is asked to stop, fails, and parks like any other") {
  Learned learned(2);
  std::latch started(1);
  const TaskPtr running = Endless(started);
  running->cancel_id = 5;
  learned.Hold(running);
  std::jthread canceller([&] {
    started.wait();
    learned.scheduler.Cancel(5);
  });
  learned.scheduler.RunHeld(0);
  EQUAL(running->Outcome(), "cancelled");
  std::latch again(1);
  const TaskPtr slow = Endless(again);
  slow->deadline = Clock::now() + std::chrono::milliseconds(20);
  learned.Hold(slow);
  learned.scheduler.RunHeld(0);
  EQUAL(slow->Outcome(), "deadline_exceeded");
  auto failing = std::make_shared<FakeTask>([](const Lane&) { throw EngineError("output_invalid", "x"); });
  learned.Hold(failing);
  learned.scheduler.RunHeld(0);
  EQUAL(failing->Outcome(), "output_invalid");
  const auto caller = std::this_thread::get_id();
  std::function<void()> resume;
  auto parked = std::make_shared<FakeTask>([&](const Lane& lane) {
    CHECK((std::this_thread::get_id() == caller) == !resume);
    if (!resume) resume = lane.Park();
  });
  learned.Hold(parked);
  learned.scheduler.RunHeld(0);
  EQUAL(learned.scheduler.GetStats().parked, 1u);
  resume();
  EQUAL(parked->Outcome(), "done");
}
END;

TEST("a scheduler that stops waits for a held task that runs") {
  Learned learned(2);
  std::latch started(1);
  const TaskPtr running = Endless(started);
  learned.Hold(running);
  std::jthread stopper([&] {
    started.wait();
    CHECK(learned.scheduler.Stop(std::chrono::seconds(60)));
    EQUAL(learned.scheduler.GetStats().running, 0u);
  });
  learned.scheduler.RunHeld(0);
  EQUAL(running->Outcome(), "shutting_down");
}
END;

/// Stands for a device: resumes what parked at it, in its own time, on its own thread.
class Device {
 public:
  void Take(std::function<void()> resume) {
    const std::lock_guard lock(mutex_);
    parked_.push_back(std::move(resume));
    arrived_.notify_one();
  }

 private:
  void Serve(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (arrived_.wait(lock, stop, [this] { return !parked_.empty(); })) {
      const auto resume = std::move(parked_.back());
      parked_.pop_back();
      lock.unlock();
      resume();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable_any arrived_;
  std::vector<std::function<void()>> parked_;
  std::jthread thread_{[this](const std::stop_token& stop) { Serve(stop); }};
};

TEST("a parked task gives its thread back and goes on when it is resumed") {
  Scheduler scheduler({.threads = 1, .items = 100, .bytes = 1 << 20});
  std::function<void()> resume;
  std::latch parked(1);
  int runs = 0;
  auto task = std::make_shared<FakeTask>([&](const Lane& lane) {
    if (++runs == 2) return;
    resume = lane.Park();
    parked.count_down();
  });
  scheduler.Submit(task);
  parked.wait();
  auto other = std::make_shared<FakeTask>();
  scheduler.Submit(other);
  EQUAL(other->Outcome(), "done");
  EQUAL(scheduler.GetStats().parked, 1u);
  resume();
  EQUAL(task->Outcome(), "done");
  EQUAL(runs, 2);
}
END;

TEST("a task may be resumed before its run has returned, and fail after it parked") {
  Scheduler scheduler({.threads = 1, .items = 100, .bytes = 1 << 20});
  int runs = 0;
  auto early = std::make_shared<FakeTask>([&](const Lane& lane) {
    if (++runs == 1) lane.Park()();
  });
  auto failing = std::make_shared<FakeTask>([](const Lane& lane) {
    lane.Park();
    throw EngineError("output_invalid", "x");
  });
  scheduler.Submit(early);
  scheduler.Submit(failing);
  EQUAL(early->Outcome(), "done");
  EQUAL(runs, 2);
  EQUAL(failing->Outcome(), "output_invalid");
}
END;

TEST("parked work is asked to stop, and ends when it is resumed") {
  Scheduler scheduler({.threads = 1, .items = 100, .bytes = 1 << 20});
  std::latch parked(2);
  const auto make = [&parked](uint64_t id) {
    auto on_stop = std::make_shared<std::optional<std::stop_callback<std::function<void()>>>>();
    auto task = std::make_shared<FakeTask>([&parked, on_stop](const Lane& lane) {
      if (*on_stop) {
        // It holds the task, which holds it.
        on_stop->reset();
        return;
      }
      on_stop->emplace(lane.stop(), lane.Park());
      parked.count_down();
    });
    task->cancel_id = id;
    return task;
  };
  const auto cancelled = make(3);
  const auto stopped = make(4);
  scheduler.Submit(cancelled);
  scheduler.Submit(stopped);
  parked.wait();
  scheduler.Cancel(3);
  EQUAL(cancelled->Outcome(), "cancelled");
  CHECK(scheduler.Stop(std::chrono::seconds(60)));
  EQUAL(stopped->Outcome(), "shutting_down");
}
END;

/// One of the random tasks below: runs, fails, or parks at the device and then runs.
TaskPtr RandomTask(std::mt19937_64& random, Device& device, const std::atomic<bool>& gone) {
  const uint64_t kind = random() % 4;
  auto parked = std::make_shared<bool>(false);
  auto task = std::make_shared<FakeTask>([&device, &gone, kind, parked](const Lane& lane) {
    CHECK(!gone || *parked || lane.stop().stop_requested());
    if (kind == 0) throw EngineError("output_invalid", "x");
    if (kind != 1 || *parked) return;
    *parked = true;
    device.Take(lane.Park());
  });
  task->priority = static_cast<Priority>(random() % 3);
  task->flow = random() % 3;
  if (random() % 3 == 0) task->deadline = Clock::now() + std::chrono::microseconds(random() % 600);
  return task;
}

TEST("many submitters, cancellers, deadlines, parked and held tasks at once") {
  Device device;
  Scheduler scheduler({.threads = 2, .items = 1000, .bytes = 1 << 20});
  scheduler.SetStartLimit(1, 2);
  const int rounds = Steps(8000);
  std::atomic<int> held = 0;
  std::vector<std::jthread> threads;
  for (uint64_t t = 1; t <= 3; ++t) {
    threads.emplace_back([&scheduler, &device, &held, t, rounds] {
      std::mt19937_64 random(t);
      for (int round = 0; round < rounds; ++round) {
        // Once Cancel has returned, none of its tasks begins without knowing.
        std::atomic<bool> gone = false;
        std::vector<TaskPtr> tasks;
        const uint64_t id = t * 1'000'000 + static_cast<uint64_t>(round);
        // Often one task alone, so that it is held.
        const int count = random() % 2 == 0 ? 1 : 30;
        for (int i = 0; i < count; ++i) {
          tasks.push_back(RandomTask(random, device, gone));
          tasks.back()->cancel_id = id;
          tasks.back()->owner = id;
          bool is_held = false;
          if (CodeOf([&] { is_held = scheduler.SubmitHeld(tasks.back(), kShort); }) != "none") {
            tasks.pop_back();
          } else if (is_held) {
            ++held;
          }
          if (random() % 8 == 0) scheduler.RunHeld(id);
        }
        const bool run_late = random() % 2 == 0;
        if (!run_late) scheduler.RunHeld(id);
        if (random() % 2 == 0) scheduler.Cancel(id);
        if (random() % 2 == 0)
          scheduler.CancelOwner(id);
        else
          scheduler.Cancel(id);
        gone = true;
        if (run_late) scheduler.RunHeld(id);
        for (const auto& task : tasks) {
          const std::string outcome = task->Outcome();
          CHECK(outcome == "done" || outcome == "cancelled" || outcome == "deadline_exceeded" ||
                outcome == "output_invalid");
        }
      }
    });
  }
  threads.clear();
  CHECK(held > rounds / 100);
  const Scheduler::Stats stats = scheduler.GetStats();
  EQUAL(stats.running + stats.parked + stats.queued[0] + stats.queued[1] + stats.queued[2], 0u);
}
END;

}  // namespace
