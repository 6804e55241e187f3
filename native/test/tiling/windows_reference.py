"""Writes windows_reference.h: what MONAI and nnU-Net make of images and volumes, window by window.

Run once, with torch, monai 1.5.1 and nnunetv2, and the values are stored:
python windows_reference.py > windows_reference.h

nnU-Net's sums are float16, in which weights at the corners of an image vanish; here it keeps them in float32, and nothing
else of it is changed.

The model depends on where a voxel lies in its window, so that every window, weight and mirrored run shows.
"""

import contextlib
import functools
import sys
from types import SimpleNamespace

import torch
from monai.inferers.utils import sliding_window_inference
from nnunetv2.inference import predict_from_raw_data
from nnunetv2.inference.predict_from_raw_data import nnUNetPredictor
from nnunetv2.inference.sliding_window_prediction import compute_gaussian, compute_steps_for_sliding_window

torch.manual_seed(20261123)


class FloatTorch:
    """torch, whose half is float32."""

    half = torch.float32

    def __getattr__(self, name):
        return getattr(torch, name)


predict_from_raw_data.torch = FloatTorch()
predict_from_raw_data.compute_gaussian = functools.partial(compute_gaussian, dtype=torch.float32)


def floats(values):
    """As few digits as tell each float32 from all others."""
    return "{" + ", ".join(f"{v!s}f" for v in values.reshape(-1).float().numpy()) + "}"


def whole(values):
    return "{" + ", ".join(str(int(v)) for v in values) + "}"


class Model(torch.nn.Module):
    """Two channels: the input weighted by the place in the window, and that place."""

    def forward(self, x):
        place = torch.zeros(x.shape[2:])
        for axis, side in enumerate(x.shape[2:]):
            shape = [1] * (x.dim() - 2)
            shape[axis] = side
            place = place + (axis + 1) * 0.01 * torch.arange(side).reshape(shape)
        return torch.cat([x[:, :1] * (1 + place), place.expand_as(x[:, :1])], 1)


def monai(image, window, overlap, mode, mirrored=()):
    model = Model()
    runs = [()]
    for axis in mirrored:
        runs += [run + (axis,) for run in runs]

    def predictor(x):
        flips = [[axis + 2 for axis in run] for run in runs]
        return sum(model(x.flip(f)).flip(f) if f else model(x) for f in flips) / len(flips)

    return sliding_window_inference(image, window, 1, predictor, overlap=overlap, mode=mode)


def nnunet(image, window, step, mirrored):
    with contextlib.redirect_stdout(sys.stderr):
        predictor = nnUNetPredictor(
            tile_step_size=step,
            use_gaussian=True,
            use_mirroring=bool(mirrored),
            perform_everything_on_device=False,
            device=torch.device("cpu"),
            allow_tqdm=False,
        )
    predictor.network = Model()
    predictor.configuration_manager = SimpleNamespace(patch_size=list(window))
    predictor.label_manager = SimpleNamespace(num_segmentation_heads=2)
    predictor.allowed_mirroring_axes = tuple(mirrored) if mirrored else None
    return predictor.predict_sliding_window_return_logits(image[0])[None]


CASES = [
    # name, sides, window, overlap, mirrored axes, and how
    ("monai constant 3D", (7, 9, 11), (4, 4, 6), 0.25, (), "constant"),
    ("monai gaussian 3D", (7, 9, 11), (4, 5, 6), 0.5, (), "gaussian"),
    ("monai gaussian 2D", (13, 10), (6, 5), 0.6, (), "gaussian"),
    ("monai, smaller than the window", (3, 9), (6, 6), 0.25, (), "gaussian"),
    ("monai, mirrored", (8, 9), (5, 5), 0.5, (0, 1), "constant"),
    ("nnU-Net 3D", (9, 12, 10), (6, 8, 6), 0.5, (), "nnunet"),
    ("nnU-Net 3D, mirrored", (7, 8, 9), (6, 6, 6), 0.5, (0, 1, 2), "nnunet"),
    ("nnU-Net, smaller than the window", (5, 8, 13), (8, 8, 8), 0.5, (0, 2), "nnunet"),
]

print("/// Made by windows_reference.py; not edited.")
print("#ifndef RADSERVE_TEST_WINDOWS_REFERENCE_H_\n#define RADSERVE_TEST_WINDOWS_REFERENCE_H_\n")
print("#include <string>\n#include <vector>\n")
print("namespace radserve::test {\n")
print("struct WindowsCase {\n  std::string name;\n  std::string how;\n  std::vector<int> sides, window;")
print("  double overlap;\n  std::vector<int> mirrored;\n  std::vector<float> input, output;\n};\n")
print("struct StartsCase {\n  int side, window;\n  double overlap;\n  std::vector<int> starts;\n};\n")
print("// clang-format off\ninline const std::vector<WindowsCase> kWindowsCases = {")
for name, sides, window, overlap, mirrored, how in CASES:
    image = torch.rand(1, 1, *sides)
    with torch.no_grad():
        out = (
            nnunet(image, window, 1 - overlap, mirrored)
            if how == "nnunet"
            else monai(image, window, overlap, how, mirrored)
        )
    print(f'  {{"{name}", "{how}", {whole(sides)}, {whole(window)}, {overlap}, {whole(mirrored)},')
    print(f"   {floats(image)},\n   {floats(out)}}},")
print("};\n")
print("inline const std::vector<StartsCase> kEvenStarts = {")
for side in (16, 17, 31, 100, 131):
    for window in (16, 15, 10):
        for step in (0.5, 0.75, 1.0):
            starts = compute_steps_for_sliding_window((side,), (window,), step)[0]
            print(f"  {{{side}, {window}, {1 - step}, {whole(starts)}}},")
print("};\n")
gaussian = compute_gaussian((6, 8, 5), sigma_scale=1.0 / 8, value_scaling_factor=1, dtype=torch.float32, device=torch.device("cpu"))
print(f"/// Of a window of 6 x 8 x 5; the centre is 1.\ninline const std::vector<float> kGaussian =\n  {floats(gaussian)};")
print("// clang-format on\n\n}  // namespace radserve::test\n\n#endif  // RADSERVE_TEST_WINDOWS_REFERENCE_H_")
