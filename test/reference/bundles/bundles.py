"""Writes the folders beside it: for bundles of the MONAI Model Zoo a small image, a small network with random weights in
place of theirs, what MONAI gives that network, and what it makes of its output.

Run once, with torch 2.15.0, monai 1.6.1, nibabel 5.4.2, onnx 1.23.2, itk, scikit-image and pillow, and the values are stored:
python bundles.py ZOO [NAME...]
ZOO is a folder with a folder for each bundle, which holds its inference.json or inference.yaml and metadata.json; those of
picture_windows and volume_resized lie beside this file. Python has to find the folder scripts of renalStructures_CECT_segmentation. Their
steps are run as they stand, but for sizes: windows and pictures are made small (SMALL below, and small in
test/models/bundles.test.ts). Volumes are [slices, rows, columns] as a DICOM series lies, to the left, to the back and to
the head; input.npy has the axes of MONAI, and labels.npy those of the image.
"""

import json
import sys
import tempfile
from pathlib import Path

import nibabel
import numpy as np
import onnx
import torch
from monai.bundle import ConfigParser
from monai.data import MetaTensor
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

HERE = Path(__file__).parent
ZOO = Path(sys.argv[1])

SMALL = {
    "brats_mri_segmentation": {"roi_size": [16, 16, 8]},
    "breast_density_classification": {"spatial_size": [23, 17]},
    "classification_template": {},
    "endoscopic_inbody_classification": {"spatial_size": [24, 16]},
    "endoscopic_tool_segmentation": {"spatial_size": [48, 32]},
    "picture_windows": {},
    "renalStructures_CECT_segmentation": {"roi_size": [12, 12, 8]},
    "volume_resized": {},
    "pediatric_abdominal_ct_segmentation": {"roi_size": [8, 8, 6]},
    "segmentation_template": {},
    "swin_unetr_btcv_segmentation": {"roi_size": [8, 8, 6]},
    "ventricular_short_axis_3label": {"roi_size": [16, 16]},
    "wholeBody_ct_segmentation": {"roi_size": [16, 12, 12]},
    "wholeBrainSeg_Large_UNEST_segmentation": {"roi_size": [12, 12, 8]},
}
# Steps behind those of a bundle
THEN = {
    "swin_unetr_btcv_segmentation": [{"_target_": "KeepLargestConnectedComponentd", "keys": "pred"}],
}
SPACING = (2.0, 0.9, 0.8)


def volume(seed, sides=(12, 22, 20), ct=True, border=0, outside=0):
    """Smooth blobs and noise: HU, or values above 0, within a border of `outside`."""
    rng = np.random.default_rng(seed)
    z, y, x = np.meshgrid(*(np.linspace(0, 1, s) for s in sides), indexing="ij")
    values = np.zeros(sides)
    for _ in range(6):
        centre, size, height = rng.random(3), 0.1 + 0.2 * rng.random(), rng.normal()
        values += height * np.exp(-((z - centre[0]) ** 2 + (y - centre[1]) ** 2 + (x - centre[2]) ** 2) / size**2)
    values = values * 300 + rng.normal(size=sides) * 40
    values = values if ct else np.maximum(values + 900, 1)
    if border:
        inside = np.zeros(sides, bool)
        inside[border:-1, 1 : -border - 1, border:-border] = True
        values = np.where(inside, values, outside)
    return np.round(values).astype(np.int16)


def picture(seed, height, width, colours):
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    planes = [
        120 + 70 * np.sin(x / (5 + 2 * c) + c) * np.cos(y / (4 + c)) + rng.normal(size=(height, width)) * 12
        for c in range(colours)
    ]
    values = np.clip(np.round(np.stack(planes, -1)), 0, 255).astype(np.uint8)
    values[: height // 6, : width // 5] = 0
    return values if colours == 3 else values[..., 0]


IMAGES = {
    "brats_mri_segmentation": np.stack([volume(seed, ct=False, border=2) for seed in (1, 2, 3, 4)]),
    "breast_density_classification": picture(5, 53, 37, 3),
    "classification_template": picture(6, 30, 26, 1),
    "endoscopic_inbody_classification": picture(7, 37, 53, 3),
    # Rows grow to 32, columns shrink to 48, and back
    "endoscopic_tool_segmentation": picture(8, 20, 61, 3),
    "picture_windows": picture(14, 40, 47, 3),
    "volume_resized": volume(15),
    "renalStructures_CECT_segmentation": np.stack([volume(seed) for seed in (16, 17, 18)]),
    "pediatric_abdominal_ct_segmentation": volume(9, border=3, outside=-1000),
    "segmentation_template": volume(10, ct=False),
    # No label has two largest regions
    "swin_unetr_btcv_segmentation": volume(22),
    "ventricular_short_axis_3label": volume(11, ct=False),
    # Nothing is 0: whether a voxel that is resampled to 0 counts as 0 is a matter of the rounding of MONAI's positions
    "wholeBody_ct_segmentation": volume(12) + np.int16(1200),
    "wholeBrainSeg_Large_UNEST_segmentation": volume(13, ct=False, border=2),
}


def layers(seed, sides, channels, labels, scores):
    """Two convolutions of random weights, and for scores their mean over the sides."""
    generator = torch.Generator().manual_seed(seed)
    random = lambda *shape: torch.randn(shape, generator=generator) * 0.5
    kind = torch.nn.Conv3d if sides == 3 else torch.nn.Conv2d
    first, last = kind(channels, 4, 3, padding=1), kind(4, labels, 1)
    with torch.no_grad():
        for parameter in (*first.parameters(), *last.parameters()):
            parameter.copy_(random(*parameter.shape))
    middle = torch.nn.LeakyReLU(0.01)
    end = [torch.nn.AdaptiveAvgPool3d(1) if sides == 3 else torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()]
    return first, last, torch.nn.Sequential(first, middle, last, *(end if scores else [])).eval()


def balance(last, network, given, scores):
    """Scales and shifts the last layer, so that each channel is the highest somewhere."""
    with torch.no_grad():
        last.weight.mul_(2 / network(given).std())
        if not scores:
            # No voxel's logit is 0 but for rounding
            last.bias.sub_(network(given).flatten(2).median(-1).values.mean(0) - 0.03)


def export(path, first, last, sides, channels, labels, scores):
    names = [f"side{i}" for i in range(sides)]
    weights = {"w1": first.weight, "b1": first.bias, "w2": last.weight, "b2": last.bias}
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["a"], pads=[1] * (2 * sides)),
        helper.make_node("LeakyRelu", ["a"], ["b"], alpha=0.01),
        helper.make_node("Conv", ["b", "w2", "b2"], ["c" if scores else "y"]),
    ]
    if scores:
        nodes += [helper.make_node("GlobalAveragePool", ["c"], ["d"]), helper.make_node("Flatten", ["d"], ["y"])]
    graph = helper.make_graph(
        nodes,
        "stand-in",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", channels, *names])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", labels, *([] if scores else names)])],
        [numpy_helper.from_array(value.detach().numpy(), name) for name, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    path.write_bytes(model.SerializeToString())


def write(folder, image):
    """The image as files that MONAI reads."""
    if image.dtype == np.uint8:
        Image.fromarray(image).save(folder / "image.png")
        return str(folder / "image.png")
    affine = np.diag([-SPACING[2], -SPACING[1], SPACING[0], 1.0])
    paths = []
    for c, channel in enumerate(image if image.ndim == 4 else [image]):
        paths.append(str(folder / f"{c}.nii.gz"))
        nibabel.save(nibabel.Nifti1Image(channel.T, affine), paths[-1])
    return paths if len(paths) > 1 else paths[0]


def make(name):
    small, image = SMALL[name], IMAGES[name]
    folder = HERE / name if (HERE / name / "metadata.json").exists() else ZOO / name
    file = next(path for path in folder.iterdir() if path.name.startswith("inference"))
    metadata = json.loads((folder / "metadata.json").read_text())["network_data_format"]
    (given,), (taken,) = metadata["inputs"].values(), metadata["outputs"].values()
    parser = ConfigParser()
    parser.read_config(str(file))
    for unused in ("imports", "import"):
        parser.config.pop(unused, None)
    if "roi_size" in small:
        parser["inferer"]["roi_size"] = small["roi_size"]
    if "spatial_size" in small:
        for step in parser["preprocessing"]["transforms"]:
            if step["_target_"] == "Resized":
                step["spatial_size"] = small["spatial_size"]
    for index, step in enumerate(parser["postprocessing"]["transforms"]):
        if step["_target_"].startswith("SaveImage"):
            parser["postprocessing"]["transforms"][index : index + 1] = THEN.get(name, [])
    out = HERE / name
    out.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        path = write(Path(temporary), image)
        phases = {"artery": 0, "vein": 1, "excret": 2}
        joined = name.startswith("renal")
        files = {key: path[at] for key, at in phases.items()} | {"label": path[0]} if joined else {"image": path}
        item = parser.get_parsed_content("preprocessing")(files)
        if image.dtype == np.uint8:
            (out / "image.png").write_bytes(Path(path).read_bytes())
        else:
            np.save(out / "voxels.npy", image)
            np.save(out / "spacing.npy", np.array(SPACING))
    prepared = item["image"]
    sides = len(given["spatial_shape"])
    scores = taken["spatial_shape"][0] == 1
    channels, labels = given["num_channels"], taken["num_channels"]
    seed = len(name)
    first, last, network = layers(seed, sides, channels, labels, scores)
    sample = torch.as_tensor(np.asarray(prepared))[None].float()
    balance(last, network, sample[0].permute(3, 0, 1, 2) if sample.ndim - 2 > sides else sample, scores)
    export(out / "model.onnx", first, last, sides, channels, labels, scores)
    np.save(out / "input.npy", np.asarray(prepared, np.float32))
    with torch.no_grad():
        prediction = parser.get_parsed_content("inferer")(prepared[None].float(), network)[0]
    item["pred"] = prediction if isinstance(prediction, MetaTensor) else MetaTensor(prediction)
    if scores:
        # A bundle that has the highest alone does without it
        np.save(out / "scores.npy", np.asarray(torch.softmax(torch.as_tensor(item["pred"]), 0), np.float32))
    for step in parser.get_parsed_content("postprocessing").transforms:
        if not type(step).__name__.startswith("Save") and "label" not in getattr(step, "keys", ()):
            item = step(item)
        if scores and type(step).__name__ == "Activationsd":
            np.save(out / "scores.npy", np.asarray(item["pred"], np.float32))
    found = np.asarray(item["pred"])
    if not scores:
        found = np.round(found[0]).astype(np.uint8).T
        assert found.shape == (image.shape[:2] if image.dtype == np.uint8 else image.shape[-3:])
        np.save(out / "labels.npy", np.ascontiguousarray(found))
    print(name, prepared.shape, np.unique(found, return_counts=True)[1][:12], file=sys.stderr)


for wanted in sys.argv[2:] or SMALL:
    make(wanted)
