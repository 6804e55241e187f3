/** What is measured: kinds of images, the model that takes them, and how a rival has to be told of it. */
import { cpSync, mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { writeCt, writeDx } from "../lib/bulk-images.js";
import { writeFolder } from "../lib/engine-models.js";
import { LABELS } from "../lib/models.js";
import { root } from "../lib/server.js";

export interface Work {
  title: string;
  /** How many different images are sent by turns. */
  images: number;
  write: (folder: string, count: number) => string[] | Promise<string[]>;
  /** Makes the model's folder in `directory`; gives what a rival is told. */
  model: (directory: string) => RivalModel;
}

/** What the script needs to know of a model (bench/peers/work.py). */
export interface RivalModel {
  name: string;
  model: string;
  kind: "tissue" | "scores";
  labels: object[];
  /** Rows and columns of the network's input; a segmentation takes the image's own. */
  side?: number;
}

interface ManifestPart {
  outputs: { labels: object[] }[];
}

function tissue(directory: string): RivalModel {
  const folder = join(directory, "ct-tissue");
  cpSync(join(root, "models/ct-tissue"), folder, { recursive: true });
  const manifest = JSON.parse(readFileSync(join(folder, "model.json"), "utf8")) as ManifestPart;
  const labels = manifest.outputs[0]?.labels ?? [];
  return { name: "ct-tissue", model: join(folder, "model.onnx"), kind: "tissue", labels };
}

function denseNet(directory: string): RivalModel {
  mkdirSync(directory, { recursive: true });
  const { graph } = writeFolder(directory, "densenet121");
  const labels = Array.from({ length: LABELS }, (_, i) => ({ label: `label ${i}`, colour: [213, 94, 0] }));
  return { name: "densenet121", model: graph, kind: "scores", labels, side: 224 };
}

export const WORKS: Record<string, Work> = {
  ct: { title: "CT 512 x 512, native, ct-tissue", images: 200, write: writeCt, model: tissue },
  dx: {
    title: "DX 3000 x 2500, JPEG lossless, DenseNet-121",
    images: 24,
    write: writeDx,
    model: denseNet,
  },
};
