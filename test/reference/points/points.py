"""Writes points.json: what Ultralytics and shapely make of turned boxes, and numpy and shapely of named points.

Run once, with ultralytics, torch, numpy and shapely, in this folder: python points.py
"""

import json
import pathlib

import numpy
import shapely
import torch
import ultralytics
from ultralytics.utils.metrics import batch_probiou
from ultralytics.utils.nms import non_max_suppression
from ultralytics.utils.ops import xywhr2xyxyxyxy

SIDE = 640
COUNT = 120
LABELS = 2
LEAST = 0.25
torch.manual_seed(20261127)


def heads():
    """A raw tensor [1, 4 + labels + 1, boxes] as a YOLO-OBB network is exported: cx, cy, w, h, scores, angle."""
    places = torch.rand(14, 2) * 400 + 120
    sizes = torch.rand(14, 2) * torch.tensor([110.0, 40.0]) + 12
    turns = torch.rand(14) * torch.pi - torch.pi / 4
    which = torch.randint(14, (COUNT,))
    centres = places[which] + torch.randn(COUNT, 2) * 7
    sides = sizes[which] * (0.8 + 0.4 * torch.rand(COUNT, 2))
    angles = turns[which] + torch.randn(COUNT) * 0.25
    scores = torch.rand(COUNT, LABELS)
    return torch.cat([centres, sides, scores, angles[:, None]], 1).T[None]


raw = heads()
columns = raw[0].T
boxes = torch.cat([columns[:, :4], columns[:, -1:]], 1)
best, labels = columns[:, 4:-1].max(1)
corners = xywhr2xyxyxyxy(boxes.double().numpy())
outlines = [shapely.Polygon(quad) for quad in corners]


def by_ultralytics(iou, per_class):
    _, kept = non_max_suppression(raw.clone(), LEAST, iou, agnostic=not per_class, max_det=300, nc=LABELS, rotated=True, return_idxs=True)
    return kept[0].tolist()


def greedy(iou, per_class, shared):
    """From the best score down; a box goes if it shares more than `iou` with one that stays."""
    kept = []
    for i in torch.argsort(best, descending=True).tolist():
        if best[i] <= LEAST:
            continue
        if not any((not per_class or labels[i] == labels[j]) and shared(i, j) > iou for j in kept):
            kept.append(i)
    return kept


def polygons(i, j):
    return outlines[i].intersection(outlines[j]).area / outlines[i].union(outlines[j]).area


probabilistic = batch_probiou(boxes, boxes)
cases = []
for per_class in (True, False):
    for iou in (0.2, 0.45, 0.7):
        common = {"iou": iou, "per_class": per_class}
        cases.append({**common, "kind": "fast", "overlap": "probabilistic", "kept": by_ultralytics(iou, per_class)})
        cases.append({**common, "kind": "greedy", "overlap": "probabilistic", "kept": greedy(iou, per_class, lambda i, j: float(probabilistic[i, j]))})
        cases.append({**common, "kind": "greedy", "overlap": "polygon", "kept": greedy(iou, per_class, polygons)})

# Points in pixels, counted from edges, of an image whose pixels are 0.4 mm high and 0.25 mm wide
POINTS = {
    "a": (31.25, 20.5), "b": (112.5, 41.0), "c": (29.75, 150.25), "d": (118.0, 133.5), "e": (70.5, 90.25), "f": (88.0, 101.0),
}
ROW, COLUMN = 0.4, 0.25
mm = {name: numpy.array([x * COLUMN, y * ROW]) for name, (x, y) in POINTS.items()}


def vector(a, b):
    return mm[b] - mm[a]


def angle(u, v):
    return float(numpy.degrees(numpy.arccos(u @ v / numpy.linalg.norm(u) / numpy.linalg.norm(v))))


def along(u, axis):
    return float(u @ axis / numpy.linalg.norm(axis))


def straight(a, b):
    return float(shapely.Point(mm[a]).distance(shapely.Point(mm[b])))


measures = [
    [{"type": "distance", "points": ["a", "b"]}, straight("a", "b")],
    [{"type": "distance", "points": ["a", "d"], "along": "rows"}, abs(vector("a", "d")[0])],
    [{"type": "distance", "points": ["a", "d"], "along": "columns"}, abs(vector("a", "d")[1])],
    [{"type": "distance", "points": ["c", "f"], "along": ["a", "b"]}, abs(along(vector("c", "f"), vector("a", "b")))],
    [{"type": "line_distance", "points": ["e", "a", "b"]}, float(shapely.Point(mm["e"]).distance(shapely.LineString([mm["a"] - 9 * vector("a", "b"), mm["b"] + 9 * vector("a", "b")])))],
    [{"type": "angle", "points": ["a", "e", "d"]}, angle(vector("e", "a"), vector("e", "d"))],
    [{"type": "line_angle", "points": ["a", "b", "c", "d"]}, angle(vector("a", "b"), vector("c", "d"))],
    [{"type": "line_angle", "points": ["a", "b", "d", "c"]}, angle(vector("a", "b"), vector("d", "c"))],
    [{"type": "ratio", "points": ["a", "b", "c", "d"], "percent": False}, straight("a", "b") / straight("c", "d")],
    [{"type": "ratio", "points": ["f", "e", "c", "d"], "along": "rows", "percent": True}, 100 * float(vector("f", "e")[0] / vector("c", "d")[0])],
    [{"type": "ratio", "points": ["e", "f", "c", "d"], "along": ["a", "b"], "percent": True}, 100 * along(vector("e", "f"), vector("a", "b")) / along(vector("c", "d"), vector("a", "b"))],
]

found = {
    "made_with": {"ultralytics": ultralytics.__version__, "torch": torch.__version__.split("+")[0], "shapely": shapely.__version__, "numpy": numpy.__version__},
    "turned": {
        "side": SIDE, "boxes": COUNT, "least": LEAST, "raw": raw[0].flatten().tolist(),
        "corners": [[[round(n, 6) for n in point] for point in quad] for quad in corners.tolist()],
        "best": best.tolist(), "labels": labels.tolist(), "cases": cases,
    },
    "points": {"row": ROW, "column": COLUMN, "places": POINTS, "measures": [{**what, "value": value} for what, value in measures]},
}
pathlib.Path(__file__).with_name("points.json").write_text(json.dumps(found) + "\n")
