"""The other side of `bench nnunet`, where nnunetv2, torch for the CPU and SimpleITK are installed.

make CASE SIDE FOLDER: a trained folder of nnU-Net with random weights, and a CT: case_0000.nii.gz, its voxels as ct.i16,
and drawn.json. serve FOLDER: a JSON request a line on stdin, an answer a line on stdout.
"""

import functools
import json
import os
import resource
import sys
import time
from pathlib import Path

for _name in ("nnUNet_raw", "nnUNet_preprocessed", "nnUNet_results"):
    os.environ.setdefault(_name, "/nowhere")
# What nnU-Net prints must not stand between the answers
answers = os.fdopen(os.dup(1), "w")
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)

import numpy as np  # noqa: E402
import SimpleITK as sitk  # noqa: E402
import torch  # noqa: E402
from nnunetv2.inference import export_prediction, predict_from_raw_data  # noqa: E402
from nnunetv2.utilities.get_network_from_plans import get_network_from_plans  # noqa: E402
from nnunetv2.utilities.plans_handling.plans_handler import PlansManager  # noqa: E402

INTENSITY = dict(max=900.0, mean=55.5, median=40.0, min=-800.0, percentile_00_5=-420.0, percentile_99_5=610.0, std=212.5)
SMALL = dict(sides=[64, 512, 512], spacing=[2.0, 0.8, 0.8], patch=[64, 96, 96], features=[8, 16], convolutions=1)
FULL = {"3d_fullres": [1.5, 1.5, 1.5]}
# Sides and distances (mm) of slices, rows, columns; by configuration the spacing that its network sees
CASES = {
    "small-25": dict(SMALL, classes=25, configurations=FULL),
    "small-105": dict(SMALL, classes=105, configurations=FULL),
    "real": dict(
        classes=25, sides=[64, 160, 160], spacing=[2.0, 1.6, 1.6], patch=[128, 128, 128], convolutions=2,
        features=[32, 64, 128, 256, 320, 320], configurations=FULL,
    ),
    "2d": dict(SMALL, classes=25, patch=[256, 256], configurations={"2d": [0.9, 0.9]}),
    "cascade": dict(SMALL, classes=9, configurations={"3d_lowres": [3.0, 3.0, 3.0], "3d_cascade_fullres": [1.5, 1.5, 1.5]}),
}


def phantom(sides, spacing):
    """HU of a trunk in air: parts of different density, and a scanner's noise."""
    rng = np.random.default_rng(1)
    at = np.meshgrid(*(np.linspace(-1, 1, side, dtype=np.float32) for side in sides), indexing="ij")
    values = np.where((at[1] / 0.62) ** 2 + (at[2] / 0.85) ** 2 < 1, 20, -1000).astype(np.float32)
    for _ in range(40):
        centre, radii = rng.uniform((-1, -0.45, -0.65), (1, 0.45, 0.65)), rng.uniform(0.06, 0.3, 3)
        inside = sum(((a - c) / r) ** 2 for a, c, r in zip(at, centre, radii)) < 1
        values[inside] = rng.choice([-700, -100, 40, 60, 110, 400])
    image = sitk.GetImageFromArray(np.round(values + rng.normal(0, 15, sides)).astype(np.int16))
    image.SetSpacing(spacing[::-1])
    return image


def configuration_of(name, case):
    patch, stages, convolutions = case["patch"], len(case["features"]), case["convolutions"]
    options = dict(order=3, order_z=0, force_separate_z=None)
    made = dict(
        data_identifier="bench", preprocessor_name="DefaultPreprocessor", batch_size=2, batch_dice=True, patch_size=patch,
        median_image_size_in_voxels=patch, spacing=case["configurations"][name],
        normalization_schemes=["CTNormalization"], use_mask_for_norm=[False],
        architecture=dict(
            network_class_name="dynamic_network_architectures.architectures.unet.PlainConvUNet",
            arch_kwargs=dict(
                n_stages=stages, features_per_stage=case["features"], kernel_sizes=[[3] * len(patch)] * stages,
                strides=[[1 if stage == 0 else 2] * len(patch) for stage in range(stages)], conv_bias=True,
                n_conv_per_stage=[convolutions] * stages, n_conv_per_stage_decoder=[convolutions] * (stages - 1),
                conv_op=f"torch.nn.modules.conv.Conv{len(patch)}d", norm_op_kwargs=dict(eps=1e-05, affine=True),
                norm_op=f"torch.nn.modules.instancenorm.InstanceNorm{len(patch)}d", dropout_op=None,
                dropout_op_kwargs=None, nonlin="torch.nn.LeakyReLU", nonlin_kwargs=dict(inplace=True),
            ),
            _kw_requires_import=["conv_op", "norm_op", "dropout_op", "nonlin"],
        ),
    )
    for part, order in (("data", 3), ("seg", 1), ("probabilities", 1)):
        made[f"resampling_fn_{part}"] = "resample_data_or_seg_to_shape"
        made[f"resampling_fn_{part}_kwargs"] = dict(options, is_seg=part == "seg", order=order)
    return dict(made, previous_stage="3d_lowres") if "cascade" in name else made


def spread(network, given):
    """Kernels that are means, and a last layer in which each class is the highest somewhere: labels lie together, as real ones do."""
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.dim() > 2:
                pairs = torch.randn(*parameter.shape[:2], *[1] * (parameter.dim() - 2))
                parameter.copy_(pairs.expand_as(parameter))
        last = network.decoder.seg_layers[-1]
        last.weight.copy_(torch.randn_like(last.weight))
        last.bias.zero_()
        out = network.eval()(given).flatten(2)[0]
        scale = 4 / out.std()
        last.weight.mul_(scale)
        # The bias takes each class below 0 in nine tenths of the window, so that none is the highest everywhere
        last.bias.copy_(-torch.quantile(out[:, ::101] * scale, 0.9, dim=1))


def make(case, folder):
    torch.manual_seed(1)
    labels = {"background": 0, **{f"part_{i}": i for i in range(1, case["classes"])}}
    dataset = dict(channel_names={"0": "CT"}, numTraining=1, file_ending=".nii.gz", labels=labels)
    plans = dict(
        dataset_name="Dataset001_Bench", plans_name="nnUNetPlans", image_reader_writer="SimpleITKIO",
        original_median_spacing_after_transp=case["spacing"], original_median_shape_after_transp=case["sides"],
        transpose_forward=[0, 1, 2], transpose_backward=[0, 1, 2], experiment_planner_used="ExperimentPlanner",
        label_manager="LabelManager", foreground_intensity_properties_per_channel={"0": INTENSITY},
        configurations={name: configuration_of(name, case) for name in case["configurations"]},
    )
    image = phantom(case["sides"], case["spacing"])
    sitk.WriteImage(image, str(folder / "case_0000.nii.gz"), True)
    voxels = sitk.GetArrayFromImage(image)
    voxels.tofile(folder / "ct.i16")
    (folder / "drawn.json").write_text(json.dumps(dict(case, configurations=list(case["configurations"]))))
    patch = case["patch"]
    seen = voxels[len(voxels) // 2] if len(patch) == 2 else voxels
    seen = seen[tuple(slice(max(0, (s - p) // 2), max(0, (s - p) // 2) + p) for s, p in zip(seen.shape, patch))]
    seen = np.pad(seen, [(0, p - s) for p, s in zip(patch, seen.shape)], mode="edge")
    for name in case["configurations"]:
        others = case["classes"] - 1 if "cascade" in name else 0
        chosen = PlansManager(plans).get_configuration(name)
        network = get_network_from_plans(
            chosen.network_arch_class_name, chosen.network_arch_init_kwargs, chosen.network_arch_init_kwargs_req_import,
            1 + others, case["classes"], deep_supervision=False,
        )
        given = torch.tensor((np.clip(seen, -420, 610) - 55.5) / 212.5, dtype=torch.float32)[None, None]
        spread(network, torch.cat([given, torch.zeros(1, others, *patch)], 1))
        trained = folder / f"nnUNet_results/Dataset001_Bench/nnUNetTrainer__nnUNetPlans__{name}"
        (trained / "fold_0").mkdir(parents=True)
        (trained / "plans.json").write_text(json.dumps(plans))
        (trained / "dataset.json").write_text(json.dumps(dataset))
        checkpoint = dict(network_weights=network.state_dict(), trainer_name="nnUNetTrainer")
        torch.save(dict(checkpoint, init_args=dict(configuration=name)), trained / "fold_0/checkpoint_final.pth")


SECONDS = {}


def timed(stage, owner, name):
    """Adds what each call of a function of nnU-Net takes to a stage."""
    work = getattr(owner, name)

    @functools.wraps(work)
    def watched(*arguments, **options):
        began = time.perf_counter()
        made = work(*arguments, **options)
        SECONDS[stage] = SECONDS.get(stage, 0) + time.perf_counter() - began
        return made

    setattr(owner, name, watched)


def load(folder):
    predictors = []
    # The first stage of a cascade before the second
    for trained in sorted((folder / "nnUNet_results/Dataset001_Bench").iterdir(), key=lambda one: "cascade" in one.name):
        predictor = predict_from_raw_data.nnUNetPredictor(
            use_mirroring=False, perform_everything_on_device=False, device=torch.device("cpu"), allow_tqdm=False
        )
        predictor.initialize_from_trained_model_folder(str(trained), (0,))
        timed("network", predictor.network, "forward")
        predictors.append(predictor)
    timed("read", predictors[0].plans_manager.image_reader_writer_class, "read_images")
    timed("write", predictors[0].plans_manager.image_reader_writer_class, "write_seg")
    timed("windows", predict_from_raw_data.nnUNetPredictor, "predict_logits_from_preprocessed_data")
    timed("prepare", predictors[0].configuration_manager.preprocessor_class, "run_case_npy")
    timed("back", export_prediction, "convert_predicted_logits_to_segmentation_with_correct_shape")
    return predictors


def predict(folder, predictors):
    SECONDS.clear()
    began, before, previous = time.perf_counter(), time.process_time(), None
    for number, predictor in enumerate(predictors):
        out = folder / f"stage{number}"
        out.mkdir(exist_ok=True)
        image, to = [[str(folder / "case_0000.nii.gz")]], [str(out / "case")]
        predictor.predict_from_files_sequential(image, to, folder_with_segs_from_prev_stage=previous)
        previous = str(out)
    wall, cpu = time.perf_counter() - began, time.process_time() - before
    stages = {name: SECONDS[name] for name in ("read", "prepare", "network", "back", "write")}
    stages["blend"] = SECONDS["windows"] - SECONDS["network"]
    # VmHWM (proc(5)): ru_maxrss would begin with the memory of the process that started this one
    peak = int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024
    return dict(wall=wall, cpu=cpu, stages=stages, peak=peak)


def main():
    if sys.argv[1] == "make":
        wanted = CASES[sys.argv[2]]
        slices, *plane = wanted["sides"]
        make(dict(wanted, sides=[slices, *(round(side * float(sys.argv[3])) for side in plane)]), Path(sys.argv[4]))
        return
    place, loaded = Path(sys.argv[2]), None
    for line in sys.stdin:
        request = json.loads(line)
        loaded = loaded or load(place)
        told = predict(place, loaded) if request["command"] == "predict" else {"torch": torch.__version__}
        print(json.dumps(told), file=answers, flush=True)


if __name__ == "__main__":
    main()
