#include "engine/residence.h"

#include <atomic>
#include <latch>
#include <thread>

#include "check.h"

using namespace radserve;

namespace {

using State = Residence::State;
using Waiter = Residence::Waiter;

/// A waiter that counts how often it was resumed.
std::shared_ptr<Waiter> Counting(int& resumed) {
  return std::make_shared<Waiter>([&resumed] { ++resumed; });
}

/// A model that has left.
void Away(Residence& residence) {
  CHECK(residence.BeginLeaving(Clock::time_point::max()));
  CHECK(!residence.Left());
}

TEST("a model in use does not leave, and one that was used since neither") {
  Residence residence;
  const auto before = Clock::now() - std::chrono::seconds(1);
  CHECK(residence.Enter());
  CHECK(!residence.UnusedSince());
  CHECK(!residence.BeginLeaving(Clock::time_point::max()));
  CHECK(!residence.Exit());
  CHECK(!residence.BeginLeaving(before));
  CHECK(residence.BeginLeaving(*residence.UnusedSince()));
  CHECK(!residence.Enter());
  CHECK(!residence.Left());
  CHECK(residence.Get().state == State::kAway);
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
  CHECK(residence.StillWanted());
  EQUAL(resumed, 0);
  residence.Came(std::chrono::seconds(2));
  EQUAL(resumed, 2);
  CHECK(first->entered && second->entered);
  CHECK(residence.Get().state == State::kHere && residence.Get().loads == 1);
  // Nobody can take it away before those who waited have used it.
  CHECK(!residence.BeginLeaving(Clock::time_point::max()));
  CHECK(!residence.Exit());
  CHECK(!residence.Exit());
  CHECK(residence.BeginLeaving(Clock::time_point::max()));
}
END;

TEST("who waits where the model is here enters at once") {
  Residence residence;
  int resumed = 0;
  const auto waiter = Counting(resumed);
  CHECK(!residence.Wait(waiter));
  EQUAL(resumed, 1);
  CHECK(waiter->entered && !residence.UnusedSince());
}
END;

TEST("a model that cannot come tells those who wait, and the next one asks again") {
  Residence residence;
  Away(residence);
  int resumed = 0;
  const auto waiter = Counting(resumed);
  CHECK(residence.Wait(waiter));
  residence.CouldNotCome({"model_unavailable", "no room"});
  EQUAL(resumed, 1);
  CHECK(!waiter->entered && waiter->failure && waiter->failure->message == "no room");
  CHECK(residence.Get().failure && residence.Get().state == State::kAway);
  CHECK(residence.Wait(Counting(resumed)));
  residence.Came({});
  CHECK(!residence.Get().failure);
}
END;

TEST("who waits no longer is resumed once, and a model that nobody wants any more stays away") {
  Residence residence;
  Away(residence);
  int resumed = 0;
  const auto waiter = Counting(resumed);
  CHECK(residence.Wait(waiter));
  residence.Drop(waiter);
  residence.Drop(waiter);
  EQUAL(resumed, 1);
  CHECK(!waiter->entered && !waiter->failure);
  CHECK(!residence.StillWanted());
  CHECK(residence.Get().state == State::kAway);
}
END;

TEST(
    "a model that is drained takes nobody new, leaves with its last use, and comes back for those who wait") {
  Residence residence;
  CHECK(residence.Enter());
  CHECK(residence.Enter());
  CHECK(residence.Drain());
  CHECK(!residence.Enter());
  int resumed = 0;
  const auto waiter = Counting(resumed);
  CHECK(!residence.Wait(waiter));
  CHECK(!residence.BeginLeaving(Clock::time_point::max()));
  CHECK(!residence.Exit());
  CHECK(residence.Exit());
  CHECK(residence.BeginLeaving(Clock::time_point::min()));
  EQUAL(resumed, 0);
  CHECK(residence.Left());
  CHECK(residence.Get().state == State::kReturning);
  residence.Came({});
  CHECK(waiter->entered);
}
END;

TEST(
    "sixteen threads use a model that leaves and comes back: none uses it while it is away, none waits for "
    "ever") {
  Residence residence;
  std::atomic<int> inside = 0;
  std::atomic<int> wrong = 0;
  std::atomic<bool> here = true;
  std::atomic<bool> done = false;
  // Stands for the thread for housekeeping.
  std::atomic<int> wanted = 0;
  std::jthread keeper([&] {
    while (!done) {
      if (residence.BeginLeaving(Clock::time_point::max())) {
        if (inside != 0) ++wrong;
        here = false;
        if (residence.Left()) ++wanted;
      }
      if (wanted.exchange(0) > 0 && residence.StillWanted()) {
        here = true;
        residence.Came({});
      }
    }
  });
  const auto use = [&] {
    ++inside;
    if (!here) ++wrong;
    --inside;
    static_cast<void>(residence.Exit());
  };
  {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < 16; ++thread) {
      threads.emplace_back([&, thread] {
        for (int i = 0; i < 200; ++i) {
          if (residence.Enter()) {
            use();
            continue;
          }
          std::latch resumed(1);
          const auto waiter = std::make_shared<Waiter>([&resumed] { resumed.count_down(); });
          if (residence.Wait(waiter)) ++wanted;
          if ((thread + i) % 5 == 0) residence.Drop(waiter);
          resumed.wait();
          if (waiter->entered) use();
        }
      });
    }
  }
  done = true;
  EQUAL(wrong.load(), 0);
}
END;

}  // namespace
