#include "graph/model.h"

#include <algorithm>

#include "graph/engine.h"
#include "graph/requests.h"

namespace radserve {
namespace {

/// A side that the graph leaves open: whole parts of it are what networks ask for.
constexpr int64_t kMadeUpSide = 64;

}  // namespace

Model::~Model() {
  Engine* engine = Engine::Started();
  if (engine != nullptr && id != 0) engine->Forget(*this);
  session.reset();
  if (engine != nullptr) engine->RoomMade();
  if (released) released();
}

std::vector<std::string> Model::OutputNames() const {
  std::vector<std::string> names;
  for (const TensorInfo& output : session->graph().outputs) names.push_back(output.name);
  return names;
}

std::shared_ptr<RunRequest> Model::MakeRun() const { return std::make_shared<RunRequest>(); }

std::optional<std::vector<int64_t>> Model::RowShape(const TensorInfo& input, bool made_up) const {
  // What is not to run in batches is not warmed, because nobody knows what it takes.
  if (max_batch < 2 || input.shape.empty() || !HasPlainElements(input.dtype)) return std::nullopt;
  std::vector<int64_t> sides(input.shape.begin() + 1, input.shape.end());
  for (int64_t& side : sides) {
    if (side == -1 && made_up) side = kMadeUpSide;
    if (side < 1) return std::nullopt;
  }
  return sides;
}

bool Model::TakesAnyNumbers(const TensorInfo& input) const {
  return input.dtype == Dtype::kFloat32 || input.dtype == Dtype::kFloat16;
}

}  // namespace radserve
