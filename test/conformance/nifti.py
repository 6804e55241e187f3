"""Holds exported NIfTI files against SimpleITK and highdicom, which read the DICOM objects, and nibabel.

Takes a JSON file: a list of {"title", "series": folder of the image or null, "file": its only file or null, "seg": path,
"image": NIfTI of it, "masks": NIfTI, "labels": its list of labels}. Prints one line for each thing that is wrong and, at the
end, how many results were read.
"""

import json
import sys
import warnings

import highdicom
import nibabel
import numpy as np
import SimpleITK as sitk

warnings.simplefilter("ignore")
sitk.ProcessObject.SetGlobalWarningDisplay(False)

NEAR = 1e-4


def series(entry):
    """The image as SimpleITK reads it from DICOM."""
    if entry["file"] is not None:
        return sitk.ReadImage(entry["file"])
    reader = sitk.ImageSeriesReader()
    reader.SetFileNames(reader.GetGDCMSeriesFileNames(entry["series"]))
    return reader.Execute()


def same_place(what, found, wanted, thin):
    if found.GetSize() != wanted.GetSize():
        yield f"{what}: size {found.GetSize()} and not {wanted.GetSize()}"
    parts = ["GetOrigin", "GetDirection"] + ([] if thin else ["GetSpacing"])
    for part in parts:
        one, other = np.array(getattr(found, part)()), np.array(getattr(wanted, part)())
        if np.abs(one - other).max() > NEAR:
            yield f"{what}: {part[3:]} {one} and not {other}"


def faults(entry):
    wanted = series(entry)
    image, masks = sitk.ReadImage(entry["image"]), sitk.ReadImage(entry["masks"])
    # A slice by itself has no distance to another: SimpleITK reads 1 mm, or SliceThickness
    thin = wanted.GetSize()[2] == 1
    yield from same_place("image", image, wanted, thin)
    yield from same_place("masks", masks, image, False)
    values = sitk.GetArrayFromImage(image)
    if not np.array_equal(values, sitk.GetArrayFromImage(wanted).astype(values.dtype)):
        yield "the voxels are not those that SimpleITK reads"

    loaded = nibabel.load(entry["image"])
    header = loaded.header
    if header.sizeof_hdr != 348 or header["qform_code"] != 1 or header["sform_code"] != 1:
        yield "the header is not as nifti1.h has it"
    if np.abs(loaded.get_qform() - loaded.get_sform()).max() > NEAR:
        yield "qform and sform lie apart"
    if nibabel.Nifti1Header.from_header(header, check=True) != header:
        yield "nibabel corrects the header"

    volume = highdicom.seg.segread(entry["seg"]).get_volume(combine_segments=True)
    found = nibabel.load(entry["masks"])
    affine = np.diag([-1.0, -1.0, 1.0, 1.0]) @ volume.affine
    index = np.stack(np.meshgrid(*[np.arange(side) for side in volume.spatial_shape], indexing="ij"), axis=-1)
    places = index @ affine[:3, :3].T + affine[:3, 3]
    inverse = np.linalg.inv(found.affine)
    at = places @ inverse[:3, :3].T + inverse[:3, 3]
    if np.abs(at - np.rint(at)).max() > 1e-3:
        yield "voxels of the masks lie where none of the segmentation is"
    i, j, k = np.moveaxis(np.rint(at).astype(int), -1, 0)
    voxels = np.asarray(found.dataobj)
    if not np.array_equal(voxels[i, j, k], volume.array):
        yield "the masks are not those that highdicom reads"
    if not voxels.any():
        yield "nothing is marked"
    segments = highdicom.seg.segread(entry["seg"]).SegmentSequence
    wanted_labels = {"background": 0, **{str(s.SegmentLabel): int(s.SegmentNumber) for s in segments if s.SegmentNumber > 0}}
    if json.load(open(entry["labels"]))["labels"] != wanted_labels:
        yield "the list of labels is not the segmentation's"


read = 0
for entry in json.load(open(sys.argv[1])):
    read += 1
    try:
        for fault in faults(entry):
            print(f"{entry['title']}: {fault}")
    except Exception as error:  # noqa: BLE001: whatever the reader raises is what we look for
        print(f"{entry['title']} cannot be read: {type(error).__name__}: {error}")
print(read)
