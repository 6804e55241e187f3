#include "engine/image_model.h"

#include <algorithm>
#include <utility>

#include "base/atomic_most.h"
#include "engine/requests.h"
#include "postprocess/kind.h"

namespace radserve {
namespace {

/// Sides of an image that is made up where the source decides them: whole parts of them are what
/// networks ask for.
constexpr int kMadeUpSide = 64;

/// The shape of the tensor of one image, or of one window; nullopt unless the manifest alone
/// decides it, or sides are made up.
std::optional<std::vector<int64_t>> ShapeOfRow(const InputSpec& spec,
                                               const std::optional<TilingSpec>& tiling,
                                               bool made_up) {
  if (spec.numbers > 0)
    return spec.flat ? std::vector<int64_t>{} : std::vector<int64_t>{spec.numbers};
  const SizeSpec& size = spec.size;
  std::vector<int64_t> sides = {size.height, size.width};
  if (spec.transposed) std::swap(sides[0], sides[1]);
  if (tiling) {
    sides.assign(tiling->window.begin(), tiling->window.end());
  } else if (size.kind != SizeSpec::Kind::kFixed) {
    if (!made_up) return std::nullopt;
    const int64_t multiple = std::max(1, size.multiple);
    sides.assign(spec.volume ? 3 : 2, (kMadeUpSide + multiple - 1) / multiple * multiple);
  } else if (spec.volume) {
    sides.insert(sides.begin(), size.depth);
  }
  sides.insert(spec.channels_last ? sides.end() : sides.begin(),
               spec.Channels() + spec.label_channels);
  return sides;
}

}  // namespace

size_t ImageModel::SizeOf(size_t pixels) const {
  const bool fixed = std::ranges::all_of(
      inputs, [](const InputSpec& spec) { return spec.size.kind == SizeSpec::Kind::kFixed; });
  return fixed ? 1 : pixels;
}

bool ImageModel::FindsBoxes() const {
  return std::ranges::all_of(outputs,
                             [](const OutputSpec& spec) { return spec.kind->collect != nullptr; });
}

std::vector<std::string> ImageModel::OutputNames() const {
  std::vector<std::string> names;
  for (const OutputSpec& output : outputs) {
    for (std::string& tensor : output.Tensors()) {
      if (std::find(names.begin(), names.end(), tensor) == names.end())
        names.push_back(std::move(tensor));
    }
  }
  return names;
}

std::shared_ptr<RunRequest> ImageModel::MakeRun() const {
  return std::make_shared<RunImageModelRequest>();
}

bool ImageModel::FeedsAll() const { return session->graph().inputs.size() == inputs.size(); }

std::optional<std::vector<int64_t>> ImageModel::RowShape(const TensorInfo& input,
                                                         bool made_up) const {
  const auto spec = std::ranges::find(inputs, input.name, &InputSpec::tensor);
  return spec == inputs.end() ? std::nullopt : ShapeOfRow(*spec, tiling, made_up);
}

bool ImageModel::TakesAnyNumbers(const TensorInfo& input) const {
  return std::ranges::find(inputs, input.name, &InputSpec::tensor)->numbers == 0;
}

void ImageModel::SeeWindows() const { Raise(window_bytes, session->BytesOfRuns()); }

}  // namespace radserve
