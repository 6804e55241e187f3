#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/description.h"
#include "base/tensor.h"
#include "postprocess/boxes.h"
#include "postprocess/output.h"
#include "postprocess/postprocess.h"
#include "prepare/geometry.h"

namespace radserve {

enum class BoxFormat { kXyxy, kXywh, kCxcywh, kYxyx };

/// What two boxes share: by their edges, as outlines of turned boxes, or as distributions
/// (turned.h).
enum class Overlap { kEdges, kPolygon, kProbabilistic };

/// Where the numbers of a box stand in the one tensor that holds them all; columns count from 0.
struct TableSpec {
  /// [1, columns, boxes] instead of [1, boxes, columns].
  bool columns_first = false;
  int columns = 0;
  /// The box's four numbers, in the order of its format.
  std::array<int, 4> box = {};
  /// The one score of a box, or the first of one score a label.
  int score = 0;
  bool score_a_label = false;
  std::optional<int> class_column;
  std::optional<int> objectness;
  /// kNone or kSigmoid.
  Activation objectness_activation = Activation::kNone;
  /// The first coefficient of a box's mask, and how many there are.
  std::optional<int> coefficients = std::nullopt;
  int coefficient_count = 0;
  /// How much each box is turned, and how many radians clockwise a number of that column stands
  /// for.
  std::optional<int> angle = std::nullopt;
  double angle_unit = 1;
};

/// The tensors beside that of the boxes, where each has one of its own.
struct ListSpec {
  std::string scores;
  /// Empty: scores have a column for each label.
  std::string classes;
};

/// Non-maximum suppression.
struct SuppressionSpec {
  double iou = 0;
  bool per_class = false;
  /// A box goes because of any better one, whether that stays or not.
  bool fast = false;
  Overlap overlap = Overlap::kEdges;
};

/// The fields of both kinds with boxes in images.
struct DetectionSpec {
  BoxFormat format = BoxFormat::kXyxy;
  /// 0 to 1 of the tensor's sides, instead of its pixels.
  bool normalised = false;
  /// In pixels of the source, instead of the tensor's.
  bool in_source = false;
  ListSpec list;
  /// Then `tensor` holds boxes, scores and classes.
  std::optional<TableSpec> table;
  /// Number of the first label.
  int first_class = 0;
  /// A box counts for each label whose threshold it reaches, instead of for its best label.
  bool several_labels = false;
  std::optional<SuppressionSpec> nms;
  int max_boxes = 1;
};

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

/// Reads `nms`; nothing where none is asked for.
std::optional<SuppressionSpec> ReadSuppression(const Description& output);

/// Reads `scores` and `classes` of boxes that have tensors of their own.
ListSpec ReadList(const Description& output, OutputSpec& spec);

/// Number of the first label.
int FirstClassOf(const Description& output);

/// The index of the label that a class number means; -1 for one that is ignored, and for one that
/// means none, where it does not count. Throws output_invalid where it does.
int LabelOfClass(float number, bool counts, int first_class, const OutputSpec& spec);

/// Boxes of so many numbers, scores and classes in tensors of their own. Throws output_invalid
/// where one does not fit the others.
RawDetections ReadLists(const OutputSpec& spec, const ListSpec& list, const TensorByName& tensors,
                        size_t numbers);

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
/// @param implausible is given OutputResult::implausible
std::vector<Box> DecodeDetections(RawDetections raw, const OutputSpec& spec, const Geometry& placed,
                                  std::span<const double> thresholds,
                                  size_t* implausible = nullptr);

}  // namespace radserve
