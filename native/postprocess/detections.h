#pragma once

#include <span>
#include <vector>

#include "base/description.h"
#include "base/tensor.h"
#include "postprocess/boxes.h"
#include "postprocess/output.h"
#include "postprocess/postprocess.h"
#include "prepare/geometry.h"

namespace radserve {

/// The numbers of a network's boxes, box by box.
struct RawDetections {
  /// Four numbers a box, or six in a volume.
  std::vector<float> boxes;
  /// One score a box, or one a label.
  std::vector<float> scores;
  /// With one score a box: the number of its class; empty where there is only one label.
  std::vector<float> classes;
  /// How sure the network is that there is anything: every score of the box is multiplied with it.
  /// May be empty.
  std::vector<float> objectness;
  /// How much of each prototype a box's mask has, those of a box side by side; may be empty.
  std::vector<float> coefficients;
  /// How much each box, whose numbers are then its centre and sides, is turned; empty for boxes
  /// along the axes.
  std::vector<float> angles = {};
};

/// Reads the fields that both kinds with boxes of a network have.
void ReadDetections(const Description& own, OutputSpec& spec);

/// Those of them that boxes in volumes have, too: all but the order of a box's numbers.
void ReadBoxes(const Description& own, OutputSpec& spec);

/// The index of the label that a class number means; -1 for one that means none, where it does not
/// count. Throws output_invalid where it does.
int LabelOfClass(float number, bool counts, const OutputSpec& spec);

/// Boxes of so many numbers, scores and classes in tensors of their own. Throws output_invalid
/// where one does not fit the others.
RawDetections ReadLists(const OutputSpec& spec, const TensorByName& tensors, size_t numbers);

/// Takes a table apart. Throws output_invalid if its shape is not [1, boxes, columns] (or the other
/// way round), where the 1 may be left out.
RawDetections ReadTable(const Tensor& tensor, const OutputSpec& spec);

/// Decodes boxes, takes each one's best label (or every label), drops those below their label's
/// threshold (NaN: none), suppresses overlaps where the manifest asks, and maps what is left to
/// source pixels, clamped to the image. Boxes without area, or outside the image, are dropped, and
/// then all but the first max_boxes.
///
/// Best first, equal scores in the tensor's order. Boxes are decoded and compared in float32, as
/// torchvision.ops.nms and box_convert do on a CPU: a box is suppressed where its intersection over
/// union with a better one that was kept is greater than the limit. What turned boxes share is
/// computed in float64. Throws output_invalid for numbers that are not finite, for classes outside
/// the labels, and for scores of a table that are no probabilities.
std::vector<Box> DecodeDetections(RawDetections raw, const OutputSpec& spec,
                                  const Geometry& geometry, std::span<const double> thresholds);

}  // namespace radserve
