"""Boxes in volumes by MONAI's own RetinaNet inference, on small stand-in graphs with random weights.

With monai 1.6, torch and onnx:  python boxes.py PATH_OF_A_CHECKOUT_OF_nnDetection
Writes beside itself: maps.onnx (the network as MONAI exports it), listed.onnx (the same, ending in boxes, scores and
labels in nnDetection's order), voxels.npy, and expected.json. nnDetection is asked for its weighted box clustering alone
(nndet/inference/detection/wbc.py), whose file is run as it is.
"""

import importlib.util
import json
import pathlib
import sys
import types

import numpy as np
import torch
from monai.apps.detection.networks.retinanet_detector import RetinaNetDetector
from monai.apps.detection.networks.retinanet_network import RetinaNet
from monai.apps.detection.transforms.array import AffineBox, ClipBoxToImage
from monai.apps.detection.utils.anchor_utils import AnchorGeneratorWithAnchorShape
from monai.data import MetaTensor
from monai.data.box_utils import batched_nms, clip_boxes_to_image
from monai.inferers.utils import _get_scan_interval
from monai.data.utils import dense_patch_slices
from monai.transforms import Compose, Orientation, ScaleIntensityRange, Spacing

HERE = pathlib.Path(__file__).parent
LABELS = 2
SHAPES = [[6, 8, 4], [8, 6, 5], [10, 10, 6]]
SCALES = [1, 2]
MULTIPLE = [4, 4, 2]
PIXDIM = [1.2, 1.2, 2.0]
SELECT = {"score_thresh": 0.55, "topk_candidates_per_level": 60, "nms_thresh": 0.22, "detections_per_img": 40}
WINDOW = [16, 16, 12]
OVERLAP = 0.25


class Features(torch.nn.Module):
    """Two levels of features, with strides 2 2 1 and 4 4 2."""

    out_channels = 8

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Conv3d(1, 8, 3, stride=(2, 2, 1), padding=1)
        self.second = torch.nn.Conv3d(8, 8, 3, stride=2, padding=1)

    def forward(self, images):
        first = torch.relu(self.first(images))
        return [first, torch.relu(self.second(first))]


def network():
    torch.manual_seed(7)
    net = RetinaNet(3, LABELS, len(SHAPES), Features(), MULTIPLE, use_list_output=True)
    for name, weights in net.named_parameters():
        if name.endswith("weight") and weights.dim() == 5:
            torch.nn.init.normal_(weights, std=1.6 / weights[0].numel() ** 0.5)
    torch.nn.init.constant_(net.classification_head.cls_logits.bias, -1.0)
    torch.nn.init.normal_(net.regression_head.bbox_reg.weight, std=0.15 / (8 * 27) ** 0.5)
    return net.eval()


def detector(net):
    made = RetinaNetDetector(
        net, AnchorGeneratorWithAnchorShape(SCALES, SHAPES), spatial_dims=3, num_classes=LABELS, size_divisible=MULTIPLE
    )
    made.set_target_keys("box", "label")
    made.set_box_selector_parameters(**SELECT)
    return made.eval()


class ListsBoxes(torch.nn.Module):
    """The network over one window, with its boxes decoded by MONAI's coder, as x1 y1 x2 y2 z1 z2."""

    def __init__(self, net):
        super().__init__()
        self.net = net
        self.detector = detector(net)
        image = torch.zeros(1, 1, *WINDOW)
        outputs = net(image)
        self.detector.generate_anchors(image, {"classification": outputs[:2]})
        self.register_buffer("anchors", self.detector.anchors[0])

    def forward(self, image):
        outputs = self.net(image)
        flat = lambda maps, numbers: torch.cat(
            [m.view(1, len(SHAPES), numbers, -1).permute(0, 3, 1, 2).reshape(-1, numbers) for m in maps]
        )
        codes = flat(outputs[2:], 6)
        sides = self.anchors[:, 3:] - self.anchors[:, :3]
        middle = codes[:, :3] * sides + (self.anchors[:, 3:] + self.anchors[:, :3]) / 2
        size = torch.exp(torch.clamp(codes[:, 3:], max=float(np.log(1000 / 16)))) * sides
        low, high = middle - size / 2, middle + size / 2
        boxes = torch.stack([low[:, 0], low[:, 1], high[:, 0], high[:, 1], low[:, 2], high[:, 2]], 1)
        scores, labels = torch.sigmoid(flat(outputs[:2], LABELS)).max(1)
        return boxes[None], scores[None], labels[None]


def export(module, name, outputs, dynamic):
    axes = {2: "x", 3: "y", 4: "z"} if dynamic else None
    torch.onnx.export(
        module, torch.zeros(1, 1, *WINDOW), HERE / name, input_names=["image"], output_names=outputs, dynamo=False,
        dynamic_axes={"image": axes, **{o: axes for o in outputs}} if dynamic else None, opset_version=17,
    )  # fmt: skip


def voxels():
    """int16 [slices, rows, columns]: bright blobs in noise."""
    rng = np.random.default_rng(3)
    z, y, x = np.mgrid[:14, :44, :38]
    volume = rng.normal(-600, 60, z.shape)
    for cz, cy, cx, size in [(4, 12, 10, 3), (9, 30, 26, 5), (10, 10, 30, 4), (3, 36, 8, 4)]:
        volume += 700 * np.exp(-(((z - cz) * 1.6) ** 2 + (y - cy) ** 2 + (x - cx) ** 2) / (2 * size**2))
    return np.round(volume).astype(np.int16)


# Where the series lie: position of the first voxel, directions along columns, rows and slices (x to the left, y to the
# back, z to the head), and spacings along columns, rows and slices.
def turned(angle, axis):
    c, s = np.cos(angle), np.sin(angle)
    others = [i for i in range(3) if i != axis]
    m = np.eye(3)
    m[np.ix_(others, others)] = [[c, -s], [s, c]]
    return m


OBLIQUE = turned(0.2, 0) @ turned(-0.15, 1) @ turned(0.25, 2)
SERIES = {
    "axial": ([-20.5, 13.25, -87.0], np.eye(3), [1.1, 1.3, 2.5]),
    "reversed": ([31.0, -7.5, 42.0], np.diag([-1.0, -1.0, -1.0]), [1.1, 1.3, 2.5]),
    "coronal": ([-20.0, 30.0, 55.0], np.array([[1.0, 0, 0], [0, 0, -1], [0, -1, 0]]), [0.9, 1.4, 1.7]),
    "oblique": ([-20.5, 13.25, -87.0], OBLIQUE, [1.1, 1.3, 2.5]),
}


def affine(position, directions, spacing):
    """From indices of column, row and slice to MONAI's world (to the right, the front, the head)."""
    a = np.eye(4)
    a[:3, :3] = directions * np.asarray(spacing)
    a[:3, 3] = position
    return np.diag([-1.0, -1, 1, 1]) @ a


PREPARE = Compose(
    [
        Orientation("RAS", labels=(("L", "R"), ("P", "A"), ("I", "S"))),
        Spacing(PIXDIM, mode="bilinear", padding_mode="border"),
        ScaleIntensityRange(-1024.0, 300.0, 0.0, 1.0, clip=True),
    ]
)


def prepared(series):
    position, directions, spacing = SERIES[series]
    array = voxels().transpose(2, 1, 0)[None].astype(np.float32)
    return PREPARE(MetaTensor(array, affine=torch.tensor(affine(position, directions, spacing))))


def told(boxes, scores, labels, image):
    """Boxes in the patient: their centres and their sides along the tensor's axes, best first; x to the left, y to the back."""
    world = image.affine.numpy() if hasattr(image.affine, "numpy") else np.asarray(image.affine)
    boxes, scores, labels = (np.asarray(each, dtype=np.float64) for each in (boxes, scores, labels))
    order = np.argsort(-scores, kind="stable")
    corners = boxes[:, :3], boxes[:, 3:]
    centre = (corners[0] + corners[1]) / 2 @ world[:3, :3].T + world[:3, 3]
    size = (corners[1] - corners[0]) * np.linalg.norm(world[:3, :3], axis=0)
    return [
        {
            "label": int(labels[i]),
            "score": float(scores[i]),
            "centre": [-centre[i][0], -centre[i][1], centre[i][2]],
            "size": list(size[i]),
        }
        for i in order
    ]


def checked(boxes, image, expected):
    """MONAI's own way to the world is the same where no axis is oblique."""
    world = AffineBox()(torch.as_tensor(np.asarray(boxes)), torch.as_tensor(image.affine)).numpy()
    centre = (world[:, :3] + world[:, 3:]) / 2 * [-1, -1, 1]
    for one in expected:
        assert np.abs(centre - one["centre"]).max(1).min() < 1e-3, one


def whole(made, image):
    found = made([image.as_tensor()])[0]
    boxes, keep = ClipBoxToImage(remove_empty=True)(found["box"], [found["label"], found["label_scores"]], image.shape[1:])
    labels, scores = keep
    expected = told(boxes, scores, labels, image)
    checked(boxes, image, expected)
    return expected


def windows(image):
    """First voxels of the windows, and the image, in whose middle a smaller one lies (MONAI's sliding_window_inference)."""
    sides = list(image.shape[1:])
    assert all(side >= window for side, window in zip(sides, WINDOW)), sides
    interval = _get_scan_interval(sides, WINDOW, 3, [OVERLAP] * 3)
    return [[one.start for one in part] for part in dense_patch_slices(sides, WINDOW, interval)]


def of_windows(made, image):
    for start in windows(image):
        part = image.as_tensor()[(slice(None), *(slice(s, s + w) for s, w in zip(start, WINDOW)))]
        found = made([part])[0]
        yield start, found["box"], found["label_scores"], found["label"]


def by_nms(made, image):
    boxes, scores, labels = [], [], []
    for start, own, score, label in of_windows(made, image):
        boxes.append(own + torch.tensor(start + start, dtype=torch.float32))
        scores.append(score)
        labels.append(label)
    return merged(torch.cat(boxes), torch.cat(scores), torch.cat(labels), image)


def merged(boxes, scores, labels, image):
    keep = batched_nms(boxes, scores, labels, SELECT["nms_thresh"], max_proposals=SELECT["detections_per_img"])
    return told(boxes[keep], scores[keep], labels[keep], image)


def listed_by_nms(lists, image):
    """What the graph that lists its boxes gives, window by window, chosen and merged by MONAI's functions."""
    boxes, scores, labels = [], [], []
    for start in windows(image):
        part = image.as_tensor()[(slice(None), *(slice(s, s + w) for s, w in zip(start, WINDOW)))]
        own, score, label = (each[0] for each in lists(part[None]))
        best = score.argsort(descending=True, stable=True)[: SELECT["topk_candidates_per_level"]]
        best = best[score[best] > SELECT["score_thresh"]]
        own, keep = clip_boxes_to_image(own[best][:, [0, 1, 4, 2, 3, 5]], WINDOW, remove_empty=True)
        score, label = score[best][keep], label[best][keep]
        kept = batched_nms(own, score, label, SELECT["nms_thresh"], max_proposals=SELECT["detections_per_img"])
        boxes.append(own[kept] + torch.tensor(start + start, dtype=torch.float32))
        scores.append(score[kept])
        labels.append(label[kept])
    return merged(torch.cat(boxes), torch.cat(scores), torch.cat(labels), image)


def nndetection(root):
    """Its clustering, whose file asks for two functions of another file alone."""

    def load(name, path):
        spec = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        return module

    for name in ("nndet", "nndet.core", "nndet.core.boxes", "nndet.utils"):
        sys.modules[name] = types.ModuleType(name)
    # A decorator for mixed precision, which changes nothing here
    sys.modules["nndet.utils"].to_dtype = None
    ops = load("nndet.core.boxes.ops", root / "nndet/core/boxes/ops.py")
    sys.modules["nndet.core.boxes"].box_iou = ops.box_iou
    sys.modules["nndet.core.boxes"].box_area = ops.box_area
    return load("nndet_wbc", root / "nndet/inference/detection/wbc.py").batched_wbc


def by_clusters(made, image, cluster, threshold):
    boxes, scores, labels, weights = [], [], [], []
    seen = np.zeros(image.shape[1:])
    for start, own, score, label in of_windows(made, image):
        centre = ((own[:, :3] + own[:, 3:]) / 2).numpy()
        middle = np.array(WINDOW) / 2
        weights.append(torch.tensor(np.exp(-(((centre - middle) / (0.8 * middle)) ** 2) / 2).mean(1)).float())
        boxes.append(own + torch.tensor(start + start, dtype=torch.float32))
        scores.append(score)
        labels.append(label)
        seen[tuple(slice(s, s + w) for s, w in zip(start, WINDOW))] += 1
    boxes, scores, labels, weights = (torch.cat(each) for each in (boxes, scores, labels, weights))
    # BoxEnsembler.process_ensemble: the best are clustered, each as often expected as windows see it in the mean
    order = scores.argsort(descending=True, stable=True)[: SELECT["topk_candidates_per_level"]]
    boxes, scores, labels, weights = (each[order] for each in (boxes, scores, labels, weights))
    expected = [seen[tuple(slice(int(box[a]), int(box[a + 3])) for a in range(3))].mean() for box in boxes]
    ordered = boxes[:, [0, 1, 3, 4, 2, 5]]
    found, score, label = cluster(
        ordered, scores, labels, weights, SELECT["nms_thresh"], torch.tensor(expected).float(), threshold
    )
    return told(found[:, [0, 1, 4, 2, 3, 5]], score, label, image)


def found(made, image):
    one = made([image.as_tensor()])[0]
    return one["box"], one["label_scores"], one["label"]


@torch.no_grad()
def main():
    net = network()
    made = detector(net)
    export(net, "maps.onnx", ["scores_0", "scores_1", "boxes_0", "boxes_1"], True)
    np.save(HERE / "voxels.npy", voxels())
    lists = ListsBoxes(net)
    export(lists, "listed.onnx", ["boxes", "scores", "labels"], False)
    cluster = nndetection(pathlib.Path(sys.argv[1]))
    expected = {"series": {}, "whole": {}, "nms": {}, "weighted": {}, "listed": {}}
    for name, (position, directions, spacing) in SERIES.items():
        expected["series"][name] = {
            "position": position, "directions": directions.T.tolist(), "spacing": spacing
        }  # fmt: skip
        image = prepared(name)
        expected["whole"][name] = whole(made, image) if name != "oblique" else told(*found(made, image), image)
        expected["nms"][name] = by_nms(made, image)
        expected["weighted"][name] = by_clusters(made, image, cluster, SELECT["score_thresh"])
        expected["listed"][name] = listed_by_nms(lists, image)
        print(name, tuple(image.shape), {kind: len(own[name]) for kind, own in expected.items() if kind != "series"})
    (HERE / "expected.json").write_text(json.dumps(rounded(expected)) + "\n")


def rounded(value):
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(one) for one in value]
    return round(value, 9) if isinstance(value, float) else value


main()
