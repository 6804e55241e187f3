/**
 * `npm run bench -- stat [--images 32] [--coder jpeg2000|jpeg-lossless]`: how long a small stat
 * request takes while that many images of 4096 x 4096 samples of 16 bits wait, against the
 * processor time of one of these images.
 */
import { copyFileSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import {
  attributesOf,
  compress,
  CT_SLICE,
  dicomFile,
  picture,
  SYNTAXES,
} from "../test/support/dicom.js";
import { samples } from "../scripts/demo/samples.js";
import { cpuSeconds } from "./lib/process-tree.js";
import { machine, startServer } from "./lib/server.js";
import { median, quantile } from "./lib/statistics.js";

const { values } = parseArgs({
  options: {
    images: { type: "string", default: "32" },
    coder: { type: "string", default: "jpeg2000" },
  },
});
const SIDE = 4096;
const COST_ROUNDS = 3;
/** Fewer would say nothing about the slowest in a hundred. */
const LEAST_STATS = 100;

async function largeImage(coder: "jpeg2000" | "jpeg-lossless"): Promise<Buffer> {
  const raw = picture({ rows: SIDE, columns: SIDE, samples: 1, bitsAllocated: 16, bitsStored: 16 });
  const attributes = attributesOf(raw, { ...CT_SLICE, PixelSpacing: "0.1\\0.1" });
  const fragments = [await compress(coder, raw)];
  return dicomFile({ transferSyntax: SYNTAXES[coder], attributes, pixels: { fragments } });
}

const { coder } = values;
if (coder !== "jpeg2000" && coder !== "jpeg-lossless")
  throw new Error(`--coder: expected jpeg2000 or jpeg-lossless; found ${coder}.`);
const count = Number(values.images);
const server = await startServer();
try {
  const seeds = { large: join(server.input, "large.dcm"), small: join(server.input, "small.dcm") };
  writeFileSync(seeds.large, await largeImage(coder));
  writeFileSync(seeds.small, (await samples()).ct);
  const folder = join(server.output, "bench");
  mkdirSync(folder);
  let last = 0;
  const infer = async (seed: string, priority: "routine" | "stat") => {
    const input = `${seed}-${(last += 1)}.dcm`;
    copyFileSync(seed, input);
    const began = performance.now();
    const { status, body } = await server.post({
      input_image_path: input,
      output_folder_path: folder,
      priority,
    });
    if (status !== 200) throw new Error(`${status}: ${JSON.stringify(body)}`);
    return performance.now() - began;
  };
  await infer(seeds.large, "routine");
  await infer(seeds.small, "stat");

  const costs: number[] = [];
  for (let round = 0; round < COST_ROUNDS; round++) {
    const before = cpuSeconds(server.process.pid!);
    await infer(seeds.large, "routine");
    costs.push((cpuSeconds(server.process.pid!) - before) * 1000);
  }
  const alone: number[] = [];
  for (let i = 0; i < 10; i++) alone.push(await infer(seeds.small, "stat"));

  let left = count;
  const began = performance.now();
  const large = Array.from({ length: count }, () =>
    infer(seeds.large, "routine").finally(() => (left -= 1)),
  );
  const latencies: number[] = [];
  while (left > 0) latencies.push(await infer(seeds.small, "stat"));
  await Promise.all(large);
  const seconds = (performance.now() - began) / 1000;
  const cost = median(costs);
  const p99 = quantile(latencies, 0.99);
  const result = {
    ...machine(),
    coder,
    large_images: count,
    seconds,
    one_large_image_on_one_core_ms: cost,
    stat_requests: latencies.length,
    enough_requests: latencies.length >= LEAST_STATS,
    stat_alone_ms: median(alone),
    stat_ms: { p50: quantile(latencies, 0.5), p99, max: Math.max(...latencies) },
    ratio: p99 / cost,
  };
  console.log(result);
  process.exitCode = result.ratio <= 1 ? 0 : 1;
} finally {
  await server.stop();
}
