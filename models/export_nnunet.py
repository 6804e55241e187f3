"""Exports a trained network of nnU-Net v2 for Radserve. It runs where nnunetv2 is installed, and needs nothing else:

python export_nnunet.py TRAINED_FOLDER OUT [--folds 0 1 2 3 4] [--checkpoint checkpoint_final.pth] [--image TRAINING_IMAGE]
python export_nnunet.py RESULTS_FOLDER --datasets 291 292 [--folds 0]

TRAINED_FOLDER is nnUNet_results/DatasetXXX_NAME/TRAINER__PLANS__CONFIGURATION. OUT gets plans.json and dataset.json, a graph
for each fold, and export.json, which says what the plans do not: the configuration, the axes along which inference is
mirrored, and with --image how the training images lie. Then: radserve models import OUT
With --datasets, every network of these data sets gets an OUT in its own folder, `exported`.
"""

import argparse
import inspect
import json
import shutil
import sys
from pathlib import Path

import SimpleITK
import torch
from nnunetv2.inference.predict_from_raw_data import nnUNetPredictor
from nnunetv2.utilities.label_handling.label_handling import determine_num_input_channels


def orientation_of(image):
    """The patient's sides to which slices, rows and columns of the array grow."""
    direction = SimpleITK.ReadImage(image).GetDirection()
    letters = []
    for axis in (2, 1, 0):
        along = [direction[3 * row + axis] for row in range(3)]
        most = max(range(3), key=lambda row: abs(along[row]))
        letters.append(("LPS" if along[most] > 0 else "RAI")[most])
    return "".join(letters)


def trained_folds(trained, checkpoint):
    """As nnU-Net chooses folds: fold_all, which was trained on all cases, has no part in the mean of the others."""
    folds = sorted(path.name[5:] for path in trained.glob("fold_*") if (path / checkpoint).exists())
    return [fold for fold in folds if fold != "all"] or folds


def export(trained, out, given):
    """Writes the graphs of a trained folder, and what belongs to them."""
    folds = given.folds or trained_folds(trained, given.checkpoint)
    folds = [fold if fold == "all" else int(fold) for fold in folds]
    if not folds:
        sys.exit(f"Expected {given.checkpoint} in {trained}/fold_N, found none.")
    # The import takes the mean of all that are there
    earlier = {path.name for path in out.glob("fold_*")} - {f"fold_{fold}" for fold in folds}
    if earlier:
        sys.exit(f"Expected no other folds in {out}, found {', '.join(sorted(earlier))} of an earlier export: remove them.")
    predictor = nnUNetPredictor(device=torch.device("cpu"), perform_everything_on_device=False, allow_tqdm=False)
    predictor.initialize_from_trained_model_folder(str(trained), folds, given.checkpoint)
    out.mkdir(parents=True, exist_ok=True)
    for name in ("plans.json", "dataset.json"):
        shutil.copyfile(trained / name, out / name)
    patch = predictor.configuration_manager.patch_size
    channels = determine_num_input_channels(
        predictor.plans_manager, predictor.configuration_manager, predictor.dataset_json
    )
    # The exporter by tracing, which all versions of PyTorch that have another have by this argument
    tracing = {"dynamo": False} if "dynamo" in inspect.signature(torch.onnx.export).parameters else {}
    for fold, parameters in zip(folds, predictor.list_of_parameters):
        predictor.network.load_state_dict(parameters)
        folder = out / f"fold_{fold}"
        folder.mkdir(exist_ok=True)
        torch.onnx.export(
            predictor.network.eval(),
            torch.zeros(1, channels, *patch),
            str(folder / "model.onnx"),
            input_names=["x"],
            output_names=["y"],
            dynamic_axes={"x": {0: "batch"}, "y": {0: "batch"}},
            opset_version=17,
            **tracing,
        )
    checkpoint = torch.load(trained / f"fold_{folds[0]}" / given.checkpoint, map_location="cpu", weights_only=False)
    told = {
        "configuration": checkpoint["init_args"]["configuration"],
        "mirror": ",".join(map(str, predictor.allowed_mirroring_axes or ())) or "none",
    }
    # Readers that turn images take them from any orientation
    reader = json.loads((trained / "plans.json").read_text())["image_reader_writer"]
    if given.image and not reader.endswith("WithReorient"):
        told["orientation"] = orientation_of(given.image)
    (out / "export.json").write_text(json.dumps(told, indent=2) + "\n")
    print(f"Wrote {out}: folds {', '.join(map(str, folds))}; {told}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trained", type=Path)
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("--datasets", nargs="+", type=int)
    parser.add_argument("--folds", nargs="+")
    parser.add_argument("--checkpoint", default="checkpoint_final.pth")
    parser.add_argument("--image", help="a training image, for its orientation")
    given = parser.parse_args()
    if (given.out is None) == (given.datasets is None):
        parser.error("Expected OUT for one trained folder, or --datasets for a folder of results.")
    if given.datasets is None:
        export(given.trained, given.out, given)
        return
    networks = {number: sorted(given.trained.glob(f"Dataset{number:03d}_*/*__*__*")) for number in given.datasets}
    missing = [str(number) for number, found in networks.items() if not found]
    if missing:
        parser.error(f"Expected networks of all data sets in {given.trained}, found none of {', '.join(missing)}.")
    for folder in sum(networks.values(), []):
        export(folder, folder / "exported", given)


main()
