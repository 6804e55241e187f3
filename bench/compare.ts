/**
 * `npm run bench -- compare`: what `radserve models compare` says of ten networks on ONNX Runtime
 * and on OpenVINO, as one table. Those that are not shipped have random weights. Needs npm run
 * setup:openvino; without ../shared/models one network is missing.
 */
import { execFileSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import os from "node:os";
import { join } from "node:path";
import { sha256 } from "../src/files/durable-files.js";
import { input } from "../test/support/tiny-models.js";
import { manifestOf, writeFolder } from "./lib/engine-models.js";
import { smallDenseNet } from "./lib/models.js";
import { machine, root } from "./lib/server.js";
import { writeUnet } from "./lib/unet.js";
import { frameScores, voxelLabels } from "./peers/models.js";

/** What the command prints with --json. */
interface Compared {
  turns: { provider: string; milliseconds: number; peak_bytes: number; repeats: boolean }[];
  agreement: { output: string; maxAbsolute: number; voxels?: { differ: number; of: number } }[];
}

/** Writes the folders of those that are not shipped; gives all by name. */
function writeNetworks(scratch: string): Record<string, string> {
  for (const name of ["densenet121", "densenet121_float16", "small_cnn"] as const)
    writeFolder(scratch, name);
  const small = smallDenseNet();
  const denseNet = join(scratch, "small_densenet");
  mkdirSync(denseNet);
  writeFileSync(join(denseNet, "model.onnx"), small);
  const size = { kind: "fixed", height: 64, width: 64 };
  const manifest = {
    ...manifestOf("densenet121", sha256(small), "1.0.0"),
    name: "small_densenet",
    inputs: [{ ...input, size, fit: "stretch" }],
  };
  writeFileSync(join(denseNet, "model.json"), JSON.stringify(manifest));
  frameScores(scratch, 1);
  voxelLabels(scratch, 32, 128);
  writeUnet(join(scratch, "unet"), ["cpu", "openvino"]);
  const folders = Object.fromEntries(
    [
      "densenet121",
      "densenet121_float16",
      "small_densenet",
      "small_cnn",
      "frame-scores",
      "voxel-labels",
      "unet",
    ].map((name) => [name, join(scratch, name)]),
  );
  const meshNet = join(root, "../shared/models/brain-mri-tissue-meshnet/model.onnx");
  if (existsSync(meshNet)) {
    folders["brain-tissue-3d"] = join(scratch, "brain-tissue-3d");
    cpSync(join(root, "models/examples/brain-tissue-3d"), folders["brain-tissue-3d"], {
      recursive: true,
    });
    cpSync(meshNet, join(folders["brain-tissue-3d"], "model.onnx"));
  }
  for (const name of ["ct-tissue", "burned-in-text"]) folders[name] = join(root, "models", name);
  return folders;
}

const MIB = 1024 * 1024;
const scratch = mkdtempSync(join(os.tmpdir(), "radserve-compare-"));
try {
  console.log({ ...machine(), load: os.loadavg().map((load) => Number(load.toFixed(1))) });
  const rows = Object.entries(writeNetworks(scratch)).map(([name, folder]) => {
    const words = [join(root, "dist/src/main.js"), "models", "compare", folder, "--json"];
    const said = execFileSync(process.execPath, words, { encoding: "utf8" });
    const { turns, agreement } = JSON.parse(said) as Compared;
    const [cpu, openvino] = ["cpu", "openvino"].map((one) =>
      turns.find(({ provider }) => provider === one),
    ) as [Compared["turns"][0], Compared["turns"][0]];
    return {
      name,
      "ONNX Runtime, ms": Number(cpu.milliseconds.toFixed(1)),
      "OpenVINO, ms": Number(openvino.milliseconds.toFixed(1)),
      ratio: Number((openvino.milliseconds / cpu.milliseconds).toFixed(2)),
      "MiB of each": [cpu, openvino].map((turn) => Math.round(turn.peak_bytes / MIB)).join(", "),
      "largest difference": Number(
        Math.max(...agreement.map((one) => one.maxAbsolute)).toPrecision(2),
      ),
      "other labels": agreement
        .flatMap(({ voxels }) => (voxels === undefined ? [] : `${voxels.differ} of ${voxels.of}`))
        .join(", "),
      "same bits each time": cpu.repeats && openvino.repeats,
    };
  });
  console.table(rows);
} finally {
  rmSync(scratch, { recursive: true });
}
