/**
 * models/export_nnunet.py exports the folds that nnU-Net itself would use. Modules of nothing stand
 * for nnunetv2 and what it needs; the predictor of theirs shows what it is given.
 */
import { execFileSync } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import t, { type Test } from "tap";
import { exportScript } from "../../../src/features/import/import.js";
import { PYTHON, pythonHas } from "../../support/needs.js";

const MODULES: Record<string, string> = {
  "SimpleITK.py": "",
  "torch.py": "def device(name):\n    return name\n",
  "nnunetv2/inference/predict_from_raw_data.py": `
class nnUNetPredictor:
    def __init__(self, **options):
        pass

    def initialize_from_trained_model_folder(self, folder, folds, checkpoint):
        print(folds, checkpoint)
        raise SystemExit(0)
`,
  "nnunetv2/utilities/label_handling/label_handling.py":
    "def determine_num_input_channels():\n    pass\n",
};

/** What the predictor is given for a folder with these folds, of which each has a checkpoint. */
function chosen(t: Test, folds: string[], ...options: string[]): string {
  return exported(t.testdir({}), folds, options);
}

function exported(folder: string, folds: string[], options: string[]): string {
  const write = (path: string, text: string) => {
    mkdirSync(dirname(join(folder, path)), { recursive: true });
    writeFileSync(join(folder, path), text);
  };
  for (const [path, text] of Object.entries(MODULES)) write(path, text);
  for (const fold of folds) write(join("trained", fold, "checkpoint_final.pth"), "");
  mkdirSync(join(folder, "trained", "fold_4"), { recursive: true });
  const given = [join(folder, "trained"), join(folder, "out"), ...options];
  return execFileSync(PYTHON, [exportScript(), ...given], {
    encoding: "utf8",
    env: { ...process.env, PYTHONPATH: folder, PYTHONDONTWRITEBYTECODE: "1" },
  }).trim();
}

t.test("the folds of a trained folder", { skip: pythonHas("argparse") }, (t) => {
  const numbered = ["fold_0", "fold_1"];
  for (const [folds, options, expected] of [
    [numbered, [], "[0, 1]"],
    [[...numbered, "fold_all"], [], "[0, 1]"],
    [["fold_all"], [], "['all']"],
    [[...numbered, "fold_all"], ["--folds", "all"], "['all']"],
    [[...numbered, "fold_all"], ["--folds", "1"], "[1]"],
  ] as [string[], string[], string][])
    t.equal(
      chosen(t, folds, ...options),
      `${expected} checkpoint_final.pth`,
      `${folds.join(", ")} ${options.join(" ")}`,
    );
  t.end();
});

t.test(
  "folds of an earlier export would be taken into the mean",
  { skip: pythonHas("argparse") },
  (t) => {
    const folder = t.testdir({ out: { fold_0: {}, fold_1: {} } });
    t.throws(
      () => exported(folder, ["fold_0"], []),
      /Expected no other folds in .*, found fold_1 of an earlier export: remove them\./,
    );
    t.equal(exported(folder, ["fold_0", "fold_1"], []), "[0, 1] checkpoint_final.pth");
    t.end();
  },
);
