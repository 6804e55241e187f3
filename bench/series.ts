/**
 * `npm run bench -- series [--slices 300] [--requests 5] [--only native,jpeg-ls,...]`: how long a
 * server takes to read, sort and decode a CT series of 512 x 512, beside the decodes of its slices
 * one after the other, shared out over the cores. The network sees 64 x 64 x 64 voxels, so that the
 * time is that of the series.
 */
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { availableParallelism, tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { readImage } from "../src/images/read-image.js";
import {
  attributesOf,
  compress,
  CT_SLICE,
  dicomFile,
  SYNTAXES,
  type Coder,
  type Raw,
} from "../test/support/dicom.js";
import { ctPhantom } from "../scripts/demo/phantom.js";
import { turned } from "./lib/bulk-images.js";
import { voxelLabels } from "./peers/models.js";
import { machine, startServer } from "./lib/server.js";
import { median } from "./lib/statistics.js";

const CODERS: Coder[] = ["jpeg-lossless", "jpeg-ls", "jpeg2000", "htj2k"];
const { values } = parseArgs({
  options: {
    slices: { type: "string", default: "300" },
    requests: { type: "string", default: "5" },
    only: { type: "string", default: ["native", ...CODERS].join(",") },
  },
});
const SIDE = 512;
const NETWORK_SIDE = 64;
/** Different pictures; the slices have them by turns. */
const PICTURES = 5;

/** Writes a series, and gives the paths of its files. */
async function writeSeries(folder: string, coder: string, slices: number): Promise<string[]> {
  mkdirSync(folder);
  const { rows, columns, stored, spacing } = ctPhantom(SIDE);
  const raws = Array.from({ length: PICTURES }, (_, i): Raw => {
    const data = turned(stored, columns, i);
    return { rows, columns, samples: 1, bitsAllocated: 16, bitsStored: 12, data };
  });
  const found = CODERS.find((one) => one === coder);
  if (found === undefined && coder !== "native")
    throw new Error(`--only: expected native, ${CODERS.join(", ")}; found ${coder}.`);
  const pixels = await Promise.all(
    raws.map(async (raw) =>
      found === undefined ? raw.data : { fragments: [(await compress(found, raw)).slice()] },
    ),
  );
  return Array.from({ length: slices }, (_, i) => {
    const attributes = attributesOf(raws[i % PICTURES]!, {
      ...CT_SLICE,
      SOPInstanceUID: `1.2.826.0.1.4.${i + 1}`,
      StudyInstanceUID: "1.2.826.0.1.1",
      SeriesInstanceUID: "1.2.826.0.1.2",
      FrameOfReferenceUID: "1.2.826.0.1.3",
      PixelSpacing: `${spacing}\\${spacing}`,
      ImagePositionPatient: `0\\0\\${i}`,
      ImageOrientationPatient: "1\\0\\0\\0\\1\\0",
    });
    const path = join(folder, `${i}.dcm`);
    const syntax = found === undefined ? {} : { transferSyntax: SYNTAXES[found] };
    writeFileSync(path, dicomFile({ ...syntax, attributes, pixels: pixels[i % PICTURES]! }));
    return path;
  });
}

/** Milliseconds to decode files one after the other, reading and parsing left out. */
async function decodeAll(files: readonly string[]): Promise<number> {
  let took = 0;
  for (const file of files) {
    const image = await readImage(readFileSync(file));
    const began = performance.now();
    await image.frame(0);
    took += performance.now() - began;
  }
  return took;
}

/** The folder of a model that takes any series. */
function writeModel(folder: string): void {
  voxelLabels(folder, NETWORK_SIDE, NETWORK_SIDE);
  const path = join(folder, "voxel-labels", "model.json");
  const manifest = JSON.parse(readFileSync(path, "utf8")) as { inputs: object[] };
  const size = { kind: "fixed", depth: NETWORK_SIDE, height: NETWORK_SIDE, width: NETWORK_SIDE };
  const inputs = manifest.inputs.map((input) => ({ ...input, size, fit: "stretch" }));
  writeFileSync(path, JSON.stringify({ ...manifest, inputs }));
}

const models = mkdtempSync(join(tmpdir(), "radserve-series-"));
writeModel(models);
const server = await startServer({ RADSERVE_MODELS_DIR: models });
try {
  const rows = [];
  for (const coder of values.only.split(",")) {
    const folder = join(server.input, coder);
    const files = await writeSeries(folder, coder, Number(values.slices));
    const read: number[] = [];
    const decodes: number[] = [];
    // By turns; the first of each warms codecs and threads
    for (let i = 0; i <= Number(values.requests); i++) {
      const decoded = await decodeAll(files);
      const { status, body } = await server.post({
        input_image_path: folder,
        output_folder_path: join(server.output, `${coder}-${i}`),
        outputs: ["json"],
      });
      if (status !== 200) throw new Error(`${status} ${JSON.stringify(body)}`);
      const { timings_ms: laps } = body as { timings_ms: Record<string, number> };
      if (i === 0) continue;
      decodes.push(decoded);
      read.push((laps["read"] ?? 0) + (laps["look"] ?? 0) + (laps["decode"] ?? 0));
    }
    const shared = median(decodes) / availableParallelism();
    rows.push({
      coder,
      slices: files.length,
      read_and_decode_ms: Math.round(median(read)),
      decodes_over_cores_ms: Math.round(shared),
      ratio: Number((median(read) / shared).toFixed(2)),
    });
    rmSync(folder, { recursive: true });
  }
  console.log(machine());
  console.table(rows);
} finally {
  await server.stop();
  rmSync(models, { recursive: true });
}
