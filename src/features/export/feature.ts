/** Images and masks of results for those who train networks: NIfTI, and nnU-Net's folder. */
import type { CommandLine } from "../../commands/command-line.js";
import type { Feature } from "../../commands/feature.js";

function commands(line: CommandLine): void {
  line.program
    .command("export")
    .description("write images and masks of results as NIfTI, also as nnU-Net trains from them")
    .argument("<results...>", "receipts (NAME.json), or folders with receipts, at any depth")
    .requiredOption("--to <folder>", "a new or empty folder")
    .option("--nifti", "NAME.nii.gz and NAME.MODEL.seg.nii.gz, with a list of its labels")
    .option("--nnunet", "imagesTr, labelsTr and dataset.json")
    .option("--model <name>", "only the masks of this model")
    .option(
      "--input <path>",
      "the images, in a folder at any depth (default: RADSERVE_INPUT_ROOTS)",
    )
    .option("--no-image", "with --nifti: only the masks")
    .option("--separate", "with --nifti: a file for each segment, which may overlap")
    .option("--json", line.jsonHelp)
    .action(line.does(async () => (await import("./command.js")).exportResults));
  line.statuses("export", {
    0: "every result is written",
    1: "some are not; standard error says which, and why",
  });
}

export const exports: Feature = { name: "export", commands };
