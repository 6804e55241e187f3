"""Writes the arrays beside it: what the libraries with which networks are trained make of one picture.

Run once, with torch 2.15.0, monai 1.6.1 and opencv-python-headless, and the values are stored: python preparation.py
Values are float32, so that no library rounds between two steps.
"""

from pathlib import Path

import cv2
import numpy as np
import torch
from monai.transforms import ClipIntensityPercentiles, Compose, NormalizeIntensity, Resize, ScaleIntensityRangePercentiles

HERE = Path(__file__).parent

rng = np.random.default_rng(3)
y, x = np.mgrid[0:31, 0:43]
picture = 110 + 80 * np.sin(x / 3.1) * np.cos(y / 2.7) + rng.normal(size=x.shape) * 15
picture[:7, :11] = 0
picture = np.clip(np.round(picture), 0, 255).astype(np.uint8)
values = picture.astype(np.float32)
tensor = torch.tensor(values)[None]


def torched(height, width, **how):
    return torch.nn.functional.interpolate(tensor[None], (height, width), **how)[0, 0].numpy()


def monai(*steps):
    return np.asarray(Compose(steps)(tensor.clone()))[0]


small = Resize((13, 17), mode="bilinear")
RESULTS = {
    "picture": values,
    # Rows shrink, columns grow
    "opencv-linear": cv2.resize(values, (64, 12), interpolation=cv2.INTER_LINEAR),
    "opencv-cubic": cv2.resize(values, (64, 12), interpolation=cv2.INTER_CUBIC),
    "opencv-area": cv2.resize(values, (17, 13), interpolation=cv2.INTER_AREA),
    "torch-linear": torched(12, 64, mode="bilinear", antialias=False),
    "torch-cubic": torched(12, 64, mode="bicubic", antialias=False),
    "torch-linear-antialias": torched(12, 64, mode="bilinear", antialias=True),
    "torch-cubic-antialias": torched(12, 64, mode="bicubic", antialias=True),
    "torch-area": torched(13, 17, mode="area"),
    "monai-zscore-before": monai(NormalizeIntensity(), small),
    "monai-zscore-after": monai(small, NormalizeIntensity()),
    "monai-nonzero-before": monai(NormalizeIntensity(nonzero=True), small),
    "monai-nonzero-after": monai(small, NormalizeIntensity(nonzero=True)),
    "monai-percentiles": monai(small, ScaleIntensityRangePercentiles(5, 95, 0, 1, clip=True)),
    "monai-clip-percentiles": monai(ClipIntensityPercentiles(5, 95), NormalizeIntensity(nonzero=True), small),
}
for name, array in RESULTS.items():
    np.save(HERE / f"{name}.npy", np.ascontiguousarray(array, np.float32))
    print(name, array.shape, float(array.min()), float(array.max()))
