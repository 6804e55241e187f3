/** What is measured: kinds of images, and the model that takes them. */
import { writeCine, writeCt, writeDx, writeSeries } from "../lib/bulk-images.js";
import type { Outputs } from "./contenders.js";
import { denseNet, frameScores, tissue, voxelLabels, type RivalModel } from "./models.js";

export interface Work {
  title: string;
  /** How many different images are sent by turns. */
  images: number;
  outputs: readonly Outputs[];
  /** Requests at once. Where one takes a second, 64 would only wait for each other. */
  at: readonly number[];
  write: (folder: string, count: number) => string[] | Promise<string[]>;
  /** Makes the model's folder in `directory`; gives what a rival is told. */
  model: (directory: string) => RivalModel | Promise<RivalModel>;
}

const CINE_FRAMES = 30;
const SLICES = 32;
const SLICE_SIDE = 256;

const radiographs = (coding: string, coder: "jpeg-lossless" | "jpeg2000"): Work => ({
  title: `DX 3000 x 2500, ${coding}, DenseNet-121`,
  images: 24,
  outputs: ["json", "all"],
  at: [1, 4, 16],
  write: (folder, count) => writeDx(folder, count, coder),
  model: denseNet,
});

export const WORKS: Record<string, Work> = {
  ct: {
    title: "CT 512 x 512, native, ct-tissue",
    images: 200,
    outputs: ["json", "all"],
    at: [1, 4, 16, 64],
    write: (folder, count) => writeCt(folder, count),
    model: tissue,
  },
  dx: radiographs("JPEG lossless", "jpeg-lossless"),
  dxj2k: radiographs("JPEG 2000 lossless", "jpeg2000"),
  us: {
    title: `US cine of ${CINE_FRAMES} frames of 1024 x 768, JPEG baseline, a small CNN over each frame`,
    images: 12,
    outputs: ["json"],
    at: [1, 4, 16],
    write: (folder, count) => writeCine(folder, count, CINE_FRAMES),
    model: (directory) => frameScores(directory, CINE_FRAMES),
  },
  volume: {
    title: `CT series of ${SLICES} slices of ${SLICE_SIDE} x ${SLICE_SIDE}, native, a small 3D CNN`,
    images: 4,
    outputs: ["json"],
    at: [1, 4],
    write: (folder, count) => writeSeries(folder, count, SLICES, SLICE_SIDE),
    model: (directory) => voxelLabels(directory, SLICES, SLICE_SIDE),
  },
};
