#include "graph/residence.h"

#include <atomic>
#include <latch>
#include <thread>

#include "check.h"

using namespace radserve;

namespace {

using State = Residence::State;
using PendingUse = Residence::PendingUse;

/// A pending use that counts how often it was resumed.
std::shared_ptr<PendingUse> Counting(int& resumed) {
  return std::make_shared<PendingUse>([&resumed] { ++resumed; });
}

/// A model that is unloaded.
void Away(Residence& residence) {
  CHECK(residence.BeginUnload(Clock::time_point::max()));
  CHECK(!residence.Unloaded());
}

TEST("a model in use is not unloaded, nor is one that was used since") {
  Residence residence;
  const auto before = Clock::now() - std::chrono::seconds(1);
  CHECK(residence.BeginUse());
  CHECK(!residence.UnusedSince());
  CHECK(!residence.BeginUnload(Clock::time_point::max()));
  CHECK(!residence.EndUse());
  CHECK(!residence.BeginUnload(before));
  CHECK(residence.BeginUnload(*residence.UnusedSince()));
  CHECK(!residence.BeginUse());
  CHECK(!residence.Unloaded());
  CHECK(residence.Get().state == State::kUnloaded);
}
END;

TEST("the first who waits brings the model back; all enter when it comes") {
  Residence residence;
  Away(residence);
  int resumed = 0;
  const auto first = Counting(resumed);
  const auto second = Counting(resumed);
  CHECK(residence.Wait(first));
  CHECK(!residence.Wait(second));
  CHECK(residence.HasPending());
  EQUAL(resumed, 0);
  residence.Loaded(std::chrono::seconds(2));
  EQUAL(resumed, 2);
  CHECK(first->entered && second->entered);
  CHECK(residence.Get().state == State::kLoaded && residence.Get().loads == 1);
  // Nobody can unload it before those who waited have used it.
  CHECK(!residence.BeginUnload(Clock::time_point::max()));
  CHECK(!residence.EndUse());
  CHECK(!residence.EndUse());
  CHECK(residence.BeginUnload(Clock::time_point::max()));
}
END;

TEST("who waits where the model is here enters at once") {
  Residence residence;
  int resumed = 0;
  const auto pending = Counting(resumed);
  CHECK(!residence.Wait(pending));
  EQUAL(resumed, 1);
  CHECK(pending->entered && !residence.UnusedSince());
}
END;

TEST("a model that cannot come tells those who wait, and the next one asks again") {
  Residence residence;
  Away(residence);
  int resumed = 0;
  const auto pending = Counting(resumed);
  CHECK(residence.Wait(pending));
  residence.LoadFailed({"model_unavailable", "no room"});
  EQUAL(resumed, 1);
  CHECK(!pending->entered && pending->failure && pending->failure->message == "no room");
  CHECK(residence.Get().failure && residence.Get().state == State::kUnloaded);
  CHECK(residence.Wait(Counting(resumed)));
  residence.Loaded({});
  CHECK(!residence.Get().failure);
}
END;

TEST("who waits no longer is resumed once, and a model that nobody wants any more stays unloaded") {
  Residence residence;
  Away(residence);
  int resumed = 0;
  const auto pending = Counting(resumed);
  CHECK(residence.Wait(pending));
  residence.Drop(pending);
  residence.Drop(pending);
  EQUAL(resumed, 1);
  CHECK(!pending->entered && !pending->failure);
  CHECK(!residence.HasPending());
  CHECK(residence.Get().state == State::kUnloaded);
}
END;

TEST(
    "a model that is drained takes nobody new, is unloaded with its last use, and loaded for those "
    "who "
    "wait") {
  Residence residence;
  CHECK(residence.BeginUse());
  CHECK(residence.BeginUse());
  CHECK(residence.Drain());
  CHECK(!residence.BeginUse());
  int resumed = 0;
  const auto pending = Counting(resumed);
  CHECK(!residence.Wait(pending));
  CHECK(!residence.BeginUnload(Clock::time_point::max()));
  CHECK(!residence.EndUse());
  CHECK(residence.EndUse());
  CHECK(residence.BeginUnload(Clock::time_point::min()));
  EQUAL(resumed, 0);
  CHECK(residence.Unloaded());
  CHECK(residence.Get().state == State::kReloading);
  residence.Loaded({});
  CHECK(pending->entered);
}
END;

TEST(
    "sixteen threads use a model that is unloaded and loaded by turns: none uses it while it is "
    "unloaded, "
    "none "
    "waits for ever") {
  Residence residence;
  std::atomic<int> inside = 0;
  std::atomic<int> wrong = 0;
  std::atomic<bool> here = true;
  std::atomic<bool> done = false;
  // Stands for the thread for housekeeping.
  std::atomic<int> wanted = 0;
  std::jthread keeper([&] {
    while (!done) {
      if (residence.BeginUnload(Clock::time_point::max())) {
        if (inside != 0) ++wrong;
        here = false;
        if (residence.Unloaded()) ++wanted;
      }
      if (wanted.exchange(0) > 0 && residence.HasPending()) {
        here = true;
        residence.Loaded({});
      }
    }
  });
  const auto use = [&] {
    ++inside;
    if (!here) ++wrong;
    --inside;
    static_cast<void>(residence.EndUse());
  };
  {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < 16; ++thread) {
      threads.emplace_back([&, thread] {
        for (int i = 0; i < 200; ++i) {
          if (residence.BeginUse()) {
            use();
            continue;
          }
          std::latch resumed(1);
          const auto pending = std::make_shared<PendingUse>([&resumed] { resumed.count_down(); });
          if (residence.Wait(pending)) ++wanted;
          if ((thread + i) % 5 == 0) residence.Drop(pending);
          resumed.wait();
          if (pending->entered) use();
        }
      });
    }
  }
  done = true;
  EQUAL(wrong.load(), 0);
}
END;

}  // namespace
