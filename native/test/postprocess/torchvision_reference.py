"""Writes torchvision_reference.h: what torchvision (CPU) makes of boxes and of whole detection heads.

Run once, with torch and torchvision, and the values are stored: python torchvision_reference.py > torchvision_reference.h
Thresholds are "at or above" here, as Radserve's are; torchvision's own models use "above".
"""

import torch
import torchvision
from torchvision.ops import batched_nms, box_convert, nms

SIDE = 1024  # of the square image and of the tensor; all boxes lie inside
torch.manual_seed(20261123)


def floats(values):
    """As few digits as tell each float32 from all others."""
    return "{" + ", ".join(f"{v!s}f" for v in values.reshape(-1).numpy()) + "}"


def whole(values):
    return "{" + ", ".join(str(int(v)) for v in values.reshape(-1)) + "}"


def clusters(count, places):
    """Boxes that overlap: small changes of a few of them."""
    base = torch.rand(places, 2) * 700 + 100
    size = torch.rand(places, 2) * 120 + 20
    which = torch.randint(places, (count,))
    corner = base[which] + torch.randn(count, 2) * 12
    return torch.cat([corner, corner + size[which] * (0.8 + 0.4 * torch.rand(count, 2))], 1)


def with_area(boxes):
    """Radserve takes no box without an area."""
    return ((boxes[:, 2] > boxes[:, 0]) & (boxes[:, 3] > boxes[:, 1]))


def by_class(boxes, scores, classes, iou):
    """As torchvision's batched_nms, which moves the classes apart; for many boxes, as its exact loop over classes."""
    keep = []
    for label in classes.unique():
        its = (classes == label).nonzero()[:, 0]
        keep += its[nms(boxes[its], scores[its], iou)].tolist()
    assert set(keep) == set(batched_nms(boxes, scores, classes, iou).tolist())
    return torch.tensor(sorted(keep, key=lambda i: (-scores[i].item(), i)), dtype=torch.int64)


def suppression(name, iou, per_class, boxes, scores, classes=None):
    boxes, scores = torch.as_tensor(boxes, dtype=torch.float32).reshape(-1, 4), torch.as_tensor(scores, dtype=torch.float32)
    classes = torch.zeros(len(scores), dtype=torch.int64) if classes is None else torch.as_tensor(classes)
    keep = by_class(boxes, scores, classes, iou) if per_class and len(boxes) else nms(boxes, scores, iou)
    area = with_area(boxes)
    keep = torch.tensor([i for i in keep.tolist() if area[i]], dtype=torch.int64)
    print(f'    {{"{name}", {iou!r}, {str(per_class).lower()}, {floats(boxes)},\n     {floats(scores)},\n     {whole(classes)}, {whole(keep)}}},')


def head(name, first, table, values, boxes, scores, iou, threshold, several):
    """`table`: the TableSpec in C++; `boxes` in pixels and `scores` (one a label) as the head means them."""
    area = with_area(boxes)
    if several:
        index, label = (scores >= threshold).nonzero(as_tuple=True)
        score = scores[index, label]
    else:
        score, label = scores.max(1)
        index = (score >= threshold).nonzero()[:, 0]
        score, label = score[index], label[index]
    good = area[index]
    index, label, score = index[good], label[good], score[good]
    keep = by_class(boxes[index], score, label, iou)
    shape = [1, *values.shape]
    print(f'    {{"{name}", {str(first).lower()}, {table}, {whole(torch.tensor(shape))}, {scores.shape[1]}, {iou!r}, {threshold!r}, {str(several).lower()},\n     {floats(values)},')
    print(f"     {floats(boxes[index][keep])},\n     {floats(score[keep])}, {whole(label[keep])}}},")


print("// clang-format off")
print(f"// Written by torchvision_reference.py with torchvision {torchvision.__version__.split('+')[0]} and torch {torch.__version__.split('+')[0]}.")
print("""#ifndef RADSERVE_TORCHVISION_REFERENCE_H_
#define RADSERVE_TORCHVISION_REFERENCE_H_

#include <cstdint>
#include <string>
#include <vector>

/// All boxes lie in a square of 1024 pixels.
struct SuppressionCase {
  std::string name;
  double iou;
  bool per_class;
  /// Edges x0 y0 x1 y1.
  std::vector<float> boxes, scores;
  std::vector<int> classes;
  /// In torchvision's order, without boxes that have no area.
  std::vector<size_t> keep;
};

inline const std::vector<SuppressionCase> kSuppression = {""")

boxes = clusters(80, 9)
ties = (torch.rand(80) * 20).round() / 20
classes = torch.randint(3, (80,))
for iou in (0.0, 0.3, 0.5, 0.7, 1.0):
    suppression(f"over all labels, ties, {iou}", iou, False, boxes, ties)
    suppression(f"by label, ties, {iou}", iou, True, boxes, ties, classes)
suppression("equal scores", 0.5, False, boxes[:40], torch.full((40,), 0.5))
suppression("no box", 0.5, False, [], [])
suppression("one box", 0.5, False, [1, 1, 2, 2], [0.5])
# Intersection over union that is the limit, as near as float32 tells: k pixels of ten.
for k in range(1, 10):
    row = [[100, 100, 110, 101], [100, 100, 100 + k, 101]]
    for iou in (k / 10, torch.nextafter(torch.tensor(k / 10), torch.tensor(0.0)).item(), torch.nextafter(torch.tensor(k / 10), torch.tensor(1.0)).item()):
        suppression(f"at the limit, {k} of 10", iou, False, row, [0.9, 0.8])
third = [[0, 0, 30, 10], [15, 0, 45, 10], [200.1, 200.3, 230.7, 240.9], [200.1, 210.45, 230.7, 251.05]]
for iou in (1 / 3, torch.tensor(1 / 3).item(), 0.6):
    suppression("a third", iou, False, third, [0.9, 0.8, 0.7, 0.6])
suppression(
    "without area", 0.5, False,
    [[10, 10, 10, 20], [10, 10, 20, 10], [20, 20, 10, 10], [20, 10, 10, 20], [10, 10, 20, 20], [10, 10, 10, 10],
     [10, 10, 20, 20], [5, 10, 5, 10]],
    [0.9, 0.9, 0.95, 0.9, 0.8, 0.9, 0.8, 0.7],
)
print("""};

/// A whole head: `values` in a tensor of `shape`, and what is left of it in pixels, best first.
struct HeadCase {
  std::string name;
  bool columns_first;
  /// What the columns are: Head in detections_test.cc.
  int head;
  std::vector<int64_t> shape;
  int labels;
  double iou, threshold;
  bool several;
  std::vector<float> values, boxes, scores;
  std::vector<int> found;
};

inline const std::vector<HeadCase> kHeads = {""")

wide = clusters(60, 7)
# Unlike each other, so that what another order of additions rounds is no tie.
plain = torch.rand(60, 3)
logits = torch.randn(60, 3) * 2
centres = box_convert(wide, "xyxy", "cxcywh")
corners = box_convert(wide, "xyxy", "xywh")
edges_of_centres = box_convert(centres, "cxcywh", "xyxy")
for several in (False, True):
    # YOLOv8: [1, 4 + classes, boxes], centres, probabilities
    head("columns first", True, 0, torch.cat([centres, plain], 1).T, edges_of_centres, plain, 0.45, 0.25, several)
    # The same with logits
    head("logits", True, 1, torch.cat([centres, logits], 1).T, edges_of_centres, logits.sigmoid(), 0.45, 0.25, several)
    # YOLOv5: [1, boxes, 5 + classes], objectness, everything from 0 to 1 of the tensor's sides
    objectness = torch.rand(60, 1)
    small = centres / SIDE
    head(
        "objectness", False, 2, torch.cat([small, objectness, plain], 1),
        box_convert(small, "cxcywh", "xyxy") * SIDE, plain * objectness, 0.45, 0.2, several,
    )
    # The same, logits of both
    raw = torch.randn(60, 1) * 2
    head(
        "objectness of logits", False, 3, torch.cat([corners, raw, logits], 1),
        box_convert(corners, "xywh", "xyxy"), logits.sigmoid() * raw.sigmoid(), 0.45, 0.2, several,
    )
# [1, boxes, 6]: y1 x1 y2 x2 class score, classes from 1, rows of zeros behind
number = torch.randint(3, (60,))
score = torch.rand(60)
rows = torch.stack([wide[:, 1], wide[:, 0], wide[:, 3], wide[:, 2], number + 1.0, score], 1)
rows = torch.cat([rows, torch.zeros(4, 6)])
one_hot = torch.zeros(64, 3)
one_hot[torch.arange(60), number] = score
head("rows of six", False, 4, rows, torch.cat([wide, torch.zeros(4, 4)]), one_hot, 0.5, 0.3, False)
print("""};

#endif  // RADSERVE_TORCHVISION_REFERENCE_H_""")
