"""Writes what a network finds in the region that another found, in the CT series of ../inputs.

Run once, with pydicom, numpy, Pillow and onnxruntime, in this folder; the files are stored: python cascade.py
The graphs come from `node dist/test/support/reach-models.js`. Nothing of Radserve is used.
"looker" goes slice by slice: the smallest box round what is at least 230 HU, 2 mm more on each side (up to whole pixels),
stretched to 12 x 16 by Pillow's triangle filter, and its probabilities back by the same. A slice without is seen whole.
"deep" takes the box of the volume round what is at least 430 HU as it is.
"""

import math
import pathlib

import numpy as np
import onnxruntime
import pydicom
from PIL import Image

HERE = pathlib.Path(__file__).parent
MARGIN = 2.0


def session(path):
    return onnxruntime.InferenceSession(HERE / path, providers=["CPUExecutionProvider"])


def region(marked, spacing):
    """Slices of an array: the box round what is marked, with its margin; undefined where nothing is."""
    box = []
    for axis, places in enumerate(np.nonzero(marked)):
        more = math.ceil(MARGIN / spacing[axis])
        box.append(slice(max(0, places.min() - more), min(marked.shape[axis], places.max() + 1 + more)))
    return tuple(box)


def resized(plane, shape):
    image = Image.fromarray(plane.astype(np.float32), mode="F")
    return np.asarray(image.resize(shape[::-1], Image.Resampling.BILINEAR))


def main():
    slices = [pydicom.dcmread(path) for path in (HERE / ".." / "inputs" / "series").glob("*.dcm")]
    slices.sort(key=lambda ds: ds.ImagePositionPatient[2])
    hu = np.stack([ds.pixel_array * float(ds.RescaleSlope) + float(ds.RescaleIntercept) for ds in slices])
    hu = hu.astype(np.float32)

    found = session("finder.onnx").run(["mask"], {"x": hu[:, None]})[0][:, 0] >= 0
    network = session("../ensemble/fold_0.onnx")
    masks, scores = np.zeros((2, *hu.shape), np.uint8), []
    for z, plane in enumerate(hu):
        box = region(found[z], (1.5, 1.5)) if found[z].any() else (slice(0, 12), slice(0, 16))
        x = (resized(plane[box], (12, 16)) * 0.002 + 0.5).astype(np.float32)
        logits, score = network.run(["mask", "scores"], {"x": x[None, None]})
        e = np.exp(logits[0].astype(np.float64))
        probabilities = e / e.sum(0)
        back = np.stack([resized(p, plane[box].shape) for p in probabilities])
        second, best = np.sort(back, 0)[-2:]
        print("slice", z, box, "closest", (best - second).min())
        for label in (1, 2):
            masks[label - 1][z][box] = back.argmax(0) == label
        scores.append(score[0])
    np.save(HERE / "looker-scores.npy", np.stack(scores))

    found = session("finder_3d.onnx").run(["mask"], {"x": hu[None, None]})[0][0, 0] >= 0
    box = region(found, (2.5, 1.5, 1.5))
    x = (hu[box] * np.float32(0.001) + np.float32(0.37)).astype(np.float32)
    logits = session("deep.onnx").run(["mask"], {"x": x[None, None]})[0][0]
    print("volume", box, "closest", np.abs(logits).min())
    deep = np.zeros((2, *hu.shape), np.uint8)
    deep[(slice(None), *box)] = logits >= 0
    for place, label in enumerate(("bright", "soft")):
        np.save(HERE / f"looker-{label}.npy", masks[place])
        np.save(HERE / f"deep-{label}.npy", deep[place])
    print("pixels", masks.sum((1, 2, 3)), deep.sum((1, 2, 3)))


main()
