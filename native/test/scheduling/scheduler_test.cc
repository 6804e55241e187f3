#include "scheduling/scheduler.h"

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <latch>
#include <mutex>
#include <random>
#include <semaphore>
#include <system_error>
#include <thread>

#include "check.h"
#include "steps.h"

using namespace radserve;
using namespace radserve::test;

namespace {

/// Stands for a model: runs `body`, keeps the outcome, opens a gate when done.
class FakeTask : public Task {
 public:
  explicit FakeTask(std::function<void(const TaskContext&)> body = [](const TaskContext&) {})
      : body_(std::move(body)) {}
  void Run(const TaskContext& context) override { body_(context); }
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
  bool EndsWithin(std::chrono::seconds time) { return done_.try_acquire_for(time); }

 private:
  std::function<void(const TaskContext&)> body_;
  std::string outcome_;
  std::atomic<int> calls_ = 0;
  std::binary_semaphore done_{0};
};

using TaskPtr = std::shared_ptr<FakeTask>;

/// Holds one thread of the scheduler until released.
struct Blocker {
  std::latch started{1};
  std::latch release{1};
  TaskPtr task = std::make_shared<FakeTask>([this](const TaskContext&) {
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
  return std::make_shared<FakeTask>([&started](const TaskContext& context) {
    std::binary_semaphore stopped(0);
    const std::stop_callback on_stop(context.stop(), [&] { stopped.release(); });
    started.count_down();
    stopped.acquire();
    throw std::runtime_error("stopped between two nodes");
  });
}

TEST("work runs and failures keep their code") {
  Scheduler scheduler(2);
  auto good = std::make_shared<FakeTask>();
  auto bad = std::make_shared<FakeTask>(
      [](const TaskContext&) { throw EngineError("output_invalid", "x"); });
  auto odd = std::make_shared<FakeTask>([](const TaskContext&) { throw std::runtime_error("x"); });
  for (const auto& task : {good, bad, odd}) scheduler.Submit(task);
  EQUAL(good->Outcome(), "done");
  EQUAL(bad->Outcome(), "output_invalid");
  EQUAL(odd->Outcome(), "internal");
}
END;

TEST("stat before routine before bulk, earliest deadline first") {
  Scheduler scheduler(1);
  Blocker blocker(scheduler);
  std::vector<std::string> order;
  std::vector<TaskPtr> tasks;
  const auto add = [&](const std::string& name, Priority priority, int seconds) {
    tasks.push_back(
        std::make_shared<FakeTask>([&order, name](const TaskContext&) { order.push_back(name); }));
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

TEST("cancel ends waiting work at once and stops running work") {
  Scheduler scheduler(1);
  std::latch started(1);
  const TaskPtr running = Endless(started);
  running->cancel_id = 5;
  scheduler.Submit(running);
  started.wait();
  auto waiting = std::make_shared<FakeTask>([](const TaskContext&) { CHECK(false); });
  waiting->cancel_id = 7;
  scheduler.Submit(waiting);
  scheduler.Cancel(7);
  EQUAL(waiting->Outcome(), "cancelled");
  scheduler.Cancel(5);
  EQUAL(running->Outcome(), "cancelled");
  scheduler.Cancel(5);
}
END;

TEST("the work of an environment goes with it") {
  Scheduler scheduler(1);
  std::latch started(1);
  const TaskPtr mine = Endless(started);
  mine->environment = 1;
  scheduler.Submit(mine);
  started.wait();
  auto other = std::make_shared<FakeTask>();
  other->environment = 2;
  scheduler.Submit(other);
  scheduler.CancelEnvironment(1);
  EQUAL(mine->Outcome(), "cancelled");
  EQUAL(other->Outcome(), "done");
}
END;

TEST("deadlines end waiting and running work") {
  Scheduler scheduler(1);
  std::latch started(1);
  const TaskPtr running = Endless(started);
  scheduler.Submit(running);
  started.wait();
  auto waiting = std::make_shared<FakeTask>([](const TaskContext&) { CHECK(false); });
  waiting->deadline = Clock::now() + std::chrono::milliseconds(5);
  scheduler.Submit(waiting);
  EQUAL(waiting->Outcome(), "deadline_exceeded");
  scheduler.CancelEnvironment(0);
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

TEST("deadlines hold after one that was waited for is gone") {
  Scheduler scheduler(1);
  // The next deadline comes before the one that was waited for, or behind it
  for (const int gone : {3'600'000, 10, 3'600'000}) {
    auto quick = std::make_shared<FakeTask>();
    quick->deadline = Clock::now() + std::chrono::milliseconds(gone);
    scheduler.Submit(quick);
    quick->Outcome();
    std::latch started(1);
    const TaskPtr slow = Endless(started);
    slow->deadline = Clock::now() + std::chrono::milliseconds(20);
    scheduler.Submit(slow);
    EQUAL(slow->Outcome(), "deadline_exceeded");
  }
}
END;

TEST("a request alone is wide, among many it is narrow") {
  Scheduler scheduler(2);
  bool alone = false;
  bool crowded = true;
  auto first =
      std::make_shared<FakeTask>([&](const TaskContext& context) { alone = context.Wide(); });
  scheduler.Submit(first);
  EQUAL(first->Outcome(), "done");
  Blocker blocker(scheduler);
  auto second =
      std::make_shared<FakeTask>([&](const TaskContext& context) { crowded = context.Wide(); });
  scheduler.Submit(second);
  EQUAL(second->Outcome(), "done");
  blocker.Release();
  CHECK(alone && !crowded);
}
END;

TEST("stop ends everything and refuses more") {
  Scheduler scheduler(1);
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
  Scheduler scheduler(1);
  std::function<void()> resume;
  std::latch parked(1);
  int runs = 0;
  auto task = std::make_shared<FakeTask>([&](const TaskContext& context) {
    if (++runs == 2) return;
    resume = context.Park();
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
  Scheduler scheduler(1);
  int runs = 0;
  auto early = std::make_shared<FakeTask>([&](const TaskContext& context) {
    if (++runs == 1) context.Park()();
  });
  auto failing = std::make_shared<FakeTask>([](const TaskContext& context) {
    context.Park();
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
  Scheduler scheduler(1);
  std::latch parked(2);
  const auto make = [&parked](uint64_t id) {
    auto on_stop = std::make_shared<std::optional<std::stop_callback<std::function<void()>>>>();
    auto task = std::make_shared<FakeTask>([&parked, on_stop](const TaskContext& context) {
      if (*on_stop) {
        // It holds the task, which holds it.
        on_stop->reset();
        return;
      }
      on_stop->emplace(context.stop(), context.Park());
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
  auto task =
      std::make_shared<FakeTask>([&device, &gone, kind, parked](const TaskContext& context) {
        CHECK(!gone || *parked || context.stop().stop_requested());
        if (kind == 0) throw EngineError("output_invalid", "x");
        if (kind != 1 || *parked) return;
        *parked = true;
        device.Take(context.Park());
      });
  task->priority = static_cast<Priority>(random() % 3);
  task->flow = random() % 3;
  if (random() % 3 == 0) task->deadline = Clock::now() + std::chrono::microseconds(random() % 600);
  return task;
}

TEST("many submitters, cancellers, deadlines and parked tasks at once") {
  Device device;
  Scheduler scheduler(2);
  scheduler.SetStartLimit(1, 2);
  const int rounds = Steps(8000);
  std::vector<std::jthread> threads;
  for (uint64_t t = 1; t <= 3; ++t) {
    threads.emplace_back([&scheduler, &device, t, rounds] {
      std::mt19937_64 random(t);
      for (int round = 0; round < rounds; ++round) {
        // Once Cancel has returned, none of its tasks begins without knowing.
        std::atomic<bool> gone = false;
        std::vector<TaskPtr> tasks;
        const uint64_t id = t * 1'000'000 + static_cast<uint64_t>(round);
        // Often one task alone.
        const int count = random() % 2 == 0 ? 1 : 30;
        for (int i = 0; i < count; ++i) {
          tasks.push_back(RandomTask(random, device, gone));
          tasks.back()->cancel_id = id;
          tasks.back()->environment = id;
          if (CodeOf([&] { scheduler.Submit(tasks.back()); }) != "none") tasks.pop_back();
        }
        if (random() % 2 == 0) scheduler.Cancel(id);
        if (random() % 2 == 0)
          scheduler.CancelEnvironment(id);
        else
          scheduler.Cancel(id);
        gone = true;
        for (const auto& task : tasks) {
          const std::string outcome = task->Outcome();
          CHECK(outcome == "done" || outcome == "cancelled" || outcome == "deadline_exceeded" ||
                outcome == "output_invalid");
        }
      }
    });
  }
  threads.clear();
  const Scheduler::Stats stats = scheduler.GetStats();
  EQUAL(stats.running + stats.parked + stats.queued[0] + stats.queued[1] + stats.queued[2], 0u);
}
END;

TEST("what the end of a spare thread's run lets start is started by one that waits") {
  constexpr uint64_t kBounded = 1;
  for (int round = 0; round < 200; ++round) {
    Scheduler scheduler(1, true);
    scheduler.SetStartLimit(kBounded, 1);
    const auto of = [](uint32_t subject, uint64_t flow, const TaskPtr& task) {
      task->subject = subject;
      task->flow = flow;
      return task;
    };
    std::latch held(1);
    std::latch release(1);
    Blocker usual(scheduler);
    // Of somebody who has no other, so that it has a thread beside the only place.
    const TaskPtr beside =
        of(2, kBounded, std::make_shared<FakeTask>([&held, &release](const TaskContext&) {
             held.count_down();
             release.wait();
           }));
    scheduler.Submit(beside);
    held.wait();
    const TaskPtr waiting = of(2, kBounded, std::make_shared<FakeTask>());
    scheduler.Submit(waiting);
    usual.Release();
    // The usual thread has run this, and goes to sleep.
    const TaskPtr other = of(3, 2, std::make_shared<FakeTask>());
    scheduler.Submit(other);
    EQUAL(other->Outcome(), "done");
    std::this_thread::yield();
    release.count_down();
    EQUAL(beside->Outcome(), "done");
    CHECK(waiting->EndsWithin(std::chrono::seconds(30)));
  }
}
END;

TEST("runs that do not stop keep their own subject waiting, and nobody else") {
  Scheduler scheduler(2, true);
  std::latch release(1);
  std::latch started(2);
  std::vector<TaskPtr> held;
  const auto submit = [&](uint32_t subject, std::function<void(const TaskContext&)> body) {
    auto task = std::make_shared<FakeTask>(std::move(body));
    task->flow = 1;
    task->subject = subject;
    scheduler.Submit(task);
    return task;
  };
  for (uint64_t i = 0; i < 2; ++i) {
    held.push_back(std::make_shared<FakeTask>([&](const TaskContext&) {
      started.count_down();
      release.wait();
    }));
    held.back()->flow = 1;
    held.back()->subject = 1;
    held.back()->cancel_id = 7;
    scheduler.Submit(held.back());
  }
  started.wait();
  // The place of others, before the runs are late.
  EQUAL(submit(2, [](const TaskContext&) {})->Outcome(), "done");
  scheduler.Cancel(7);
  while (scheduler.GetStats().late_runs < 2) std::this_thread::yield();
  // Two at once have both places now.
  std::latch together(2);
  std::vector<TaskPtr> others;
  for (uint32_t subject : {2, 3}) {
    others.push_back(submit(subject, [&](const TaskContext&) { together.arrive_and_wait(); }));
  }
  for (const TaskPtr& task : others) EQUAL(task->Outcome(), "done");
  std::atomic<bool> ran = false;
  const TaskPtr own = submit(1, [&](const TaskContext&) { ran = true; });
  EQUAL(submit(2, [](const TaskContext&) {})->Outcome(), "done");
  CHECK(!ran);
  release.count_down();
  for (const TaskPtr& task : held) EQUAL(task->Outcome(), "cancelled");
  EQUAL(own->Outcome(), "done");
  EQUAL(scheduler.GetStats().late_runs, size_t{0});
}
END;

/// While it lives the system gives this process no thread: none has so much room for its stack.
class NoThreads {
 public:
  NoThreads() {
    pthread_getattr_default_np(&usual_);
    pthread_attr_t huge;
    pthread_getattr_default_np(&huge);
    CHECK(pthread_attr_setstacksize(&huge, size_t{1} << 47) == 0);
    CHECK(pthread_setattr_default_np(&huge) == 0);
    pthread_attr_destroy(&huge);
  }
  ~NoThreads() {
    pthread_setattr_default_np(&usual_);
    pthread_attr_destroy(&usual_);
  }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;

 private:
  pthread_attr_t usual_{};
};

TEST("where the system gives no thread, work waits for those that are there") {
  Scheduler scheduler(1, true);
  Blocker usual(scheduler);
  const auto stat = std::make_shared<FakeTask>();
  stat->priority = Priority::kStat;
  stat->subject = 2;
  {
    const NoThreads none;
    scheduler.Submit(stat);
  }
  usual.Release();
  CHECK(stat->EndsWithin(std::chrono::seconds(30)));
}
END;

TEST("a thread that ran late and cannot be replaced goes on") {
  Scheduler scheduler(1, true);
  std::latch release(1);
  std::latch started(1);
  const auto late = std::make_shared<FakeTask>([&](const TaskContext&) {
    started.count_down();
    release.wait();
  });
  late->cancel_id = 7;
  scheduler.Submit(late);
  started.wait();
  const NoThreads none;
  scheduler.Cancel(7);
  while (scheduler.GetStats().late_runs < 1) std::this_thread::yield();
  const auto next = std::make_shared<FakeTask>();
  scheduler.Submit(next);
  release.count_down();
  EQUAL(late->Outcome(), "cancelled");
  CHECK(next->EndsWithin(std::chrono::seconds(30)));
}
END;

TEST("a scheduler without any thread is refused") {
  const NoThreads none;
  bool refused = false;
  try {
    const Scheduler scheduler(2);
  } catch (const std::system_error&) {
    refused = true;
  }
  CHECK(refused);
}
END;

}  // namespace
