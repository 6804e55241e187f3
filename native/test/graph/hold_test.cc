#include <chrono>
#include <deque>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "graph/engine.h"
#include "graph/requests.h"
#include "onnx.h"
#include "runtime/run_memory.h"

using namespace radserve;
using namespace radserve::test;

// The runtime itself leaks a few bytes for each process.
extern "C" __attribute__((visibility("default"))) const char* __lsan_default_suppressions() {
  return "leak:libonnxruntime.so";
}

namespace {

constexpr uint64_t kFirst = 1;
constexpr uint64_t kSecond = 2;

/// Has a scheduler do a request of an environment; how it ended.
std::optional<Failure> Do(Scheduler& scheduler, const std::shared_ptr<Request>& request,
                          uint64_t environment) {
  std::promise<void> told;
  request->client = std::make_shared<Client>([&told] { told.set_value(); });
  request->environment = environment;
  request->ticket = 1;
  scheduler.Submit(request);
  told.get_future().wait();
  std::optional<Failure> failure = request->client->Take().at(0).failure;
  request->client->Close();
  return failure;
}

/// x -> Identity -> y, of an element type by its number in TensorProto.DataType.
std::string IdentityOf(int type) {
  const auto value = [type](const std::string& name) {
    const std::string sides = Bytes(1, Number(1, 2));
    return Bytes(1, name) +
           Bytes(2, Bytes(1, Number(1, static_cast<uint64_t>(type)) + Bytes(2, sides)));
  };
  const std::string node = Bytes(1, "x") + Bytes(2, "y") + Bytes(3, "node") + Bytes(4, "Identity");
  const std::string graph =
      Bytes(1, node) + Bytes(2, "test") + Bytes(11, value("x")) + Bytes(12, value("y"));
  return Number(1, 8) + Bytes(7, graph) + Bytes(8, Bytes(1, "") + Number(2, 17));
}

std::shared_ptr<LoadRequest> Load(const std::string& model, uint64_t environment) {
  auto request = std::make_shared<LoadRequest>();
  request->bytes = std::as_bytes(std::span(model));
  request->shared = true;
  request->model = ShareModel(std::make_unique<Model>());
  request->model->settings.every_type = true;
  const std::optional<Failure> failure = Do(Engine::Get().housekeeping(), request, environment);
  CHECK(!failure);
  return request;
}

std::shared_ptr<RunRequest> Run(const std::shared_ptr<Model>& model, Tensor feed,
                                std::optional<Failure>* failure = nullptr) {
  const std::shared_ptr<RunRequest> request = model->MakeRun();
  request->model = model;
  request->flow = model->id;
  request->feeds = {std::move(feed)};
  const std::optional<Failure> ended = Do(Engine::Get().work(), request, kFirst);
  if (failure != nullptr) {
    *failure = ended;
  } else {
    CHECK(!ended);
  }
  return request;
}

constexpr int kString = 8;
constexpr int kBool = 9;

}  // namespace

TEST("equal bytes are one model, which goes with the last that holds it") {
  Engine::Start(2);
  const std::string model = IdentityOf(kString);
  const uint64_t id = Load(model, kFirst)->id;
  EQUAL(Load(std::string(model), kSecond)->id, id);
  EQUAL(Load(model, kSecond)->id, id);
  CHECK(Load(IdentityOf(kBool), kSecond)->id != id);
  EQUAL(Engine::Get().Models().size(), size_t{2});
  CHECK(Engine::Get().LetGo(id, kFirst) == nullptr);
  CHECK(Engine::Get().LetGo(id, kSecond) == nullptr);
  CHECK(Engine::Get().Find(id) != nullptr);
  Engine::Get().RemoveEnvironment(kSecond);
  CHECK(Engine::Get().Models().empty());
  EQUAL(CodeOf([&] { Engine::Get().Find(id); }), std::string("model_unavailable"));
}
END;

TEST("texts go through a graph, zeros in them too") {
  Engine::Start(2);
  const std::shared_ptr<Model> model = Load(IdentityOf(kString), kFirst)->model;
  Tensor texts = MakeTexts("x", {2});
  texts.Texts()[0] = std::string("a\0b", 3);
  texts.Texts()[1] = "a text that is longer than what a string holds by itself";
  const std::shared_ptr<RunRequest> ran = Run(model, texts);
  CHECK(std::ranges::equal(ran->outputs.at(0).Texts(), texts.Texts()));
  Engine::Get().RemoveEnvironment(kFirst);
}
END;

TEST("a bool that is neither true nor false is refused") {
  Engine::Start(2);
  const std::shared_ptr<Model> model = Load(IdentityOf(kBool), kFirst)->model;
  Tensor flags = MakeTensor("x", Dtype::kBool, {2});
  flags.data[1] = std::byte{1};
  CHECK(Run(model, flags)->outputs.at(0).data[1] == std::byte{1});
  flags.data[0] = std::byte{2};
  std::optional<Failure> failure;
  Run(model, flags, &failure);
  CHECK(failure && failure->code == "bad_request");
  Engine::Get().RemoveEnvironment(kFirst);
}
END;

TEST("rows that wait for a batch wait for memory that others have, too") {
  Engine::Start(2);
  constexpr int64_t kSide = 2048;
  const std::shared_ptr<Model> model =
      Load(OneNode("Add", {"x", "x"}, {0, kSide}, {0, kSide}), kFirst)->model;
  // Whether batches pay is measured, and would be another thing on each machine.
  auto made = std::make_unique<SessionDevice>();
  model->device = made.get();
  model->device->AddModel(model->id, {model->session.get(), {"y"}, &model->runs, 8});
  Batcher batcher(std::move(made));
  batcher.AddModel(model->id, 8);
  model->batcher = &batcher;
  constexpr size_t kHeld = size_t{200} << 10;
  struct Asked {
    std::shared_ptr<RunRequest> request;
    std::promise<void> told;
  };
  std::deque<Asked> all;
  {
    const RunScope scope;
    // All but half of a row.
    void* const held = AllocateRunMemory(kHeld);
    LimitRunMemory(kHeld + kSide * sizeof(float) / 2);
    for (int i = 0; i < 6; ++i) {
      Asked& asked = all.emplace_back();
      asked.request = model->MakeRun();
      asked.request->model = model;
      asked.request->flow = model->id;
      asked.request->feeds = {MakeTensor("x", Dtype::kFloat32, {1, kSide})};
      asked.request->client = std::make_shared<Client>([&asked] { asked.told.set_value(); });
      Engine::Get().work().Submit(asked.request);
    }
    // Those that were in batches are told that there is no memory, and go on without one.
    const auto go_on = [&] { return Engine::Get().work().GetStats().running == all.size(); };
    const auto end = Clock::now() + std::chrono::seconds(60);
    while (!go_on() && Clock::now() < end) std::this_thread::yield();
    CHECK(go_on());
    FreeRunMemory(held);
  }
  for (Asked& asked : all) {
    asked.told.get_future().wait();
    const std::optional<Failure> failure = asked.request->client->Take().at(0).failure;
    EQUAL(failure ? failure->message : "", std::string());
    EQUAL(asked.request->outputs.size(), size_t{1});
    asked.request->client->Close();
  }
  LimitRunMemory(0);
  all.clear();
  model->batcher = nullptr;
  model->device = nullptr;
  Engine::Get().RemoveEnvironment(kFirst);
}
END;
