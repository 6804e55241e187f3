"""Holds segmentations in the grid of a network against its tensor, with highdicom, which knows nothing of Radserve.

Takes a JSON file: a list of {"title", "seg": path, "raw": path of the tensor, "dtype", "shape", "thresholds", "middle": of
the volume, in the patient, "axes": of the network, each {"along": direction in the patient, "spacing", "side", "content":
voxels that hold the volume, "begin": the first of them}}. Prints one line for each thing that is wrong and, at the end, how
many objects were read.
"""

import json
import sys
import warnings

import highdicom
import numpy as np

warnings.simplefilter("ignore")


def faults(entry):
    seg = highdicom.seg.segread(entry["seg"])
    volume = seg.get_volume(rescale_fractional=False)
    found = volume.array
    index = np.stack(np.meshgrid(*[np.arange(side) for side in found.shape[:3]], indexing="ij"), axis=-1)
    places = index @ volume.affine[:3, :3].T + volume.affine[:3, 3]
    away = places - np.array(entry["middle"])
    at = []
    for axis in entry["axes"]:
        along = away @ np.array(axis["along"]) / axis["spacing"] + axis["begin"] + axis["content"] / 2 - 0.5
        if np.abs(along - np.rint(along)).max() > 1e-5:
            yield "has voxels that are none of the network's"
        at.append(np.rint(along).astype(int))
    if found.shape[:3] != tuple(volume.spatial_shape) or found[..., 0].size != np.prod([a["content"] for a in entry["axes"]]):
        yield "has not all voxels of the network within the source"
    raw = np.fromfile(entry["raw"], dtype=entry["dtype"]).reshape(entry["shape"])[0]
    own = raw[:, at[0], at[1], at[2]]
    for number in range(1, found.shape[-1] + 1):
        plane = found[..., number - 1]
        if entry["dtype"] == "uint8":
            wrong = plane != (own[0] == number)
        elif seg.segmentation_type.value == "FRACTIONAL":
            wrong = np.abs(plane - 255 * own[number - 1].astype(float)) > 0.5 + 1e-4
        else:
            wrong = plane != (own[number - 1] >= np.float32(entry["thresholds"][number - 1]))
        if wrong.any() or not plane.any():
            yield f"has {np.count_nonzero(wrong)} wrong voxels in segment {number}"


read = 0
for entry in json.load(open(sys.argv[1])):
    read += 1
    try:
        for fault in faults(entry):
            print(f"{entry['title']} {fault}")
    except Exception as error:  # noqa: BLE001: whatever the reader raises is what we look for
        print(f"{entry['title']} cannot be read: {type(error).__name__}: {error}")
print(read)
