"""Writes the arrays beside it: what the libraries with which networks are trained make of one picture and one volume.

Run once, with torch 2.15.0, torchvision, monai 1.6.1, timm 1.0.31, transformers 5.24.0, albumentations, scikit-image, scipy,
torchxrayvision 1.5.7, ultralytics 8.4.190 and opencv-python-headless, and the values are stored: python preparation.py
Values are float32, so that no library rounds between two steps.
"""

from pathlib import Path

import albumentations
import cv2
import numpy as np
import scipy.ndimage
import skimage.transform
import timm.data
import torch
import torchvision.transforms
from monai.transforms import ClipIntensityPercentiles, Compose, NormalizeIntensity, Resize, ScaleIntensityRangePercentiles
from PIL import Image
from torchxrayvision.datasets import XRayCenterCrop, XRayResizer
from torchxrayvision.utils import normalize
from transformers.models.clip.image_processing_clip import CLIPImageProcessor
from transformers.models.convnext.image_processing_convnext import ConvNextImageProcessor
from transformers.models.deit.image_processing_deit import DeiTImageProcessor
from transformers.models.detr.image_processing_detr import DetrImageProcessor
from transformers.models.sam.image_processing_sam import SamImageProcessor
from ultralytics.data.augment import LetterBox

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


def torchvision_cut(edge, height, width):
    steps = [torchvision.transforms.Resize(edge), torchvision.transforms.CenterCrop((height, width))]
    return torchvision.transforms.Compose(steps)(tensor)[0].numpy()


def timm_cut(mode, part):
    """Of one channel, without its normalisation."""
    steps = timm.data.create_transform(
        (1, 16, 16), interpolation="bicubic", crop_pct=part, crop_mode=mode, mean=(0.0,), std=(1.0,)
    )
    return steps(Image.fromarray(values))[0].numpy()


def transformed(kind, **how):
    processor = kind(do_rescale=False, do_normalize=False, do_convert_rgb=False, **how)
    return processor(tensor, input_data_format="channels_first", return_tensors="pt")["pixel_values"][0, 0].numpy()


def padded(side, fill, position):
    steps = [
        albumentations.LongestMaxSize(side, interpolation=cv2.INTER_LINEAR),
        albumentations.PadIfNeeded(side, side, position=position, border_mode=cv2.BORDER_CONSTANT, fill=fill),
    ]
    return albumentations.Compose(steps)(image=values[..., None])["image"][..., 0]


def cut_by_albumentations(edge, height, width):
    steps = [
        albumentations.SmallestMaxSize(edge, interpolation=cv2.INTER_LINEAR),
        albumentations.CenterCrop(height, width),
    ]
    return albumentations.Compose(steps)(image=values[..., None])["image"][..., 0]


def bounded(shortest, longest, multiple):
    """Sides as detectron2.data.transforms.ResizeShortestEdge.get_output_shape has them, padded as ImageList does it."""
    high, wide = values.shape
    scale = shortest / min(high, wide)
    new_high, new_wide = high * scale, wide * scale
    if max(new_high, new_wide) > longest:
        scale = longest / max(new_high, new_wide)
        new_high, new_wide = new_high * scale, new_wide * scale
    sides = int(new_wide + 0.5), int(new_high + 0.5)
    image = np.asarray(Image.fromarray(values).resize(sides, Image.BILINEAR))
    return np.pad(image, [(0, -side % multiple) for side in image.shape])


def chest(side):
    return XRayResizer(side)(XRayCenterCrop()(normalize(picture, 255)[None]))[0]


depth, height, width = np.mgrid[0:7, 0:12, 0:10]
volume = (90 * np.sin(depth / 1.7) * np.cos(height / 2.1) + 12 * width + rng.normal(size=depth.shape) * 20).round()
volume = volume.astype(np.float32)
SMALL = (4, 15, 6)


def torched_volume(**how):
    return torch.nn.functional.interpolate(torch.tensor(volume)[None, None], SMALL, **how)[0, 0].numpy()


# Of which Transformers makes a longest side of one pixel less, by its rounding
LONGEST = 25
small = Resize((13, 17), mode="bilinear")
RESULTS = {
    "picture": values,
    # Rows shrink, columns grow
    "opencv-linear": cv2.resize(values, (64, 12), interpolation=cv2.INTER_LINEAR),
    "opencv-cubic": cv2.resize(values, (64, 12), interpolation=cv2.INTER_CUBIC),
    "opencv-nearest": cv2.resize(values, (64, 12), interpolation=cv2.INTER_NEAREST),
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
    "torchvision-crop": torchvision_cut(19, 16, 15),
    "timm-center": timm_cut("center", 0.7),
    "timm-squash": timm_cut("squash", 0.7),
    "transformers-clip": transformed(
        CLIPImageProcessor, size={"shortest_edge": 19}, crop_size={"height": 16, "width": 15}, resample=3
    ),
    "transformers-convnext": transformed(ConvNextImageProcessor, size={"shortest_edge": 17}, crop_pct=0.875, resample=2),
    "transformers-deit": transformed(
        DeiTImageProcessor, size={"height": 21, "width": 23}, crop_size={"height": 16, "width": 15}, resample=3
    ),
    "transformers-sam": transformed(
        SamImageProcessor, size={"longest_edge": 26}, pad_size={"height": 26, "width": 26}, mask_size={"longest_edge": 26}, resample=2
    ),
    "transformers-detr": transformed(DetrImageProcessor, size={"shortest_edge": 20, "longest_edge": LONGEST}, resample=2, do_pad=False),
    "torchvision-edges": torchvision.transforms.Resize(20, max_size=27)(tensor)[0].numpy(),
    "detectron2-edges": bounded(20, 27, 8),
    "albumentations-pad": padded(25, 114, "top_left"),
    "albumentations-letterbox": padded(25, 114, "center"),
    "albumentations-crop": cut_by_albumentations(18, 16, 15),
    "ultralytics-letterbox": LetterBox((25, 30), auto=False)(image=np.repeat(values[..., None], 3, 2))[..., 0],
    "skimage-mirror": skimage.transform.resize(values, (12, 64), preserve_range=True),
    "skimage-constant": skimage.transform.resize(values, (12, 64), mode="constant", cval=40, preserve_range=True),
    "skimage-plain": skimage.transform.resize(values, (12, 64), anti_aliasing=False, preserve_range=True),
    "torchxrayvision": chest(16),
    "torch-corners": torched(12, 64, mode="bilinear", align_corners=True),
    "volume": volume,
    "volume-torch-linear": torched_volume(mode="trilinear", align_corners=False),
    "volume-torch-area": torched_volume(mode="area"),
    "volume-torch-corners": torched_volume(mode="trilinear", align_corners=True),
    "volume-scipy-zoom": scipy.ndimage.zoom(volume, [s / v for s, v in zip(SMALL, volume.shape)], order=1),
    "volume-monai-linear": np.asarray(Resize(SMALL, mode="trilinear")(torch.tensor(volume)[None]))[0],
    "monai-clip-percentiles": monai(ClipIntensityPercentiles(5, 95), NormalizeIntensity(nonzero=True), small),
}
for name, array in RESULTS.items():
    np.save(HERE / f"{name}.npy", np.ascontiguousarray(array, np.float32))
    print(name, array.shape, float(array.min()), float(array.max()))
