#include "engine/volume_plan.h"

#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <string>

#include "check.h"
#include "onnx.h"
#include "postprocess/kind.h"
#include "postprocess/masks.h"

using namespace radserve;
using namespace radserve::test;

// The runtime itself leaks a few bytes for each process.
extern "C" __attribute__((visibility("default"))) const char* __lsan_default_suppressions() {
  return "leak:libonnxruntime.so";
}

namespace {

constexpr int kSide = 32;
constexpr int64_t kChannels = 48;
constexpr double kVoxels = kSide * kSide * kSide;

std::string Node(const std::string& op, const std::vector<std::string>& inputs,
                 const std::string& output) {
  std::string node;
  for (const std::string& input : inputs) node += Bytes(1, input);
  return Bytes(1, node + Bytes(2, output) + Bytes(3, output) + Bytes(4, op));
}

/// Two channels by way of 48, as a U-Net has many on its way.
std::string WideInside() {
  const std::string graph =
      Node("Conv", {"x", "up"}, "many") + Node("Sigmoid", {"many"}, "more") +
      Node("Conv", {"more", "down"}, "y") + Bytes(2, "test") +
      Zeros("up", {kChannels, 1, 1, 1, 1}) + Zeros("down", {2, kChannels, 1, 1, 1}) +
      Bytes(11, Value("x", {0, 1, -1, -1, -1})) + Bytes(12, Value("y", {0, 2, -1, -1, -1}));
  return Number(1, 8) + Bytes(7, graph) + Bytes(8, Bytes(1, "") + Number(2, 17));
}

std::unique_ptr<ImageModel> Load(int threads) {
  StartRuntime();
  const std::filesystem::path path = std::filesystem::temp_directory_path() /
                                     ("radserve-plan-test-" + std::to_string(getpid()) + ".onnx");
  std::ofstream(path, std::ios::binary) << WideInside();
  auto model = std::make_unique<ImageModel>();
  model->settings.threads = threads;
  model->session = std::make_unique<Session>(path, model->settings, "model_unavailable");
  std::filesystem::remove(path);
  InputSpec input;
  input.tensor = "x";
  input.volume = true;
  input.size.kind = SizeSpec::Kind::kSource;
  input.fit = Fit::kNone;
  model->inputs = {input};
  OutputSpec output;
  output.kind = &kinds::segmentation;
  output.tensor = "y";
  output.activation = Activation::kSoftmax;
  output.labels = 1;
  model->outputs = {output};
  TilingSpec tiling;
  tiling.window = {kSide, kSide, kSide};
  model->tiling = tiling;
  return model;
}

double PlanOf(const ImageModel& model) { return BytesOfPlan(model, {40, 64, 64}, {}); }

void RunWindow(const ImageModel& model, bool wide) {
  const Tensor window = MakeTensor("x", Dtype::kFloat32, {1, 1, kSide, kSide, kSide});
  const std::vector<std::string> names = {"y"};
  model.session->Run(std::span(&window, 1), names, wide, {});
  model.SeeWindows();
}

TEST("what a network takes on its way through a window is planned once it has seen one") {
  for (const int threads : {1, 2}) {
    const std::unique_ptr<ImageModel> model = Load(threads);
    const double before = PlanOf(*model);
    CHECK(before > 0);
    RunWindow(*model, threads > 1);
    const double grown = PlanOf(*model) - before;
    // At least the 48 channels, which the two that come out are part of before
    CHECK(grown >= kChannels * sizeof(float) * kVoxels);
    CHECK(grown <= 6 * kChannels * sizeof(float) * kVoxels);
    // Memory that goes back will be taken again.
    ReturnMemory();
    model->SeeWindows();
    EQUAL(PlanOf(*model) - before, grown);
  }
}
END;

TEST("a mask on the model's grid is planned, by its voxels and labels") {
  const std::unique_ptr<ImageModel> model = Load(1);
  const double before = PlanOf(*model);
  OutputSpec& output = model->outputs[0];
  output.Set<SegmentationSpec>().model_grid = true;
  constexpr double kGrid = 40.0 * 64 * 64;
  const double one = PlanOf(*model) - before;
  CHECK(one >= 3 * kGrid);
  output.activation = Activation::kSigmoid;
  output.labels = 2;
  output.Set<SegmentationSpec>().model_grid = false;
  const double apart = PlanOf(*model);
  output.Set<SegmentationSpec>().model_grid = true;
  CHECK(PlanOf(*model) - apart >= one + 2 * kGrid);
}
END;

}  // namespace
