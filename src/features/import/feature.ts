/** Models of others, nnU-Net's and MONAI's, with a manifest that says what they did. */
import type { CommandLine } from "../../commands/command-line.js";
import type { Feature } from "../../commands/feature.js";

const work = () => import("./commands.js");

function commands(line: CommandLine): void {
  const models = line.group("models");
  models
    .command("import <folder>")
    .description("write the manifest of an exported network of nnU-Net v2, or of a MONAI bundle")
    .option(
      "--configuration <name>",
      "nnU-Net: which configuration of plans.json, for example 3d_fullres",
    )
    .option(
      "--orientation <letters>",
      "to which sides depth, height and width of the training images grow: SPL",
    )
    .option("--modality <name>", "modality of DICOM, where the files do not say it: MR")
    .option("--single", "nnU-Net's 2d: a model of single images, and not of the slices of a series")
    .option("--mirror <axes>", "nnU-Net: all, none, or the network's axes from 0, with commas")
    .option("--roles <file>", "several channels: which series each is, by tag rules (JSON)")
    .option(
      "--previous <name>",
      "nnU-Net's cascade: the folder's name of the model of the stage before",
    )
    .option("--onnx <file>", "the graph, where the folder has several or none")
    .option("--to <folder>", "the model's folder; the graph's own, where absent")
    .option(
      "--totalsegmentator <task>",
      "a task of TotalSegmentator, of whose weights the folder is: total, total_v3, total_mr, ...",
    )
    .option("--fast", "TotalSegmentator: the form of the task at 3 mm")
    .option("--fastest", "TotalSegmentator: the form of the task at 6 mm")
    .option("--plans <name>", "TotalSegmentator: which plans, where there are several")
    .option(
      "--package <folder>",
      "TotalSegmentator: its installed Python package, for codes and colours of labels",
    )
    .option("--json", line.jsonHelp)
    .action(line.does(async () => (await work()).importModel));
  models
    .command("export-nnunet")
    .description(
      "print the Python script that exports a trained network of nnU-Net v2, to run where it was trained",
    )
    .action(line.does(async () => (await work()).exportNnunet));
}

export const imports: Feature = { name: "import", commands };
