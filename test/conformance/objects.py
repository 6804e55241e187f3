"""Reads result objects back with pydicom and highdicom, which know nothing of Radserve.

Takes a JSON file: a list of {"sr": path or null, "seg": path or null, "sc": path or absent, "sources": SOP Instance UIDs
in the order of the frames, "frames": count where one source holds several, else absent, "rows", "columns", "segments":
count, "mask": path of a plane for each segment and frame, as the model gave it (0 and 1, or steps of 1/255), or null,
"picture": path of the PNG that the secondary capture shows}. Prints one line for each thing that is wrong and, at the
end, how many objects were read.
"""

import json
import sys
import warnings

import highdicom
import numpy as np
import pydicom
from PIL import Image

warnings.simplefilter("ignore")


def check_seg(entry):
    seg = highdicom.seg.segread(entry["seg"])
    if seg.number_of_segments != entry["segments"]:
        yield f"has {seg.number_of_segments} segments"
    raw = np.fromfile(entry["mask"], dtype=np.uint8)
    raw = raw.reshape(entry["segments"], -1, entry["rows"], entry["columns"])
    how = {"ignore_spatial_locations": True, "assert_missing_frames_are_empty": True, "rescale_fractional": False}
    if entry.get("frames"):
        numbers = range(1, entry["frames"] + 1)
        found = seg.get_pixels_by_source_frame(entry["sources"][0], list(numbers), **how)
    else:
        found = seg.get_pixels_by_source_instance(entry["sources"], **how)
    if not np.array_equal(np.moveaxis(found, -1, 0), raw):
        yield "is not the model's mask"
    for number in range(1, seg.number_of_segments + 1):
        description = seg.get_segment_description(number)
        if not description.tracking_uid or not description.tracking_id:
            yield f"has no tracking for segment {number}"
        if description.algorithm_identification is None:
            yield f"has no algorithm for segment {number}"


def check_sr(entry):
    report = highdicom.sr.srread(entry["sr"]).content
    groups = (
        report.get_planar_roi_measurement_groups()
        + report.get_volumetric_roi_measurement_groups()
        + report.get_image_measurement_groups()
    )
    if not groups:
        yield "has no measurement group"
    for group in groups:
        if group.tracking_uid is None or group.tracking_identifier is None:
            yield "has a group without tracking"
        group.finding_sites
        group.get_measurements()
        group.get_qualitative_evaluations()


def check_sc(entry):
    pixels = pydicom.dcmread(entry["sc"]).pixel_array
    picture = np.asarray(Image.open(entry["picture"]).convert("RGB"))
    if not np.array_equal(pixels, picture):
        yield "is not the picture"


read = 0
for entry in json.load(open(sys.argv[1])):
    for kind, check in (("sr", check_sr), ("seg", check_seg), ("sc", check_sc)):
        if entry.get(kind) is None:
            continue
        read += 1
        try:
            for fault in check(entry):
                print(f"{entry[kind]} {fault}")
        except Exception as error:  # noqa: BLE001: whatever the reader raises is what we look for
            print(f"{entry[kind]} cannot be read: {type(error).__name__}: {error}")
print(read)
