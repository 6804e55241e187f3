"""The objects that the script writes beside its receipt: an overlay by OpenCV, and SEG, SR (TID 1500) and SC by highdicom."""

from io import BytesIO

import cv2
import highdicom as hd
import numpy as np
from highdicom.sr.coding import CodedConcept
from pydicom.sr.codedict import codes

from settings import LABELS, SETTINGS

NAME = SETTINGS["name"]
MAKER = "Bench"
SERIAL = "1"
VERSION = "1.0.0"
#: A legend below both pictures, a line for each label.
LINE = 24
OPACITY = 0.4


def file_of(dataset):
    out = BytesIO()
    dataset.save_as(out, enforce_file_format=True)
    return out.getvalue()


def grey(dataset, stored):
    """Stored values through the window to 8 bits."""
    values = stored.astype(np.float32)
    values *= np.float32(dataset.get("RescaleSlope", 1))
    values += np.float32(dataset.get("RescaleIntercept", 0))
    centre, width = float(dataset.get("WindowCenter", 40)), float(dataset.get("WindowWidth", 400))
    return cv2.convertScaleAbs(np.clip(values, centre - width / 2, centre + width / 2) - (centre - width / 2), alpha=255 / width)


def overlay(dataset, stored, mask, findings):
    """The picture, beside it the picture with its fills and outlines, and a legend below: BGR."""
    plain = cv2.cvtColor(grey(dataset, stored), cv2.COLOR_GRAY2BGR)
    drawn = plain.copy()
    if mask is not None:
        table = np.zeros((256, 1, 3), np.uint8)
        for i, each in enumerate(LABELS):
            table[i + 1, 0] = each["colour"][::-1]
        fills = cv2.applyColorMap(mask, table)
        blended = cv2.addWeighted(plain, 1 - OPACITY, fills, OPACITY, 0)
        cv2.copyTo(blended, mask, drawn)
        for i, each in enumerate(LABELS):
            contours, _ = cv2.findContours((mask == i + 1).view(np.uint8), cv2.RETR_LIST, cv2.CHAIN_APPROX_NONE)
            cv2.drawContours(drawn, contours, -1, each["colour"][::-1], 1)
    page = np.full((plain.shape[0] + LINE * (len(LABELS) + 1), 2 * plain.shape[1], 3), 24, np.uint8)
    page[: plain.shape[0]] = np.hstack([plain, drawn])
    cv2.putText(page, f"{NAME} {VERSION}: not for diagnostic use", (8, plain.shape[0] + 17), cv2.FONT_HERSHEY_SIMPLEX, 0.5, (230, 230, 230), 1, cv2.LINE_AA)
    for i, (each, finding) in enumerate(zip(LABELS, findings)):
        y = plain.shape[0] + LINE * (i + 1)
        cv2.rectangle(page, (8, y + 5), (24, y + 19), each["colour"][::-1], -1)
        value = f'{finding["area"]["cm2"]:.1f} cm2' if "area" in finding else f'{finding["score"]:.3f}'
        cv2.putText(page, f'{each["label"]}: {value}', (32, y + 17), cv2.FONT_HERSHEY_SIMPLEX, 0.5, (230, 230, 230), 1, cv2.LINE_AA)
    return page


def coded(code):
    return CodedConcept(code["value"], code["scheme"], code["meaning"])


ALGORITHM = hd.AlgorithmIdentificationSequence(NAME, codes.DCM.ArtificialIntelligence, VERSION)
SEGMENTS = [
    hd.seg.SegmentDescription(
        segment_number=i + 1,
        segment_label=each["label"],
        segmented_property_category=coded(each["category"]),
        segmented_property_type=coded(each["code"]),
        algorithm_type=hd.seg.SegmentAlgorithmTypeValues.AUTOMATIC,
        algorithm_identification=ALGORITHM,
        tracking_uid=hd.UID(),
        tracking_id=each["label"],
    )
    for i, each in enumerate(LABELS)
    if "category" in each
]


def segmentation(dataset, mask):
    return hd.seg.Segmentation(
        source_images=[dataset],
        pixel_array=mask[np.newaxis],
        segmentation_type=hd.seg.SegmentationTypeValues.BINARY,
        segment_descriptions=SEGMENTS,
        series_instance_uid=hd.UID(),
        series_number=101,
        sop_instance_uid=hd.UID(),
        instance_number=1,
        manufacturer=MAKER,
        manufacturer_model_name=NAME,
        software_versions=VERSION,
        device_serial_number=SERIAL,
        omit_empty_frames=True,
    )


DEVICE = hd.sr.ObserverContext(
    observer_type=codes.DCM.Device,
    observer_identifying_attributes=hd.sr.DeviceObserverIdentifyingAttributes(uid=hd.UID(), name=NAME),
)


def report(dataset, findings, segments):
    groups = []
    for i, finding in enumerate(findings):
        tracking = hd.sr.TrackingIdentifier(uid=hd.UID(), identifier=finding["label"])
        if segments is not None and finding["present"]:
            segment = hd.sr.ReferencedSegmentationFrame.from_segmentation(segments, segment_number=i + 1)
            groups.append(
                hd.sr.PlanarROIMeasurementsAndQualitativeEvaluations(
                    tracking_identifier=tracking,
                    referenced_segment=segment,
                    finding_type=coded(finding["code"]),
                    measurements=[hd.sr.Measurement(codes.SCT.Area, finding["area"]["cm2"], codes.UCUM.SquareCentimeter)],
                )
            )
        elif "score" in finding:
            score = CodedConcept("score", "99BENCH", "Score")
            groups.append(
                hd.sr.MeasurementsAndQualitativeEvaluations(
                    tracking_identifier=tracking,
                    finding_type=CodedConcept(str(i), "99BENCH", finding["label"]),
                    measurements=[hd.sr.Measurement(score, finding["score"], codes.UCUM.NoUnits)],
                )
            )
    content = hd.sr.MeasurementReport(
        observation_context=hd.sr.ObservationContext(observer_device_context=DEVICE),
        procedure_reported=codes.LN.CTUnspecifiedBodyRegion,
        imaging_measurements=groups,
        title=codes.DCM.ImagingMeasurementReport,
    )
    return hd.sr.ComprehensiveSR(
        evidence=[dataset] if segments is None else [dataset, segments],
        content=content,
        series_number=102,
        series_instance_uid=hd.UID(),
        sop_instance_uid=hd.UID(),
        instance_number=1,
        manufacturer=MAKER,
    )


def capture(dataset, page):
    return hd.sc.SCImage.from_ref_dataset(
        ref_dataset=dataset,
        pixel_array=cv2.cvtColor(page, cv2.COLOR_BGR2RGB),
        photometric_interpretation="RGB",
        bits_allocated=8,
        coordinate_system="PATIENT",
        series_instance_uid=hd.UID(),
        sop_instance_uid=hd.UID(),
        series_number=103,
        instance_number=1,
        manufacturer=MAKER,
        # Without it highdicom makes no capture of a patient; an axial slice says it by its vectors only.
        patient_orientation=list(dataset.get("PatientOrientation", ["L", "P"])),
    )


def objects(dataset, stored, mask, findings, name):
    """The files by their names."""
    page = overlay(dataset, stored, mask, findings)
    made = {f"{name}.png": cv2.imencode(".png", page)[1].tobytes()}
    segments = None
    if mask is not None:
        segments = segmentation(dataset, mask)
        made[f"{name}.seg.dcm"] = file_of(segments)
    made[f"{name}.sr.dcm"] = file_of(report(dataset, findings, segments))
    made[f"{name}.sc.dcm"] = file_of(capture(dataset, page))
    return made
