"""Writes an image and the masks of each label that the network "instances" finds on it.

Run once, with pydicom, numpy, onnx and onnxruntime, in this folder; the files are stored: python prototypes.py
instances.onnx comes from `node dist/test/support/reach-models.js`. Nothing of Radserve is used: the maps are enlarged by
ONNX Runtime's Resize (linear, half_pixel), and boxes are chosen by numpy.
"""

import pathlib

import numpy as np
import onnxruntime
import pydicom
from onnx import TensorProto, helper
from pydicom.dataset import FileMetaDataset
from pydicom.uid import ComputedRadiographyImageStorage, ExplicitVRLittleEndian

HERE = pathlib.Path(__file__).parent
ROWS, COLUMNS, SIDE = 48, 64, 64
TOP = (SIDE - ROWS) // 2
CPU = ["CPUExecutionProvider"]


def write_image():
    y, x = np.mgrid[0:ROWS, 0:COLUMNS]
    ds = pydicom.Dataset()
    ds.file_meta = FileMetaDataset()
    ds.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    ds.file_meta.MediaStorageSOPClassUID = ds.SOPClassUID = ComputedRadiographyImageStorage
    ds.file_meta.MediaStorageSOPInstanceUID = ds.SOPInstanceUID = "1.2.826.0.1.3680043.10.2.1"
    ds.StudyInstanceUID, ds.SeriesInstanceUID = "1.2.826.0.1.3680043.10.2.2", "1.2.826.0.1.3680043.10.2.3"
    ds.PatientName, ds.PatientID, ds.PatientBirthDate, ds.PatientSex = "Phantom", "REACH", "", "O"
    ds.StudyDate, ds.StudyTime, ds.StudyID, ds.AccessionNumber = "20261123", "120000", "1", ""
    ds.ReferringPhysicianName, ds.Manufacturer, ds.Modality, ds.BodyPartExamined = "", "Radserve", "CR", "CHEST"
    ds.SeriesNumber, ds.InstanceNumber, ds.ViewPosition, ds.PatientOrientation = 1, 1, "PA", ["L", "F"]
    ds.ImageType, ds.ImagerPixelSpacing = ["ORIGINAL", "PRIMARY"], [1, 1]
    ds.SamplesPerPixel, ds.PhotometricInterpretation = 1, "MONOCHROME2"
    ds.Rows, ds.Columns = ROWS, COLUMNS
    ds.BitsAllocated, ds.BitsStored, ds.HighBit, ds.PixelRepresentation = 16, 12, 11, 0
    ds.PixelData = (500 + 30 * x + 20 * y).astype("<u2").tobytes()
    ds.save_as(HERE / "image.dcm", enforce_file_format=True)


def enlarged(logits):
    """16 x 16 to the sides of the tensor."""
    node = helper.make_node("Resize", ["x", "", "", "size"], ["y"], mode="linear",
                            coordinate_transformation_mode="half_pixel")
    graph = helper.make_graph(
        [node], "resize",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 16, 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1, SIDE, SIDE])],
        [helper.make_tensor("size", TensorProto.INT64, [4], [1, 1, SIDE, SIDE])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=CPU)
    return session.run(None, {"x": logits[None, None].astype(np.float32)})[0][0, 0]


def overlap(a, b):
    sides = np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2])
    shared = np.prod(np.maximum(sides, 0))
    return shared / (np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2]) - shared)


def main():
    write_image()
    session = onnxruntime.InferenceSession(HERE / "instances.onnx", providers=CPU)
    table, prototypes = session.run(None, {"x": np.zeros((1, 1, SIDE, SIDE), np.float32)})
    rows = table[0].T
    boxes = np.concatenate([rows[:, :2] - rows[:, 2:4] / 2, rows[:, :2] + rows[:, 2:4] / 2], 1)
    scores, labels = rows[:, 4:6].max(1), rows[:, 4:6].argmax(1)
    kept = []
    for i in np.argsort(-scores, kind="stable"):
        if scores[i] < 0.5:
            continue
        if all(labels[k] != labels[i] or overlap(boxes[k], boxes[i]) <= 0.45 for k in kept):
            kept.append(i)
    masks = np.zeros((2, ROWS, COLUMNS), np.uint8)
    found, least = [], 9
    y, x = np.mgrid[0:ROWS, 0:COLUMNS] + 0.5
    for i in kept:
        x0, y0, x1, y1 = np.clip(boxes[i] - [0, TOP, 0, TOP], 0, [COLUMNS, ROWS, COLUMNS, ROWS])
        if x1 <= x0 or y1 <= y0:
            continue
        found.append([labels[i], x0, y0, x1, y1])
        logits = enlarged(np.einsum("k,khw->hw", rows[i, 6:], prototypes[0]))[TOP:TOP + ROWS]
        threshold = (0.5, 0.6)[labels[i]]
        margin = logits - np.log(threshold / (1 - threshold))
        inside = (x >= x0) & (x < x1) & (y >= y0) & (y < y1)
        least = min(least, np.abs(margin[inside]).min())
        masks[labels[i]] |= ((margin >= 0) & inside).astype(np.uint8)
    np.save(HERE / "boxes.npy", np.asarray(found, np.float32))
    for label, name in enumerate(["nodule", "mass"]):
        np.save(HERE / f"{name}.npy", masks[label][None])
    print("pixels", masks.sum((1, 2)), "boxes", len(found), "nearest to a threshold", least)


main()
