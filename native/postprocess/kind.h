#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "base/description.h"
#include "postprocess/output.h"
#include "postprocess/postprocess.h"
#include "prepare/input.h"

namespace radserve {

/// A kind of output: how its description is read, and how its tensors are decoded. Each kind is a
/// file of its own in kinds/, which defines the member of that name below.
struct OutputKind {
  /// As the manifest names it.
  std::string_view name = {};
  /// As src/engine/types.ts names what comes of it, and the numbers in OutputResult::values; no
  /// name for none.
  std::string_view gives = {};
  std::string_view values = {};
  /// It lies in an image. What does not is decoded of a volume as of an image.
  bool placed = false;
  /// It has a value for each pixel of the source.
  bool gridded = false;
  /// It is a mask on a grid.
  bool masks = false;
  /// Reads the fields of its own from the output as the manifest has it; those that all kinds have
  /// are read already.
  void (*read)(const Description& output, OutputSpec& spec) = nullptr;
  /// Raw tensors of one image to the output.
  void (*decode)(const OutputSpec& spec, const TensorByName& tensors, const SourceGrid& grid,
                 std::span<const double> thresholds, OutputResult& out) = nullptr;
  /// Of boxes in volumes, instead of `decode`: adds those that one run of the graph found, over a
  /// window of the tensor or over all of it. Throws output_invalid.
  void (*collect)(const OutputSpec& spec, const TensorByName& tensors,
                  const VolumePlacement& placement, const SeenWindow& window,
                  std::span<const double> thresholds, FoundCuboids& found) = nullptr;
  /// Merges those of all windows, and gives them in pixels and slices of the source, best first.
  std::vector<Box> (*settle)(const OutputSpec& spec, std::vector<Cuboid> found,
                             std::span<const SeenWindow> windows, const VolumePlacement& placement,
                             std::span<const double> thresholds) = nullptr;
};

/// The kinds by the names of their files. CMakeLists.txt makes the list of them.
namespace kinds {
#define RADSERVE_KIND(name) extern const OutputKind name;
#include "postprocess_kinds.inc"
#undef RADSERVE_KIND
}  // namespace kinds

/// Reads an output as the manifest has it: the fields that all kinds have, and those of its own.
/// Throws `internal` for what src/manifest/outputs does not let through.
OutputSpec ReadOutputSpec(const Description& output, std::span<const InputSpec> inputs);

Activation ReadActivation(const Description& o);

/// Whether places are told in pixels of the source, instead of the tensor's.
bool InPixelsOfSource(const Description& output);

/// Takes the columns that are no label out of one row of them.
void DropIgnored(const OutputSpec& spec, std::vector<float>& row);

/// Throws output_invalid: a tensor is not what the manifest says.
[[noreturn]] void InvalidOutput(const Tensor& tensor, const std::string& expected);

}  // namespace radserve
