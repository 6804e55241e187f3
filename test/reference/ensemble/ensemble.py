"""Writes what the mean of three networks finds in the CT series of ../inputs, slice by slice.

Run once, with pydicom, numpy and onnxruntime, in this folder; the files are stored: python ensemble.py
fold_0.onnx to fold_2.onnx come from `node dist/test/support/reach-models.js`. Nothing of Radserve is used.
"before" is the mean of the logits, "after" the mean of the probabilities; both are computed in float64.
"""

import pathlib

import numpy as np
import onnxruntime
import pydicom

HERE = pathlib.Path(__file__).parent


def softmax(x, axis):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def main():
    slices = [pydicom.dcmread(path) for path in (HERE / ".." / "inputs" / "series").glob("*.dcm")]
    slices.sort(key=lambda ds: ds.ImagePositionPatient[2])
    hu = np.stack([ds.pixel_array * float(ds.RescaleSlope) + float(ds.RescaleIntercept) for ds in slices])
    x = (hu * 0.002 + 0.5).astype(np.float32)[:, None]
    found = []
    for fold in range(3):
        session = onnxruntime.InferenceSession(HERE / f"fold_{fold}.onnx", providers=["CPUExecutionProvider"])
        found.append([value.astype(np.float64) for value in session.run(["mask", "scores"], {"x": x})])
    logits, scores = (np.stack(values) for values in zip(*found))
    means = {
        "before": (softmax(logits.mean(0), 1), sigmoid(scores.mean(0))),
        "after": (softmax(logits, 2).mean(0), sigmoid(scores).mean(0)),
    }
    for name, (probabilities, probability) in means.items():
        labels = probabilities.argmax(1)
        second, best = np.sort(probabilities, 1)[:, -2:].transpose(1, 0, 2, 3)
        print(name, "pixels of each label", np.bincount(labels.ravel()), "closest", (best - second).min())
        for label, number in (("bright", 1), ("soft", 2)):
            np.save(HERE / f"{name}-{label}.npy", (labels == number).astype(np.uint8))
        # As logits, because that is what stored scores are.
        np.save(HERE / f"{name}-scores.npy", np.log(probability / (1 - probability)))
    print("pixels that differ", (means["before"][0].argmax(1) != means["after"][0].argmax(1)).sum())
    print("scores that differ by", np.abs(means["before"][1] - means["after"][1]).max())


main()
