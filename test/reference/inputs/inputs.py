"""Writes a small CT series, and what goes into the network "several" and comes out of it, slice by slice.

Run once, with pydicom, numpy and onnxruntime, in this folder; the files are stored: python inputs.py
several.onnx comes from `node dist/test/support/reach-models.js`. Nothing of Radserve is used: windows are by PS3.3
C.11.2.1.2 and C.11.2.1.3, percentiles by numpy.
"""

import pathlib

import numpy as np
import onnxruntime
import pydicom
from pydicom.dataset import FileMetaDataset
from pydicom.uid import CTImageStorage, ExplicitVRLittleEndian

HERE = pathlib.Path(__file__).parent
ROWS, COLUMNS, SLICES = 12, 16, 5
SLOPE, INTERCEPT = 1.0, -1024.0
random = np.random.default_rng(20261123)


def make_slice(number, stored):
    ds = pydicom.Dataset()
    ds.file_meta = FileMetaDataset()
    ds.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    ds.file_meta.MediaStorageSOPClassUID = ds.SOPClassUID = CTImageStorage
    ds.file_meta.MediaStorageSOPInstanceUID = ds.SOPInstanceUID = f"1.2.826.0.1.3680043.10.1.20.{number + 1}"
    ds.StudyInstanceUID, ds.SeriesInstanceUID = "1.2.826.0.1.3680043.10.1.2", "1.2.826.0.1.3680043.10.1.3"
    ds.FrameOfReferenceUID, ds.PositionReferenceIndicator = "1.2.826.0.1.3680043.10.1.4", ""
    ds.PatientName, ds.PatientID, ds.PatientBirthDate = "Phantom", "REACH", ""
    ds.PatientSex, ds.PatientAge, ds.PatientWeight = "F", "045Y", "72.5"
    ds.StudyDate, ds.StudyTime, ds.StudyID, ds.AccessionNumber = "20261123", "120000", "1", ""
    ds.ReferringPhysicianName, ds.Manufacturer, ds.Modality = "", "Radserve", "CT"
    ds.SeriesNumber, ds.InstanceNumber, ds.AcquisitionNumber = 1, number + 1, 1
    ds.ImageType, ds.KVP = ["ORIGINAL", "PRIMARY", "AXIAL"], "120"
    ds.ImagePositionPatient = [-20, -30, 100 + 2.5 * number]
    ds.ImageOrientationPatient = [1, 0, 0, 0, 1, 0]
    ds.PixelSpacing, ds.SliceThickness = [1.5, 1.5], 2.5
    ds.SamplesPerPixel, ds.PhotometricInterpretation = 1, "MONOCHROME2"
    ds.Rows, ds.Columns = stored.shape
    ds.BitsAllocated, ds.BitsStored, ds.HighBit, ds.PixelRepresentation = 16, 16, 15, 0
    ds.RescaleSlope, ds.RescaleIntercept, ds.RescaleType = SLOPE, INTERCEPT, "HU"
    ds.PixelData = stored.astype("<u2").tobytes()
    return ds


def linear(x, c, w):
    return np.clip((x - (c - 0.5)) / (w - 1) + 0.5, 0, 1)


def linear_exact(x, c, w):
    return np.clip((x - c) / w + 0.5, 0, 1)


def sigmoid(x, c, w):
    return 1 / (1 + np.exp(-4 * (x - c) / w))


def mean_of_four(x):
    return x.reshape(ROWS // 2, 2, COLUMNS // 2, 2).mean((1, 3))


def main():
    y, x = np.mgrid[0:ROWS, 0:COLUMNS]
    volume = np.stack([
        np.where((y - 6) ** 2 + (x - 6 - z) ** 2 < 9 + 3 * z, 1024 + 150 * z + 20 * x, 200 + 30 * z + 10 * y)
        for z in range(SLICES)
    ]) + random.integers(0, 60, (SLICES, ROWS, COLUMNS))
    # The names are not in the order of the positions.
    for z, name in enumerate(["d", "a", "e", "b", "c"]):
        folder = HERE / "series"
        folder.mkdir(exist_ok=True)
        make_slice(z, volume[z]).save_as(folder / f"{name}.dcm", enforce_file_format=True)
    stored = np.stack([
        pydicom.dcmread(path).pixel_array
        for path in sorted((HERE / "series").glob("*.dcm"), key=lambda p: pydicom.dcmread(p).ImagePositionPatient[2])
    ]).astype(np.float64)
    hu = stored * SLOPE + INTERCEPT
    ct, coarse, plain, clinical = [], [], [], []
    for z in range(SLICES):
        channels = []
        for n in (max(z - 1, 0), z, min(z + 1, SLICES - 1)):
            channels += [linear(hu[n], -600, 1500), linear_exact(hu[n], 40, 80), sigmoid(hu[n], 300, 1500)]
        ct.append(np.stack(channels))
        there = [hu[n] for n in range(z, z + 3) if n < SLICES]
        low, high = np.percentile(np.stack(there), [5, 95])
        beyond = [np.full((ROWS // 2, COLUMNS // 2), -1000.0)] * (3 - len(there))
        coarse.append((np.stack([mean_of_four(s) for s in there] + beyond) - low) / (high - low))
        plain.append(((stored[z] - stored[z].mean()) / stored[z].std())[None])
        ds = pydicom.dcmread(HERE / "series" / "a.dcm")
        months = int(ds.PatientAge[:3]) * 12
        clinical.append([
            float(ds.PatientSex == "F"), float(ds.PatientSex == "M"),
            months / 1200, float(ds.PatientWeight) * 0.01 - 0.5, float(ds.KVP) * 0.01,
        ])
    feeds = {
        name: np.asarray(value, np.float32)
        for name, value in {"ct": ct, "coarse": coarse, "plain": plain, "clinical": clinical}.items()
    }
    session = onnxruntime.InferenceSession(HERE / "several.onnx", providers=["CPUExecutionProvider"])
    mask, scores = session.run(["mask", "scores"], feeds)
    for name, value in {**feeds, "mask": mask, "scores": scores}.items():
        np.save(HERE / f"{name}.npy", value)
    # A probability of 0.5 is a logit of 0.
    for label, channel in (("bright", 0), ("soft", 1)):
        np.save(HERE / f"{label}.npy", (mask[:, channel] >= 0).astype(np.uint8))


main()
