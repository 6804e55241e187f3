"""Holds SEG and SR, read by highdicom, against stored references of test/reference.

Takes a JSON file: a list of {"seg", "sr": paths or null, "masks": list of .npy files, one for each segment, with a plane
of 0 and 1 for each source, "sources": SOP Instance UIDs in the order of the planes, "others": those of a case's other members, "scores": for each finding by its
meaning the .npy file with the logits of all sources and the column of it, "areas": for each by its meaning the .npy
file with its masks and the cm2 of a pixel, "parameters": what the algorithm's parameters are in both, or null}. Prints one line for each thing that is wrong and, at the end, how many objects were read.
"""

import json
import sys
import warnings

import highdicom
import numpy as np
import pydicom

warnings.simplefilter("ignore")



def values_of(entry):
    """Every measurement that the reference knows: meaning, name, values in rising order."""
    for meaning, (path, column) in entry.get("scores", {}).items():
        scores = 1 / (1 + np.exp(-np.load(path)[:, column].astype(np.float64)))
        # A report has a group for what is present; every threshold of the test models is 0.5.
        yield meaning, "Score", sorted(scores[scores >= 0.5].tolist())
    for meaning, (path, cm2) in entry.get("areas", {}).items():
        pixels = np.load(path).sum((1, 2))
        yield meaning, "Area", sorted((pixels[pixels > 0] * cm2).tolist())


read = 0
for entry in json.load(open(sys.argv[1])):
    if entry["seg"] is not None:
        read += 1
        seg = highdicom.seg.segread(entry["seg"])
        how = {"ignore_spatial_locations": True, "assert_missing_frames_are_empty": True}
        for segment in range(1, len(entry["masks"]) + 1):
            algorithm = seg.get_segment_description(segment).algorithm_identification
            parameters = algorithm[0].get("AlgorithmParameters")
            if parameters != entry["parameters"]:
                print(f"{entry['seg']}: parameters {parameters}, expected {entry['parameters']}")
        listed = [
            item.ReferencedSOPInstanceUID
            for series in seg.ReferencedSeriesSequence
            for item in series.ReferencedInstanceSequence
        ]
        if sorted(listed) != sorted(entry["sources"] + entry["others"]):
            print(f"{entry['seg']}: refers to {len(listed)} objects, expected sources and others")
        if seg.ReferencedSeriesSequence[0].ReferencedInstanceSequence[0].ReferencedSOPInstanceUID not in entry["sources"]:
            print(f"{entry['seg']}: the series in whose grid it lies is not the first")
        found = np.moveaxis(seg.get_pixels_by_source_instance(entry["sources"], **how), -1, 0)
        expected = np.stack([np.load(path) for path in entry["masks"]])
        if found.shape != expected.shape or not np.array_equal(found, expected):
            print(f"{entry['seg']} is not the reference's mask: {found.shape} {found.sum()}, {expected.shape} {expected.sum()}")
    if entry["sr"] is not None:
        read += 1
        report = highdicom.sr.srread(entry["sr"]).content
        groups = (
            report.get_planar_roi_measurement_groups()
            + report.get_volumetric_roi_measurement_groups()
            + report.get_image_measurement_groups()
        )
        for group in groups:
            items = group[0].ContentSequence
            told = [item.TextValue for item in items if item.ConceptNameCodeSequence[0].CodeValue == "111002"]
            if told != ([] if entry["parameters"] is None else [entry["parameters"]]):
                print(f"{entry['sr']}: parameters {told}, expected {entry['parameters']}")
        report_set = pydicom.dcmread(entry["sr"])
        evidence = {
            item.ReferencedSOPInstanceUID
            for study in report_set.CurrentRequestedProcedureEvidenceSequence
            for series in study.ReferencedSeriesSequence
            for item in series.ReferencedSOPSequence
        }
        missing = set(entry["sources"] + entry["others"]) - evidence
        if missing:
            print(f"{entry['sr']}: {len(missing)} sources are not in its evidence")
        for meaning, name, expected in values_of(entry):
            found = sorted(
                measured.value
                for group in groups
                if group.finding_type is not None and group.finding_type.meaning == meaning
                for measured in group.get_measurements()
                if measured.name.meaning == name
            )
            if len(found) != len(expected) or not np.allclose(found, expected, atol=1e-5, rtol=1e-5):
                print(f"{entry['sr']}: {name} of {meaning} is {found}, expected {expected}")
print(read)
