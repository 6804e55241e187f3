"""What the script that a user would write does with one image: read, infer, write. `service.py` and `folder.py` use it."""

import hashlib
import json
import os

import cv2
import numpy as np
import onnxruntime as ort
from pydicom import dcmread

from settings import LABELS, SETTINGS

SAME = SETTINGS["same"]
ALL = SETTINGS["all"]

cv2.setNumThreads(1)


def session():
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    return ort.InferenceSession(SETTINGS["model"], options, providers=["CPUExecutionProvider"])


MODEL = session()
INPUT = MODEL.get_inputs()[0].name
OUTPUT = MODEL.get_outputs()[0].name


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def read(path):
    """The data set, its stored values, and the file's hash where it is asked for."""
    if os.path.isdir(path):
        return read_series(path)
    if not SAME:
        dataset = dcmread(path)
        return dataset, dataset.pixel_array, None
    with open(path, "rb") as file:
        data = file.read()
    from io import BytesIO

    dataset = dcmread(BytesIO(data))
    return dataset, dataset.pixel_array, sha256(data)


def read_series(folder):
    """The first data set of a series and the values of all its slices, in the order of their places."""
    slices = [dcmread(os.path.join(folder, name)) for name in os.listdir(folder)]
    x, y = (np.array([float(v) for v in slices[0].ImageOrientationPatient[i : i + 3]]) for i in (0, 3))
    normal = np.cross(x, y)
    slices.sort(key=lambda each: float(np.dot(normal, [float(v) for v in each.ImagePositionPatient])))
    stored = np.stack([each.pixel_array for each in slices])
    if not SAME:
        return slices[0], stored, None
    hashes = []
    for each in slices:
        with open(each.filename, "rb") as file:
            hashes.append(sha256(file.read()))
    return slices[0], stored, hashes


def hounsfield(dataset, stored):
    values = stored.astype(np.float32)
    slope = float(dataset.get("RescaleSlope", 1))
    if slope != 1:
        values *= np.float32(slope)
    values += np.float32(dataset.get("RescaleIntercept", 0))
    return values


def drop_border(mask, label):
    """Takes out of the mask what of this label is connected to the border (8-connected, as the model's manifest says)."""
    part = (mask == label).view(np.uint8)
    count, components = cv2.connectedComponents(part, connectivity=8, ltype=cv2.CV_16U)
    if count <= 1:
        return
    touches = np.zeros(count, bool)
    for edge in (components[0], components[-1], components[:, 0], components[:, -1]):
        touches[edge] = True
    touches[0] = False
    mask[touches[components]] = 0


def tissue(dataset, stored):
    tensor = hounsfield(dataset, stored)[np.newaxis, np.newaxis]
    raw = MODEL.run([OUTPUT], {INPUT: tensor})[0]
    mask = raw.reshape(stored.shape).astype(np.uint8)
    drop_border(mask, 1)
    counts = np.bincount(mask.ravel(), minlength=len(LABELS) + 1)
    row, column = (float(mm) for mm in dataset.PixelSpacing)
    findings = [
        {
            "label": each["label"],
            "code": each["code"],
            "present": bool(counts[i + 1]),
            "area": {"pixels": int(counts[i + 1]), "cm2": counts[i + 1] * row * column / 100},
        }
        for i, each in enumerate(LABELS)
    ]
    return findings, mask, raw


def shrunk(dataset, stored):
    """A picture shrunk to the network's size, between -1 and 1."""
    side = SETTINGS["side"]
    top = float((1 << int(dataset.BitsStored)) - 1)
    small = cv2.resize(stored, (side, side), interpolation=cv2.INTER_AREA).astype(np.float32)
    small *= np.float32(2 / top)
    small -= np.float32(1)
    return small


def found(logits):
    probabilities = 1 / (1 + np.exp(-logits))
    return [
        {"label": each["label"], "score": float(p), "threshold": 0.5, "present": bool(p >= 0.5)}
        for each, p in zip(LABELS, probabilities)
    ]


def scores(dataset, stored):
    """A probability for each label."""
    raw = MODEL.run([OUTPUT], {INPUT: shrunk(dataset, stored)[np.newaxis, np.newaxis]})[0]
    return found(raw[0]), None, raw


def frames(dataset, stored):
    """A probability for each label in each frame."""
    tensor = np.stack([shrunk(dataset, frame) for frame in stored])[:, np.newaxis]
    raw = MODEL.run([OUTPUT], {INPUT: tensor})[0]
    return [{"frame": i + 1, "findings": found(logits)} for i, logits in enumerate(raw)], None, raw


def volume(dataset, stored):
    """The label of each voxel, and the volume of each label."""
    raw = MODEL.run([OUTPUT], {INPUT: hounsfield(dataset, stored)[np.newaxis, np.newaxis]})[0]
    mask = raw[0].argmax(axis=0).astype(np.uint8)
    counts = np.bincount(mask.ravel(), minlength=len(LABELS) + 1)
    row, column = (float(mm) for mm in dataset.PixelSpacing)
    ml = row * column * float(dataset.SliceThickness) / 1000
    findings = [
        {"label": each["label"], "present": bool(counts[i + 1]), "volume": {"ml": counts[i + 1] * ml}}
        for i, each in enumerate(LABELS)
    ]
    return findings, mask, raw


INFER = {"tissue": tissue, "scores": scores, "frames": frames, "volume": volume}[SETTINGS["kind"]]


def write(path, data):
    if not SAME:
        with open(path, "wb") as file:
            file.write(data)
        return
    part = path + ".part"
    fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        os.write(fd, data)
        os.fsync(fd)
    finally:
        os.close(fd)


def publish(folder, paths):
    """Renames what `write` has written, the receipt last, and syncs the folder."""
    for path in paths:
        os.rename(path + ".part", path)
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def infer(path, folder):
    """Reads one image, writes its results into the folder, and gives the receipt."""
    dataset, stored, file_sha256 = read(path)
    findings, mask, raw = INFER(dataset, stored)
    name = os.path.basename(path)
    made = {}
    if ALL:
        # highdicom takes memory, which a script that writes no objects does not have
        from objects import objects

        made = objects(dataset, stored, mask, findings, name)
    receipt = {
        "status": "completed",
        "source": {
            "name": name,
            "rows": int(dataset.Rows),
            "columns": int(dataset.Columns),
            "modality": str(dataset.Modality),
            "sop_instance_uid": str(dataset.SOPInstanceUID),
            "series_instance_uid": str(dataset.SeriesInstanceUID),
            "study_instance_uid": str(dataset.StudyInstanceUID),
        },
        "models": [{"name": SETTINGS["name"], "findings": findings, "outputs": [{"path": each} for each in made]}],
    }
    if SAME:
        receipt["source"]["file_sha256"] = file_sha256
        receipt["source"]["pixel_sha256"] = sha256(np.ascontiguousarray(stored))
        receipt["models"][0]["raw_sha256"] = sha256(raw)
        for each, data in zip(receipt["models"][0]["outputs"], made.values()):
            each["sha256"] = sha256(data)
    text = json.dumps(receipt, indent=2).encode()
    paths = [os.path.join(folder, each) for each in made]
    paths.append(os.path.join(folder, name + ".json"))
    for target, data in zip(paths, [*made.values(), text]):
        write(target, data)
    if SAME:
        publish(folder, paths)
    return receipt
