"""The other side of `bench body`, where totalsegmentator and nnunetv2 are installed.

make TASK SIDE SLICES FOLDER: weights/ as totalsegmentator fetches them, with networks of random weights or, of the task
`trained`, of phantoms.py, and a CT: case_0000.nii.gz, its voxels as ct.i16, and drawn.json. serve TASK FOLDER: a JSON request a line on stdin, an answer a line
on stdout.
"""

import functools
import json
import os
import sys
import time
from pathlib import Path

import nnunet
import numpy as np
import phantoms
import SimpleITK as sitk
import torch
from nnunetv2.inference import predict_from_raw_data
from nnunetv2.utilities.get_network_from_plans import get_network_from_plans
from nnunetv2.utilities.plans_handling.plans_handler import PlansManager
from torch.nn import functional

PARTS = {
    291: "Dataset291_TotalSegmentator_part1_organs_1559subj", 292: "Dataset292_TotalSegmentator_part2_vertebrae_1532subj",
    293: "Dataset293_TotalSegmentator_part3_cardiac_1559subj", 294: "Dataset294_TotalSegmentator_part4_muscles_1559subj",
    295: "Dataset295_TotalSegmentator_part5_ribs_1559subj",
}
FAST = {297: "Dataset297_TotalSegmentator_total_3mm_1559subj"}
PLAIN, LONG = "nnUNetTrainerNoMirroring", "nnUNetTrainer_4000epochs_NoMirroring"
TASKS = {
    "total": dict(folders=PARTS, spacing=1.5, trainer=PLAIN, fast=False),
    "fast": dict(folders=FAST, spacing=3.0, trainer=LONG, fast=True),
    "trained": dict(folders=PARTS, spacing=1.5, trainer=PLAIN, fast=False),
}
# The shape of the real plans; the CT has 512 rows and columns at a side of 1
NETWORK = dict(patch=[128, 128, 128], features=[32, 64, 128, 256, 320, 320], convolutions=2)
SMALL = dict(patch=[64, 64, 64], features=[8, 16], convolutions=1)
SPACING = [1.5, 0.8, 0.8]


def labels_of(dataset):
    """The labels of a data set in the order of its network's channels, as the package has them."""
    from totalsegmentator import map_to_binary as maps

    if dataset == 297:
        return list(maps.class_map["total"].values())
    return list(list(maps.class_map_5_parts.values())[dataset - 291].values())


def make(task, sides, small, folder):
    torch.manual_seed(1)
    network_shape = SMALL if small else NETWORK
    image = nnunet.phantom(sides, SPACING)
    voxels = write_image(image, folder)
    patch = network_shape["patch"]
    seen = voxels[tuple(slice(max(0, (s - p) // 2), max(0, (s - p) // 2) + p) for s, p in zip(voxels.shape, patch))]
    seen = np.pad(seen, [(0, p - s) for p, s in zip(patch, seen.shape)], mode="edge")
    given = torch.tensor((np.clip(seen, -420, 610) - 55.5) / 212.5, dtype=torch.float32)[None, None]
    for dataset in task["folders"]:
        intensity = dict(nnunet.INTENSITY, mean=55.5 + dataset % 10)
        write_network(task, folder, dataset, network_shape, intensity, sides, lambda network: nnunet.spread(network, given))


def make_trained(task, folder):
    values, organs = phantoms.drawn(7, phantoms.SIDES, SPACING)
    image = sitk.GetImageFromArray(np.round(values).astype(np.int16))
    image.SetSpacing(SPACING[::-1])
    write_image(image, folder)
    labels = [labels_of(dataset) for dataset in task["folders"]]
    names = phantoms.named(labels)
    numbers = np.array([0, *(labels_of(297).index(name) + 1 for name in names)], np.uint8)
    numbers[organs].tofile(folder / "truth.u8")
    trunk, heads = phantoms.trained()
    for head, dataset in zip(heads, task["folders"]):
        fill = functools.partial(phantoms.fill, trunk=trunk, head=head)
        write_network(task, folder, dataset, phantoms.NETWORK, phantoms.INTENSITY, phantoms.SIDES, fill)


def write_image(image, folder):
    sitk.WriteImage(image, str(folder / "case_0000.nii.gz"), True)
    voxels = sitk.GetArrayFromImage(image)
    voxels.tofile(folder / "ct.i16")
    return voxels


def write_drawn(task, sides, folder):
    theirs = {label: number for number, label in enumerate(labels_of(297), 1)}
    numbers = [0] + [theirs[label] for dataset in task["folders"] for label in labels_of(dataset)]
    names = {number: label for label, number in theirs.items()}
    (folder / "drawn.json").write_text(json.dumps(dict(sides=sides, spacing=SPACING, numbers=numbers, names=names)))


def write_network(task, folder, dataset, network_shape, intensity, sides, fill):
    """A result folder of nnU-Net; `fill` writes the weights."""
    name, labels = task["folders"][dataset], labels_of(dataset)
    case = dict(network_shape, configurations={"3d_fullres": [task["spacing"]] * 3})
    plans = dict(
        dataset_name=name, plans_name="nnUNetPlans", image_reader_writer="SimpleITKIO", label_manager="LabelManager",
        original_median_spacing_after_transp=SPACING, original_median_shape_after_transp=sides,
        transpose_forward=[0, 1, 2], transpose_backward=[0, 1, 2], experiment_planner_used="ExperimentPlanner",
        foreground_intensity_properties_per_channel={"0": intensity},
        configurations={"3d_fullres": nnunet.configuration_of("3d_fullres", case)},
    )
    numbers = {"background": 0, **{label: i + 1 for i, label in enumerate(labels)}}
    dataset_json = dict(channel_names={"0": "CT"}, numTraining=1, file_ending=".nii.gz", labels=numbers)
    chosen = PlansManager(plans).get_configuration("3d_fullres")
    network = get_network_from_plans(
        chosen.network_arch_class_name, chosen.network_arch_init_kwargs, chosen.network_arch_init_kwargs_req_import,
        1, len(numbers), deep_supervision=False,
    )
    fill(network)
    trained = folder / "weights" / name / f"{task['trainer']}__nnUNetPlans__3d_fullres"
    (trained / "fold_0").mkdir(parents=True)
    (trained / "plans.json").write_text(json.dumps(plans))
    (trained / "dataset.json").write_text(json.dumps(dataset_json))
    checkpoint = dict(network_weights=network.state_dict(), trainer_name=task["trainer"])
    checkpoint.update(init_args=dict(configuration="3d_fullres"), inference_allowed_mirroring_axes=None)
    torch.save(checkpoint, trained / "fold_0/checkpoint_final.pth")


def predict(task, folder, to):
    from totalsegmentator.python_api import totalsegmentator

    nnunet.SECONDS.clear()
    began, before = time.perf_counter(), time.process_time()
    totalsegmentator(
        str(folder / "case_0000.nii.gz"), str(folder / to), ml=True, task="total", fast=task["fast"],
        device="cpu", quiet=True,
    )
    wall, cpu = time.perf_counter() - began, time.process_time() - before
    peak = int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024
    return dict(wall=wall, cpu=cpu, stages=dict(network=nnunet.SECONDS.get("network", 0)), peak=peak)


def summed_in(numbers, work):
    """Has nnU-Net sum its windows in `numbers` instead of float16, as it does by itself."""
    half, gaussian = torch.half, predict_from_raw_data.compute_gaussian
    torch.half = numbers
    exact = functools.wraps(gaussian)(lambda *a, **o: gaussian(*a, **dict(o, dtype=numbers)))
    exact.cache_clear = gaussian.cache_clear
    predict_from_raw_data.compute_gaussian = exact
    try:
        return work()
    finally:
        torch.half, predict_from_raw_data.compute_gaussian = half, gaussian


def convolve_by_slabs(self, x):
    """Conv3d in slabs of eight output planes: in float64 PyTorch unfolds all that it is given at once."""
    x = functional.pad(x, [side for padding in reversed(self.padding) for side in (padding, padding)])
    kernel, stride = self.kernel_size[0], self.stride[0]
    planes = (x.shape[2] - kernel) // stride + 1
    slabs = [x[:, :, first * stride : (min(first + 8, planes) - 1) * stride + kernel] for first in range(0, planes, 8)]
    return torch.cat([functional.conv3d(slab, self.weight, self.bias, self.stride) for slab in slabs], 2)


def in_float64(work):
    """Has the networks themselves compute in float64, too: what both pipelines round."""
    made, convolve = predict_from_raw_data.nnUNetPredictor.initialize_from_trained_model_folder, torch.nn.Conv3d.forward

    def initialize(self, *arguments, **options):
        made(self, *arguments, **options)
        forward = self.network.double().forward
        self.network.forward = lambda x: forward(x.double())

    predict_from_raw_data.nnUNetPredictor.initialize_from_trained_model_folder = initialize
    torch.nn.Conv3d.forward = convolve_by_slabs
    try:
        return summed_in(torch.float64, work)
    finally:
        predict_from_raw_data.nnUNetPredictor.initialize_from_trained_model_folder = made
        torch.nn.Conv3d.forward = convolve


def answer(request, task, place):
    if request["command"] == "predict":
        return predict(task, place, "theirs.nii.gz")
    if request["command"] == "predict_float32":
        return summed_in(torch.float32, lambda: predict(task, place, "theirs-float32.nii.gz"))
    if request["command"] == "predict_float64":
        return in_float64(lambda: predict(task, place, "theirs-float64.nii.gz"))
    return {"torch": torch.__version__}


def watch_networks():
    """Counts the time in the networks, which totalsegmentator makes anew for each part."""
    made = predict_from_raw_data.nnUNetPredictor.initialize_from_trained_model_folder

    def initialize(self, *arguments, **options):
        made(self, *arguments, **options)
        nnunet.timed("network", self.network, "forward")

    predict_from_raw_data.nnUNetPredictor.initialize_from_trained_model_folder = initialize


def main():
    task = TASKS[sys.argv[2]]
    if sys.argv[1] == "make":
        folder, side = Path(sys.argv[5]), float(sys.argv[3])
        sides = [round(int(sys.argv[4]) * side), *[round(512 * side)] * 2]
        if sys.argv[2] == "trained":
            sides = phantoms.SIDES
            make_trained(task, folder)
        else:
            make(task, sides, side < 0.5, folder)
        write_drawn(task, sides, folder)
        return
    place = Path(sys.argv[3])
    os.environ["TOTALSEG_WEIGHTS_PATH"] = str(place / "weights")
    os.environ["TOTALSEG_HOME_DIR"] = str(place / "home")
    watch_networks()
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line), task, place)), file=nnunet.answers, flush=True)


if __name__ == "__main__":
    main()
