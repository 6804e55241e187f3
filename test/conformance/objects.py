"""Reads result objects back with pydicom and highdicom, which know nothing of Radserve.

Takes a JSON file: a list of {"sr": path or null, "seg": path or null, "sc": path or absent, "sources": SOP Instance UIDs
in the order of the frames, "frames": count where one source holds several, else absent, "rows", "columns", "segments":
count, "mask": path of a plane for each segment and frame, as the model gave it (0 and 1, or steps of 1/255), or null,
"picture": path of the PNG that the secondary capture shows, "rtstruct": path or absent, "source": the file or folder
of the source}. Prints one line for each thing that is wrong and, at the
end, how many objects were read.
"""

import json
import pathlib
import sys
import warnings

import highdicom
import numpy as np
import pydicom
from PIL import Image

warnings.simplefilter("ignore")


def check_seg(entry):
    seg = highdicom.seg.segread(entry["seg"])
    # number_of_segments counts one too few in label maps (highdicom 0.28.2)
    numbers = list(seg.segment_numbers)
    if numbers != list(range(1, entry["segments"] + 1)):
        yield f"has the segments {numbers}"
    raw = np.fromfile(entry["mask"], dtype=np.uint8)
    raw = raw.reshape(entry["segments"], -1, entry["rows"], entry["columns"])
    how = {"ignore_spatial_locations": True, "assert_missing_frames_are_empty": True, "rescale_fractional": False}
    if entry.get("frames"):
        frames = range(1, entry["frames"] + 1)
        found = seg.get_pixels_by_source_frame(entry["sources"][0], list(frames), **how)
    else:
        found = seg.get_pixels_by_source_instance(entry["sources"], **how)
    if not np.array_equal(np.moveaxis(found, -1, 0), raw):
        yield "is not the model's mask"
    for number in numbers:
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
    qualitative = [item for item in report[0].ContentSequence if item.name.value == "C0034375"]
    if not groups and not any(item.ValueType == "CODE" for one in qualitative for item in one.ContentSequence):
        yield "says of no label that it is there or not"
    for group in groups:
        if group.tracking_uid is None or group.tracking_identifier is None:
            yield "has a group without tracking"
        group.finding_sites
        group.get_measurements()
        group.get_qualitative_evaluations()


def source_planes(entry):
    """Position, vectors along a row and a column in mm a pixel, of each frame, by SOP Instance UID and frame number."""
    path = pathlib.Path(entry["source"])
    planes = {}
    for file in sorted(path.iterdir()) if path.is_dir() else [path]:
        source = pydicom.dcmread(file)
        across, down = np.array(source.ImageOrientationPatient, float).reshape(2, 3)
        row_spacing, column_spacing = (float(value) for value in source.PixelSpacing)
        first = np.array(source.ImagePositionPatient, float)
        offsets = source.get("GridFrameOffsetVector") or [0.0]
        for number, offset in enumerate(offsets, start=1):
            key = (source.SOPInstanceUID, number if len(offsets) > 1 else None)
            position = first + np.cross(across, down) * float(offset)
            planes[key] = (position, across * column_spacing, down * row_spacing)
    return planes


def fill(mask, points):
    """Toggles the pixels whose centres lie inside a closed line, by the even-odd rule."""
    rows, columns = mask.shape
    flips = np.zeros((rows, columns + 1), dtype=np.int64)
    (x0, y0), (x1, y1) = points.T, np.roll(points, -1, axis=0).T
    first, last = np.ceil(np.minimum(y0, y1)).astype(int), np.ceil(np.maximum(y0, y1)).astype(int)
    edge = np.repeat(np.arange(len(points)), last - first)
    y = np.arange(len(edge)) - np.repeat(np.cumsum(last - first) - last, last - first)
    x = np.ceil(x0[edge] + (y - y0[edge]) * (x1[edge] - x0[edge]) / (y1[edge] - y0[edge]))
    np.add.at(flips, (y, np.clip(x, 0, columns).astype(int)), 1)
    mask ^= np.cumsum(flips, axis=1)[:, :columns] % 2 == 1


def check_rtstruct(entry):
    plan = pydicom.dcmread(entry["rtstruct"])
    planes = source_planes(entry)
    names = [item.ROINumber for item in plan.StructureSetROISequence]
    if len(names) != entry["segments"] or len(plan.RTROIObservationsSequence) != len(names):
        yield f"has {len(names)} regions"
    raw = np.fromfile(entry["mask"], dtype=np.uint8)
    raw = raw.reshape(entry["segments"], -1, entry["rows"], entry["columns"])
    found = np.zeros(raw.shape, dtype=bool)
    frames = [(uid, None) for uid in entry["sources"]]
    if entry.get("frames"):
        frames = [(entry["sources"][0], number) for number in range(1, entry["frames"] + 1)]
    for region in plan.ROIContourSequence:
        for contour in region.get("ContourSequence", []):
            image = contour.ContourImageSequence[0]
            key = (image.ReferencedSOPInstanceUID, image.get("ReferencedFrameNumber"))
            position, across, down = planes[key]
            points = np.array(contour.ContourData, float).reshape(-1, 3) - position
            if len(points) != contour.NumberOfContourPoints or contour.ContourGeometricType != "CLOSED_PLANAR":
                yield "has a contour that is not what it says"
            normal = np.cross(across, down)
            if np.abs(points @ normal).max() > 1e-3 * np.linalg.norm(normal):
                yield "has a contour that leaves its plane"
            pixels = np.linalg.lstsq(np.stack([across, down], axis=1), points.T, rcond=None)[0].T
            fill(found[names.index(region.ReferencedROINumber), frames.index(key)], pixels)
    if not np.array_equal(found, raw != 0):
        yield f"does not enclose the model's mask: {np.count_nonzero(found != (raw != 0))} pixels differ"


def check_sc(entry):
    pixels = pydicom.dcmread(entry["sc"]).pixel_array
    picture = np.asarray(Image.open(entry["picture"]).convert("RGB"))
    if not np.array_equal(pixels, picture):
        yield "is not the picture"


read = 0
for entry in json.load(open(sys.argv[1])):
    for kind, check in (("sr", check_sr), ("seg", check_seg), ("rtstruct", check_rtstruct), ("sc", check_sc)):
        if entry.get(kind) is None:
            continue
        read += 1
        try:
            for fault in check(entry):
                print(f"{entry[kind]} {fault}")
        except Exception as error:  # noqa: BLE001: whatever the reader raises is what we look for
            print(f"{entry[kind]} cannot be read: {type(error).__name__}: {error}")
print(read)
