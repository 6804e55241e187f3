#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/seen_runs.h"
#include "graph/model.h"
#include "postprocess/output.h"
#include "prepare/input.h"
#include "tiling/tiling.h"

namespace radserve {

/// A loaded graph whose inputs are made of images, and whose outputs are decoded, as its specs say.
struct ImageModel : Model {
  std::vector<InputSpec> inputs;
  std::vector<OutputSpec> outputs;
  /// Whole images and volumes go through the graph window by window.
  std::optional<TilingSpec> tiling;
  /// The most that the network has been seen to take on its way through windows, beside its
  /// weights; 0 before the first.
  mutable std::atomic<size_t> window_bytes = 0;
  /// What runs without windows took.
  mutable SeenRuns seen;

  /// The size by which `seen` knows an image of so many pixels: one for all where each input has a
  /// size of its own.
  size_t SizeOf(size_t pixels) const;
  /// Whether its outputs are boxes in volumes: what windows find is merged, instead of blended.
  bool FindsBoxes() const;

  /// Names of the raw outputs, each once, in the manifest's order.
  std::vector<std::string> OutputNames() const override;
  std::shared_ptr<RunRequest> MakeRun() const override;
  bool FeedsAll() const override;
  std::optional<std::vector<int64_t>> RowShape(const TensorInfo& input,
                                               bool made_up) const override;
  bool TakesAnyNumbers(const TensorInfo& input) const override;
  bool RunsByWindows() const override { return tiling.has_value(); }
  void SeeWindows() const override;
};

}  // namespace radserve
