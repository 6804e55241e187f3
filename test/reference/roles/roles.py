"""Writes small cases of several series and of several views, and what goes into two networks and comes out of them.

Run once, with pydicom, numpy, SimpleITK and onnxruntime, in this folder; the files are stored: python roles.py
together.onnx and views.onnx come from `node dist/test/support/reach-models.js`. Nothing of Radserve is used: SimpleITK
reads the series, puts them into their order, and takes T1 and T2 to the grid of FLAIR, linear.
"""

import pathlib

import numpy as np
import onnxruntime
import pydicom
import SimpleITK as sitk
from pydicom.dataset import FileMetaDataset
from pydicom.uid import DigitalMammographyXRayImageStorageForPresentation as MAMMOGRAM
from pydicom.uid import ExplicitVRLittleEndian, MRImageStorage

HERE = pathlib.Path(__file__).parent
ROOT = "1.2.826.0.1.3680043.10.1.60"
random = np.random.default_rng(20261124)
# Turned by 10 degrees about the patient's left.
C, S = np.cos(np.radians(10)), np.sin(np.radians(10))


def dataset(sop_class, uid, series, modality, pixels, bits):
    ds = pydicom.Dataset()
    ds.file_meta = FileMetaDataset()
    ds.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    ds.file_meta.MediaStorageSOPClassUID = ds.SOPClassUID = sop_class
    ds.file_meta.MediaStorageSOPInstanceUID = ds.SOPInstanceUID = f"{ROOT}.{uid}"
    ds.StudyInstanceUID, ds.SeriesInstanceUID = f"{ROOT}.1", f"{ROOT}.{series}"
    ds.PatientName, ds.PatientID, ds.PatientBirthDate, ds.PatientSex = "Phantom", "ROLES", "", "F"
    ds.StudyDate, ds.StudyTime, ds.StudyID, ds.AccessionNumber = "20261124", "120000", "1", ""
    ds.ReferringPhysicianName, ds.Manufacturer, ds.Modality = "", "Radserve", modality
    ds.SamplesPerPixel, ds.PhotometricInterpretation = 1, "MONOCHROME2"
    ds.Rows, ds.Columns = pixels.shape
    ds.BitsAllocated, ds.BitsStored, ds.HighBit, ds.PixelRepresentation = 16, bits, bits - 1, 0
    ds.PixelData = pixels.astype("<u2").tobytes()
    return ds


def write_series(name, number, shape, spacing, origin, orientation, slope):
    """Slices of a field of waves, seen on this series' own grid; FLAIR and T2 are given in wrong order of names."""
    normal = np.cross(orientation[:3], orientation[3:])
    folder = HERE / "brain"
    folder.mkdir(exist_ok=True)
    depth, rows, columns = shape
    for z in range(depth):
        first = np.array(origin) + z * spacing[0] * normal
        y, x = np.mgrid[0:rows, 0:columns]
        at = (
            first
            + y[..., None] * spacing[1] * np.array(orientation[3:])
            + x[..., None] * spacing[2] * np.array(orientation[:3])
        )
        field = np.sin(at[..., 0] / 9 + number) + np.cos(at[..., 1] / 7) + np.sin(at[..., 2] / 5 - number)
        pixels = np.rint((field + 3) * 120 * number + random.integers(0, 40, (rows, columns)))
        ds = dataset(MRImageStorage, f"{number}0.{z + 1}", f"{number}", "MR", pixels, 12)
        ds.SeriesNumber, ds.InstanceNumber, ds.SeriesDescription = number, z + 1, name
        ds.FrameOfReferenceUID, ds.PositionReferenceIndicator = f"{ROOT}.9", ""
        ds.ImageType, ds.AcquisitionNumber = ["ORIGINAL", "PRIMARY", "M"], 1
        ds.ScanningSequence, ds.SequenceVariant, ds.ScanOptions, ds.MRAcquisitionType = "SE", "NONE", "", "2D"
        ds.EchoTime, ds.EchoTrainLength, ds.RepetitionTime = "90", "1", "5000"
        ds.ImagePositionPatient = [f"{v:.6g}" for v in first]
        ds.ImageOrientationPatient = [f"{v:.9g}" for v in orientation]
        ds.PixelSpacing, ds.SliceThickness = [spacing[1], spacing[2]], spacing[0]
        if slope != 1:
            ds.RescaleSlope, ds.RescaleIntercept, ds.RescaleType = slope, 5, "US"
        letter = "cadbe"[z % 5]
        ds.save_as(folder / f"{letter}-{number}-{z}.dcm", enforce_file_format=True)


def read_series(number):
    files = sorted(
        (HERE / "brain").glob(f"*-{number}-*.dcm"),
        key=lambda path: float(np.dot(pydicom.dcmread(path).ImagePositionPatient, [0, 0, 1])),
    )
    reader = sitk.ImageSeriesReader()
    reader.SetFileNames([str(path) for path in files])
    reader.SetOutputPixelType(sitk.sitkFloat64)
    return reader.Execute()


def write_view(name, number, rows, columns, laterality, view):
    y, x = np.mgrid[0:rows, 0:columns]
    pixels = np.rint(900 + 700 * np.sin(x / 6 + number) * np.cos(y / (4 + number))) + random.integers(0, 100, (rows, columns))
    ds = dataset(MAMMOGRAM, f"70.{number}", f"7{number}", "MG", pixels, 12)
    ds.SeriesNumber, ds.InstanceNumber = 10 + number, 1
    ds.ImageType = ["DERIVED", "PRIMARY"]
    ds.ImageLaterality, ds.ViewPosition, ds.PatientOrientation = laterality, view, ["A", "F"]
    ds.BodyPartExamined, ds.PresentationIntentType, ds.PixelIntensityRelationship = "BREAST", "FOR PRESENTATION", "LOG"
    ds.PixelIntensityRelationshipSign, ds.RescaleIntercept, ds.RescaleSlope, ds.RescaleType = 1, 0, 1, "US"
    ds.BurnedInAnnotation, ds.LossyImageCompression, ds.PresentationLUTShape = "NO", "00", "IDENTITY"
    ds.ImagerPixelSpacing, ds.WindowCenter, ds.WindowWidth = [0.1, 0.1], 1000, 1500
    (HERE / "breast").mkdir(exist_ok=True)
    ds.save_as(HERE / "breast" / f"{name}.dcm", enforce_file_format=True)
    return pixels


def z_score(values, mask=None):
    inside = values if mask is None else values[mask]
    return (values - inside.mean()) / inside.std()


def main():
    axial = [1, 0, 0, 0, 1, 0]
    write_series("Ax T2 FLAIR", 2, (6, 12, 14), (3.0, 1.5, 1.25), (-8, -9, -10), axial, 1)
    # Turned, finer in plane, coarser through it, and smaller than FLAIR.
    write_series("Ax T1 SE", 3, (5, 16, 15), (4.0, 1.0, 1.0), (-7, -8, -11), [1, 0, 0, 0, C, S], 0.5)
    # The same grid as FLAIR.
    write_series("Ax T2 TSE", 4, (6, 12, 14), (3.0, 1.5, 1.25), (-8, -9, -10), axial, 1)
    flair, t1, t2 = (read_series(number) for number in (2, 3, 4))
    outside = -12345.0
    moved = sitk.GetArrayFromImage(sitk.Resample(t1, flair, sitk.Transform(), sitk.sitkLinear, outside, sitk.sitkFloat64))
    there = moved != outside
    print(f"T1 covers {there.mean():.3f} of FLAIR")
    volumes = [sitk.GetArrayFromImage(image) for image in (flair, t2)]
    channels = [
        z_score(volumes[0]),
        # What T1 does not cover is the manifest's background, 0, before normalisation, and does not count in it.
        (np.where(there, moved, 0.0) - moved[there].mean()) / moved[there].std(),
        (volumes[1] - volumes[1].min()) / (volumes[1].max() - volumes[1].min()),
    ]
    scans = np.stack(channels)[None].astype(np.float32)
    session = onnxruntime.InferenceSession(HERE / "together.onnx", providers=["CPUExecutionProvider"])
    mask, volume_scores = session.run(["mask", "scores"], {"scans": scans})
    np.save(HERE / "scans.npy", scans)
    np.save(HERE / "covered.npy", there.astype(np.uint8))
    np.save(HERE / "mask.npy", mask)
    np.save(HERE / "scores.npy", volume_scores)
    for label, channel in (("bright", 0), ("soft", 1)):
        # A plane for each slice, as SEG has them.
        np.save(HERE / f"{label}.npy", (mask[0, channel] >= 0).astype(np.uint8))

    views = {
        "rcc": write_view("d", 1, 24, 32, "R", "CC"),
        "lcc": write_view("c", 2, 24, 32, "L", "CC"),
        "rmlo": write_view("b", 3, 24, 32, "R", "MLO"),
        "lmlo": write_view("a", 4, 24, 32, "L", "MLO"),
    }
    feeds = {}
    for name, pixels in views.items():
        # Means of 2 x 2 pixels are what area interpolation to half the sides is.
        half = pixels.reshape(12, 2, 16, 2).mean((1, 3))
        feeds[name] = (half / 4095)[None, None].astype(np.float32)
    session = onnxruntime.InferenceSession(HERE / "views.onnx", providers=["CPUExecutionProvider"])
    scores = session.run(["cancer"], feeds)[0]
    np.save(HERE / "views.npy", np.concatenate([feeds[name] for name in ("rcc", "lcc", "rmlo", "lmlo")]))
    np.save(HERE / "cancer.npy", scores)


main()
