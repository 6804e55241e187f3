"""Tissue areas of CT slices, counted without Radserve: pydicom reads, numpy thresholds, scipy finds the outside.

Prints one JSON object: file -> {"gas": cm2, "fat": cm2, "soft": cm2, "bone": cm2}, for each file named on the command line.
"""

import json
import sys

import numpy as np
import pydicom
from scipy import ndimage


def areas(path):
    dataset = pydicom.dcmread(path)
    stored = dataset.pixel_array.astype(np.float64)
    hounsfield = stored * float(dataset.RescaleSlope) + float(dataset.RescaleIntercept)
    padding = np.zeros(stored.shape, dtype=bool)
    if "PixelPaddingValue" in dataset:
        first = int(dataset.PixelPaddingValue)
        last = int(dataset.get("PixelPaddingRangeLimit", first))
        padding = (stored >= min(first, last)) & (stored <= max(first, last))
    gas = (hounsfield < -190) & ~padding
    regions, _ = ndimage.label(gas)
    outside = set(np.unique(np.concatenate([regions[0], regions[-1], regions[:, 0], regions[:, -1]])))
    outside |= set(np.unique(regions[ndimage.binary_dilation(padding)]))
    outside.discard(0)
    gas &= ~np.isin(regions, list(outside))
    tissues = {
        "gas": gas,
        "fat": (hounsfield >= -190) & (hounsfield < -30) & ~padding,
        "soft": (hounsfield >= -30) & (hounsfield < 150) & ~padding,
        "bone": (hounsfield >= 150) & ~padding,
    }
    row, column = (float(v) for v in dataset.PixelSpacing)
    return {name: int(mask.sum()) * row * column / 100 for name, mask in tissues.items()}


print(json.dumps({path: areas(path) for path in sys.argv[1:]}))
