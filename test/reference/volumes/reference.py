"""Writes the folders beside it: small networks with random weights, a volume for each, and what nnU-Net and MONAI make of it.

Run once, with torch 2.8.0, monai 1.5.1, nnunetv2 2.8.1, SimpleITK 2.5.7 and onnx, and the values are stored:
python reference.py [NAME...]

nnU-Net's sums are float16, which hides differences of a thousandth; here it keeps them in float32, and nothing else of it
is changed. Arrays are [slices, rows, columns], as SimpleITK reads a DICOM series; of several channels voxels.npy holds one
after the other. A channel that lies on a grid of its own is in other.npy, with other-spacing.npy and other-origin.npy
(slice, row, column); SimpleITK takes it to the grid of the first.
"""

import functools
import json
import sys
from pathlib import Path

import numpy as np
import torch

HERE = Path(__file__).parent


class FloatTorch:
    """torch, whose half is float32."""

    half = torch.float32

    def __getattr__(self, name):
        return getattr(torch, name)


def voxels(seed, sides, ct, border=0):
    """Smooth blobs and noise: HU, or values from 0 on with a border of zeros."""
    rng = np.random.default_rng(seed)
    z, y, x = np.meshgrid(*(np.linspace(0, 1, s) for s in sides), indexing="ij")
    values = np.zeros(sides)
    for _ in range(6):
        centre, size, height = rng.random(3), 0.1 + 0.2 * rng.random(), rng.normal()
        values += height * np.exp(-((z - centre[0]) ** 2 + (y - centre[1]) ** 2 + (x - centre[2]) ** 2) / size**2)
    values = values * 300 + rng.normal(size=sides) * 40
    values = values if ct else values + 900
    if border:
        inside = np.zeros(sides, bool)
        inside[border if sides[0] > 1 else 0 : -1 if sides[0] > 1 else 1, 1 : -border - 1, border:-border] = True
        values = np.where(inside, np.maximum(values, 1), 0)
    return np.round(values).astype(np.int16)


def balance(network, last, values, patch, labels=0):
    """Scales and shifts the last layer, so that logits spread by 2 and each channel is the highest somewhere: where all
    probabilities are alike, nothing shows. `values` are about those that go in."""
    place = tuple(slice(0, p) for p in ((1, *patch) if len(patch) == 2 else patch))
    parts = np.stack([np.resize(channel, (24, 24, 24))[place].reshape(patch) for channel in values])
    with torch.no_grad():
        given = torch.tensor(parts[None], dtype=torch.float32)
        if labels:
            # Stripes of the labels of the network before.
            stripes = (torch.arange(patch[-1]) // 3 % (labels + 1)).expand(1, *patch)
            given = torch.cat([given, *((stripes == label + 1)[None].float() for label in range(labels))], 1)
        last.weight.mul_(2 / network(given).flatten(2).std(-1).mean())
        out = network(given)
        last.bias.sub_(out.flatten(2).median(-1).values[0])


def save(folder, network, patch, channels=1, **arrays):
    folder.mkdir(exist_ok=True)
    network.eval()
    torch.onnx.export(
        network,
        torch.zeros(1, channels, *patch),
        str(folder / "model.onnx"),
        input_names=["x"],
        output_names=["y"],
        dynamic_axes={"x": {0: "batch"}, "y": {0: "batch"}},
        opset_version=17,
        dynamo=False,
    )
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", np.ascontiguousarray(array))


NNUNET = {
    # name: configuration, sides, spacing, configuration's spacing, patch, scheme, transpose_forward, labels
    "nnunet-3d": dict(
        configuration="3d_fullres", sides=(11, 22, 20), spacing=(2.0, 0.9, 0.9), to=[1.5, 1.1, 1.0], patch=[8, 12, 12],
        scheme="CTNormalization", transpose=[0, 1, 2], labels={"background": 0, "liver": 1, "spleen": 2}, mirror=(0, 2),
    ),
    "nnunet-anisotropic": dict(
        configuration="3d_fullres", sides=(9, 20, 18), spacing=(5.0, 0.9, 0.9), to=[4.2, 1.0, 0.8], patch=[4, 12, 12],
        scheme="CTNormalization", transpose=[0, 1, 2], labels={"background": 0, "liver": 1, "spleen": 2},
    ),
    "nnunet-lowres": dict(
        configuration="3d_lowres", sides=(18, 24, 22), spacing=(1.5, 1.0, 1.0), to=[2.4, 1.7, 1.8], patch=[8, 8, 8],
        scheme="ZScoreNormalization", transpose=[1, 0, 2], border=2,
        labels={"background": 0, "whole": [1, 2], "core": [2]}, regions=[1, 2],
    ),
    "cascade-lowres": dict(
        configuration="3d_lowres", sides=(13, 24, 22), spacing=(1.5, 0.9, 1.0), to=[2.6, 1.9, 1.8], patch=[8, 8, 8],
        scheme="ZScoreNormalization", transpose=[0, 1, 2], border=2,
        labels={"background": 0, "liver": 1, "spleen": 2},
    ),
    "cascade-fullres": dict(
        configuration="3d_cascade_fullres", sides=(13, 24, 22), spacing=(1.5, 0.9, 1.0), to=[1.3, 1.1, 0.9],
        patch=[8, 12, 12], scheme="ZScoreNormalization", transpose=[1, 0, 2], border=2,
        labels={"background": 0, "liver": 1, "spleen": 2}, previous="cascade-lowres", salt=1,
    ),
    "nnunet-2d": dict(
        configuration="2d", sides=(10, 22, 20), spacing=(1.2, 1.0, 1.1), to=[0.9, 1.25], patch=[12, 12],
        scheme="ZScoreNormalization", transpose=[2, 0, 1], border=2, labels={"background": 0, "left": 1, "right": 2},
    ),
    "nnunet-torch": dict(
        configuration="3d_fullres", sides=(11, 22, 20), spacing=(2.0, 0.9, 0.9), to=[1.5, 1.1, 1.0], patch=[8, 12, 12],
        scheme="CTNormalization", transpose=[0, 1, 2], labels={"background": 0, "liver": 1, "spleen": 2},
        resample=dict(force_separate_z=False),
    ),
    "nnunet-torch-apart": dict(
        configuration="3d_fullres", sides=(9, 20, 18), spacing=(5.0, 0.9, 0.9), to=[4.2, 1.0, 0.8], patch=[4, 12, 12],
        scheme="CTNormalization", transpose=[0, 1, 2], labels={"background": 0, "liver": 1, "spleen": 2},
        resample=dict(force_separate_z=None, separate_z_anisotropy_threshold=3),
    ),
    # An image alone, which SimpleITKIO takes for a slice of a very thick volume
    "nnunet-2d-single": dict(
        configuration="2d", sides=(1, 42, 38), spacing=(999 * 0.9, 0.8, 0.9), to=[1.1, 1.25], patch=[12, 12],
        scheme="ZScoreNormalization", transpose=[0, 1, 2], border=2, labels={"background": 0, "muscle": 1, "fat": 2},
        mirror=(0, 1),
    ),
    "nnunet-brain": dict(
        configuration="3d_fullres", sides=(13, 24, 22), spacing=(1.8, 0.9, 1.1), to=[1.2, 1.5, 1.0], patch=[8, 8, 12],
        scheme="ZScoreNormalization", transpose=[1, 0, 2], border=3, mirror=(0, 2),
        # The box around all three is larger than that around any, and what is enclosed counts as inside.
        channels={"FLAIR": dict(masked=True), "T1": dict(masked=True, roll=(0, 1, 1)), "T2": dict(roll=(0, -1, -1))},
        hole=True, labels={"background": 0, "edema": 1, "core": 2},
    ),
    "nnunet-prostate": dict(
        configuration="2d", sides=(9, 22, 20), spacing=(3.0, 0.8, 0.8), to=[1.0, 0.9], patch=[12, 12],
        scheme="ZScoreNormalization", transpose=[0, 1, 2], border=2, channels={"T2": {}, "ADC": dict(roll=(0, 1, 0))},
        labels={"background": 0, "zone": 1, "lesion": 2},
    ),
    "channels-lowres": dict(
        configuration="3d_lowres", sides=(13, 24, 22), spacing=(1.5, 0.9, 1.0), to=[2.6, 1.9, 1.8], patch=[8, 8, 8],
        scheme="ZScoreNormalization", transpose=[0, 1, 2], border=3,
        channels={"FLAIR": dict(masked=True), "T2": dict(masked=True, roll=(0, -1, 1))},
        labels={"background": 0, "edema": 1, "core": 2},
    ),
    "channels-fullres": dict(
        configuration="3d_cascade_fullres", sides=(13, 24, 22), spacing=(1.5, 0.9, 1.0), to=[1.3, 1.1, 0.9],
        patch=[8, 8, 12], scheme="ZScoreNormalization", transpose=[1, 0, 2], border=3,
        channels={"FLAIR": dict(masked=True), "T2": dict(masked=True, roll=(0, -1, 1))},
        labels={"background": 0, "edema": 1, "core": 2}, previous="channels-lowres", salt=1,
    ),
    "nnunet-petct": dict(
        configuration="3d_fullres", sides=(11, 22, 20), spacing=(3.0, 1.0, 1.0), to=[2.2, 1.3, 1.2], patch=[8, 12, 12],
        scheme="CTNormalization", transpose=[0, 1, 2],
        channels={
            "CT": {},
            # SUV = stored * 2.5 Bq/ml * 70 kg * 1000 / 350 MBq, on the scanner's own grid, which the CT does not fill.
            "PET": dict(
                scheme="NoNormalization", sides=(8, 11, 10), spacing=(4.1, 2.1, 2.0), origin=(-1.0, -0.7, 1.2),
                factor=2.5 * 70 * 1000 / 350e6,
            ),
        },
        labels={"background": 0, "lymphoma": 1, "organ": 2},
    ),
}


def volume(array, spacing, origin):
    """As SimpleITK has it, which counts x, y, z."""
    import SimpleITK as sitk

    image = sitk.GetImageFromArray(array.astype(np.float64))
    image.SetSpacing([float(s) for s in spacing[::-1]])
    image.SetOrigin([float(s) for s in origin[::-1]])
    return image


def channel_of(seed, given, sides, spacing, border, hole):
    """Stored values of one channel on the grid of the first, and the arrays of its own grid."""
    import SimpleITK as sitk

    if "sides" in given:
        stored = np.clip(voxels(seed, given["sides"], False), 0, None)
        own = volume(stored * given["factor"], given["spacing"], given["origin"])
        first = volume(np.zeros(sides), spacing, (0, 0, 0))
        moved = sitk.Resample(own, first, sitk.Transform(), sitk.sitkLinear, 0.0, sitk.sitkFloat64)
        other = {"other": stored, "other-spacing": np.array(given["spacing"]), "other-origin": np.array(given["origin"])}
        return sitk.GetArrayFromImage(moved), other
    stored = np.roll(voxels(seed, sides, not border, border), given.get("roll", (0, 0, 0)), (0, 1, 2))
    if hole:
        stored[5:8, 9:13, 8:12] = 0
    return stored, {}


def nnunet(name, configuration, sides, spacing, to, patch, scheme, transpose, labels, border=0, regions=None, mirror=(), previous=None, salt=0, channels=None, hole=False, resample=None):
    from nnunetv2.inference import predict_from_raw_data
    from nnunetv2.inference.predict_from_raw_data import nnUNetPredictor
    from nnunetv2.inference.sliding_window_prediction import compute_gaussian
    from nnunetv2.utilities.plans_handling.plans_handler import PlansManager

    predict_from_raw_data.torch = FloatTorch()
    predict_from_raw_data.compute_gaussian = functools.partial(compute_gaussian, dtype=torch.float32)
    seed = sum(map(ord, name)) + salt
    torch.manual_seed(seed)
    ct = scheme == "CTNormalization"
    channels = channels or {"CT" if ct else "T2": {}}
    intensity = dict(max=900.0, mean=55.5, median=40.0, min=-800.0, percentile_00_5=-420.0, percentile_99_5=610.0, std=212.5)
    resampling = dict(is_seg=False, order=3, order_z=0, force_separate_z=None)
    plans = dict(
        dataset_name="Dataset001_Random", plans_name="nnUNetPlans",
        original_median_spacing_after_transp=[spacing[i] for i in transpose],
        original_median_shape_after_transp=[sides[i] for i in transpose],
        image_reader_writer="SimpleITKIO", transpose_forward=transpose,
        transpose_backward=[transpose.index(i) for i in range(3)],
        experiment_planner_used="ExperimentPlanner", label_manager="LabelManager",
        foreground_intensity_properties_per_channel={str(c): intensity for c in range(len(channels))},
        configurations={
            configuration: dict(
                data_identifier=f"nnUNetPlans_{configuration}", preprocessor_name="DefaultPreprocessor", batch_size=2,
                patch_size=patch, median_image_size_in_voxels=[float(s) for s in sides[-len(patch) :]], spacing=to,
                normalization_schemes=[channel.get("scheme", scheme) for channel in channels.values()],
                use_mask_for_norm=[channel.get("masked", False) for channel in channels.values()],
                resampling_fn_data="resample_data_or_seg_to_shape", resampling_fn_data_kwargs=resampling,
                resampling_fn_seg="resample_data_or_seg_to_shape",
                resampling_fn_seg_kwargs=dict(resampling, is_seg=True, order=1),
                resampling_fn_probabilities="resample_data_or_seg_to_shape",
                resampling_fn_probabilities_kwargs=dict(resampling, order=1),
                batch_dice=True,
                architecture=dict(
                    network_class_name="dynamic_network_architectures.architectures.unet.PlainConvUNet",
                    arch_kwargs=dict(
                        n_stages=2, features_per_stage=[4, 6], kernel_sizes=[[3] * len(patch)] * 2,
                        strides=[[1] * len(patch), [2] * len(patch)], n_conv_per_stage=[1, 1],
                        n_conv_per_stage_decoder=[1], conv_bias=True,
                        conv_op=f"torch.nn.modules.conv.Conv{len(patch)}d",
                        norm_op=f"torch.nn.modules.instancenorm.InstanceNorm{len(patch)}d",
                        norm_op_kwargs=dict(eps=1e-05, affine=True), dropout_op=None, dropout_op_kwargs=None,
                        nonlin="torch.nn.LeakyReLU", nonlin_kwargs=dict(inplace=True),
                    ),
                    _kw_requires_import=["conv_op", "norm_op", "dropout_op", "nonlin"],
                ),
            )
        },
    )
    dataset = dict(channel_names={str(c): name for c, name in enumerate(channels)}, labels=labels, numTraining=1, file_ending=".nii.gz")
    if previous:
        plans["configurations"][configuration]["previous_stage"] = "3d_lowres"
    if regions:
        dataset["regions_class_order"] = regions
    if resample:
        for part in ("data", "seg", "probabilities"):
            plans["configurations"][configuration][f"resampling_fn_{part}"] = "resample_torch_fornnunet"
            plans["configurations"][configuration][f"resampling_fn_{part}_kwargs"] = dict(
                is_seg=part == "seg", memefficient_seg_resampling=False, **resample
            )
    manager = PlansManager(plans)
    chosen = manager.get_configuration(configuration)
    heads = manager.get_label_manager(dataset).num_segmentation_heads
    # The labels of the network before are channels of their own, without the background.
    others = heads - 1 if previous else 0
    from nnunetv2.utilities.get_network_from_plans import get_network_from_plans

    network = get_network_from_plans(
        chosen.network_arch_class_name, chosen.network_arch_init_kwargs,
        chosen.network_arch_init_kwargs_req_import, len(channels) + others, heads, deep_supervision=False,
    )
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(torch.randn_like(parameter) * (0.4 if parameter.dim() > 1 else 0.2))
    network.eval()
    if previous:
        image, other = np.load(HERE / previous / "voxels.npy").reshape(len(channels), *sides), {}
    else:
        made = [channel_of(seed + c, given, sides, spacing, border, hole) for c, given in enumerate(channels.values())]
        image, other = np.stack([values for values, _ in made]), made[-1][1]
    before = np.load(HERE / previous / "labels.npy") if previous else None
    predictor = nnUNetPredictor(
        tile_step_size=0.5, use_gaussian=True, use_mirroring=bool(mirror), perform_everything_on_device=False,
        device=torch.device("cpu"), verbose=False, allow_tqdm=False,
    )
    axes = (1, 2, 3)
    about = (image - image.mean(axes, keepdims=True)) / image.std(axes, keepdims=True)
    balance(network, network.decoder.seg_layers[-1], about, patch, others)
    predictor.manual_initialization(network, manager, chosen, [network.state_dict()], dataset, "nnUNetTrainer", mirror or None)
    found, probabilities = predictor.predict_single_npy_array(
        image.astype(np.float32), {"spacing": list(spacing)},
        None if before is None else before[None].astype(np.int8), None, True,
    )
    folder = HERE / name
    save(
        folder, network, patch, len(channels) + others, spacing=np.array(spacing),
        voxels=(image[0] if len(channels) == 1 or other else image).astype(np.int16),
        labels=found.astype(np.uint8), probabilities=probabilities.astype(np.float32),
        **other,
    )
    (folder / "plans.json").write_text(json.dumps(plans, indent=1) + "\n")
    (folder / "dataset.json").write_text(json.dumps(dataset, indent=1) + "\n")
    print(name, probabilities.shape, np.bincount(found.astype(int).ravel()), file=sys.stderr)


def monai(name="monai-ct"):
    from monai.bundle import ConfigParser

    torch.manual_seed(7)
    sides, spacing = (12, 22, 20), (2.0, 0.9, 0.8)
    network = torch.nn.Sequential(
        torch.nn.Conv3d(1, 4, 3, padding=1), torch.nn.LeakyReLU(), torch.nn.Conv3d(4, 3, 3, padding=1)
    )
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.5)
    network.eval()
    image = voxels(7, sides, True)
    balance(network, network[2], (np.clip(image, -160, 240) + 160)[None] / 400, [12, 12, 8])
    inference = {
        "imports": ["$import glob"],
        "spacing": [1.2, 1.1, 1.5],
        "preprocessing": {
            "_target_": "Compose",
            "transforms": [
                {"_target_": "LoadImaged", "keys": "image"},
                {"_target_": "EnsureChannelFirstd", "keys": "image"},
                {"_target_": "Orientationd", "keys": "image", "axcodes": "RAS"},
                {"_target_": "Spacingd", "keys": "image", "pixdim": "@spacing", "mode": "bilinear"},
                {
                    "_target_": "ScaleIntensityRanged", "keys": "image", "a_min": -160, "a_max": 240,
                    "b_min": 0.0, "b_max": 1.0, "clip": True,
                },
                {"_target_": "EnsureTyped", "keys": "image"},
            ],
        },
        "inferer": {
            "_target_": "SlidingWindowInferer", "roi_size": [12, 12, 8], "sw_batch_size": 2, "overlap": 0.5,
            "mode": "gaussian",
        },
        "postprocessing": {
            "_target_": "Compose",
            "transforms": [
                {"_target_": "Activationsd", "keys": "pred", "softmax": True},
                {
                    "_target_": "Invertd", "keys": "pred", "transform": "@preprocessing", "orig_keys": "image",
                    "nearest_interp": False, "to_tensor": True,
                },
                {"_target_": "AsDiscreted", "keys": "pred", "argmax": True},
                {"_target_": "SaveImaged", "keys": "pred", "output_dir": "$@output_dir"},
            ],
        },
    }
    metadata = {
        "name": "Random network", "version": "0.1.0", "description": "A random network", "authors": "Nobody",
        "intended_use": "Tests",
        "network_data_format": {
            "inputs": {"image": {"type": "image", "format": "hounsfield", "modality": "CT", "num_channels": 1}},
            "outputs": {
                "pred": {"num_channels": 3, "channel_def": {"0": "background", "1": "liver", "2": "spleen"}}
            },
        },
    }
    from monai.data import MetaTensor

    # The volume as a DICOM series lies: x to the left and y to the back, which RAS turns. Arrays of MONAI are x, y, z.
    affine = np.diag([-spacing[2], -spacing[1], spacing[0], 1.0])
    parser = ConfigParser(json.loads(json.dumps(inference)))
    preprocessing = parser.get_parsed_content("preprocessing")
    item = {"image": MetaTensor(torch.tensor(image.T.astype(np.float32))[None].contiguous(), affine=torch.tensor(affine))}
    for transform in preprocessing.transforms[2:]:
        item = transform(item)
    with torch.no_grad():
        item["pred"] = parser.get_parsed_content("inferer")(item["image"][None], network)[0]
    from monai.transforms import Activationsd, Compose, Invertd

    item = Activationsd(keys="pred", softmax=True)(item)
    inverse = Invertd(
        keys="pred", transform=Compose(preprocessing.transforms[2:]), orig_keys="image", nearest_interp=False, to_tensor=True
    )
    probabilities = np.asarray(inverse(item)["pred"]).transpose(0, 3, 2, 1).astype(np.float32)
    labels = probabilities.argmax(0).astype(np.uint8)
    folder = HERE / name
    folder.mkdir(exist_ok=True)
    save(
        folder, network, inference["inferer"]["roi_size"], voxels=image, spacing=np.array(spacing),
        labels=labels, probabilities=np.ascontiguousarray(probabilities),
    )
    (folder / "inference.json").write_text(json.dumps(inference, indent=1) + "\n")
    (folder / "metadata.json").write_text(json.dumps(metadata, indent=1) + "\n")
    print(name, probabilities.shape, np.bincount(labels.ravel()), file=sys.stderr)


wanted = sys.argv[1:] or [*NNUNET, "monai-ct"]
for name in wanted:
    if name == "monai-ct":
        monai()
    else:
        nnunet(name, **NNUNET[name])
