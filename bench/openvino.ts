/**
 * `npm run bench -- openvino [--rounds 3] [--slices 96] [--side 256]`: a 3D U-Net of nnU-Net's size
 * and random weights, in windows of 64 x 128 x 128, from a DICOM series to a SEG over HTTP, on ONNX
 * Runtime and on OpenVINO: two servers of the same cores, by turns. Needs npm run setup:openvino.
 */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import os from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import dcmjs from "dcmjs";
import type { Provider } from "../src/manifest/providers.js";
import { makeFinal, ourTurn, ratiosOf, writeSeries, type Turn } from "./lib/network-turns.js";
import { machine, startServer } from "./lib/server.js";
import { UNET_WINDOW, writeUnet } from "./lib/unet.js";

const { values } = parseArgs({
  options: {
    rounds: { type: "string", default: "3" },
    slices: { type: "string", default: "96" },
    side: { type: "string", default: "256" },
  },
});
const GOALS = { whole: 0.6, memory: 1.3 };
const COMPARED = ["cpu", "openvino"] as const satisfies readonly Provider[];
/**
 * InstanceNormalization sums a million values in float32: OpenVINO in one way, ONNX Runtime in
 * another that is ten times as near to what float64 gives, and random weights carry it on.
 */
const TOLERANCE = { precision: "float32", absolute: 0.1, relative: 0.1 };
const slices = Number(values.slices);
const width = Number(values.side);

function writeNetwork(folder: string, series: string): void {
  writeUnet(folder, COMPARED);
  makeFinal(folder, series);
  const path = join(folder, "model.json");
  const made = JSON.parse(readFileSync(path, "utf8")) as { canary: { tolerance: object[] } };
  made.canary.tolerance = COMPARED.map((provider) => ({ provider, ...TOLERANCE }));
  writeFileSync(path, JSON.stringify(made));
}

/** Smooth in all directions, as tissue is, with some noise. */
function voxels(count: number, width: number): Buffer {
  const data = new Int16Array(count * width * width);
  for (let z = 0, i = 0; z < count; z++)
    for (let y = 0; y < width; y++)
      for (let x = 0; x < width; x++, i++)
        data[i] =
          300 * Math.sin(x / 17) * Math.cos(y / 23) * Math.sin(z / 11) + ((i * 7919) % 61) - 30;
  return Buffer.from(data.buffer);
}

function labelsOf(seg: string): Uint8Array {
  const file = dcmjs.data.DicomMessage.readFile(Uint8Array.from(readFileSync(seg)).buffer);
  return new Uint8Array(file.dict["7FE00010"]?.Value[0] as ArrayBuffer);
}

const middleOf = (turns: Turn[]) => turns.toSorted((a, b) => a.wall - b.wall)[turns.length >> 1]!;

const scratch = mkdtempSync(join(os.tmpdir(), "radserve-openvino-"));
try {
  const models = join(scratch, "models");
  const spacing: [number, number, number] = [3, 1.5, 1.5];
  const [depth, , side] = UNET_WINDOW;
  // It fills the window: where most of one is padding, each library's rounding shows larger
  writeSeries(join(scratch, "canary"), voxels(depth, side), { sides: [...UNET_WINDOW], spacing });
  writeNetwork(join(models, "unet"), join(scratch, "canary"));
  const servers = [];
  for (const provider of COMPARED) {
    const server = await startServer({
      RADSERVE_MODELS_DIR: models,
      RADSERVE_PROVIDERS: provider,
      RADSERVE_SEGMENTATION_TYPE: "labelmap",
      RADSERVE_DEADLINE_SECONDS: "3600",
    });
    const series = join(server.input, "series");
    writeSeries(series, voxels(slices, width), { sides: [slices, width, width], spacing });
    servers.push({ provider, server, series, turns: [] as Turn[] });
  }
  try {
    for (let round = 0; round < Number(values.rounds); round++)
      for (const { server, series, turns } of servers)
        turns.push(await ourTurn(server, "unet", series, join(server.output, `${round}`)));
    const [onCpu, onOpenVino] = servers.map(({ server }) =>
      labelsOf(join(server.output, "0/series.unet.seg.dcm")),
    ) as [Uint8Array, Uint8Array];
    const differ = onCpu.reduce((count, label, i) => count + Number(label !== onOpenVino[i]), 0);
    const [cpu, openvino] = servers.map(({ turns }) => middleOf(turns)) as [Turn, Turn];
    console.log({
      ...machine(),
      load: os.loadavg().map((load) => Number(load.toFixed(1))),
      goals: GOALS,
      sides: [slices, width, width],
      cpu,
      openvino,
      ratios: ratiosOf(openvino, cpu, 3),
      differ: differ / onCpu.length,
    });
  } finally {
    for (const { server } of servers) await server.stop();
  }
} finally {
  rmSync(scratch, { recursive: true });
}
