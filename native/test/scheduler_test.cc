#include "../scheduler.h"

#include <atomic>
#include <latch>
#include <semaphore>

#include "check.h"

using namespace radserve;
using namespace radserve::test;

namespace {

/// Stands for a model: runs `body`, keeps the outcome, opens a gate when done.
class FakeTask : public Task {
 public:
  explicit FakeTask(std::function<void(const Lane&)> body = [](const Lane&) {}) : body_(std::move(body)) {}
  void Run(const Lane& lane) override { body_(lane); }
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
  Scheduler scheduler({2, 100, 1 << 20});
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
  Scheduler scheduler({1, 100, 1 << 20});
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
  add("late", Priority::kRoutine, 2000);
  add("none", Priority::kRoutine, 0);
  add("soon", Priority::kRoutine, 1000);
  add("stat", Priority::kStat, 0);
  blocker.Release();
  for (const auto& task : tasks) EQUAL(task->Outcome(), "done");
  CHECK((order == std::vector<std::string>{"stat", "soon", "late", "none", "bulk"}));
}
END;

TEST("bulk is not starved: one start in eight goes to the oldest") {
  Scheduler scheduler({1, 100, 1 << 20});
  Blocker blocker(scheduler);
  std::vector<char> order;
  std::vector<TaskPtr> tasks;
  for (int i = 0; i < 21; ++i) {
    const bool bulk = i == 0;
    tasks.push_back(
        std::make_shared<FakeTask>([&order, bulk](const Lane&) { order.push_back(bulk ? 'b' : 's'); }));
    tasks.back()->priority = bulk ? Priority::kBulk : Priority::kStat;
    scheduler.Submit(tasks.back());
  }
  blocker.Release();
  for (const auto& task : tasks) EQUAL(task->Outcome(), "done");
  EQUAL(std::find(order.begin(), order.end(), 'b') - order.begin(), 6);
}
END;

TEST("a full queue refuses, by number and by bytes") {
  Scheduler scheduler({1, 2, 1000});
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
  Scheduler scheduler({1, 100, 1 << 20});
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
  Scheduler scheduler({1, 100, 1 << 20});
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
  Scheduler scheduler({1, 100, 1 << 20});
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
  Scheduler scheduler({2, 100, 1 << 20});
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
  Scheduler scheduler({1, 100, 1 << 20});
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

TEST("many submitters, cancellers and deadlines at once") {
  Scheduler scheduler({2, 1000, 1 << 20});
  std::vector<std::jthread> threads;
  for (uint64_t t = 1; t <= 3; ++t) {
    threads.emplace_back([&scheduler, t] {
      std::vector<TaskPtr> tasks;
      for (int i = 0; i < 100; ++i) {
        tasks.push_back(std::make_shared<FakeTask>());
        tasks.back()->cancel_id = t;
        tasks.back()->owner = t;
        if (i % 3 == 0) tasks.back()->deadline = Clock::now() + std::chrono::microseconds(300);
        if (CodeOf([&] { scheduler.Submit(tasks.back()); }) != "none") tasks.pop_back();
        if (i % 10 == 9) scheduler.Cancel(t);
      }
      for (const auto& task : tasks) {
        const std::string outcome = task->Outcome();
        CHECK(outcome == "done" || outcome == "cancelled" || outcome == "deadline_exceeded");
      }
    });
  }
  threads.clear();
  EQUAL(scheduler.GetStats().running, 0u);
}
END;

}  // namespace
