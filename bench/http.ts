/**
 * `npm run bench -- http [--requests 200]`: that many single requests at once, each for another
 * file; every answer is compared with the painted truth, and the delay of the event loop that
 * serves HTTP is read from /metrics.
 */
import { copyFileSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { EVENT_LOOP_STEP_MS } from "../src/server/metrics.js";
import { answerSchema } from "../src/results/receipt/receipt.js";
import { samples } from "../scripts/demo/samples.js";
import { startServer } from "./lib/server.js";
import { quantile } from "./lib/statistics.js";

const { values } = parseArgs({ options: { requests: { type: "string", default: "200" } } });

/** Value of one metric line, summed over its labels. */
function metric(text: string, name: string): number {
  const lines = text
    .split("\n")
    .filter((line) => line.startsWith(`${name} `) || line.startsWith(`${name}{`));
  return lines.reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(" ") + 1)), 0);
}

/**
 * Milliseconds by which timers came late since the last look; the histogram counts their own time
 * too.
 */
const delayOf = (text: string) => (which: string) =>
  Math.max(0, metric(text, `nodejs_eventloop_lag_${which}_seconds`) * 1000 - EVENT_LOOP_STEP_MS);

const count = Number(values.requests);
const server = await startServer();
try {
  const { ct, truth } = await samples();
  const seed = join(server.input, "seed.dcm");
  writeFileSync(seed, ct);
  const folder = join(server.output, "bench");
  mkdirSync(folder);
  const inputs = Array.from({ length: count }, (_, i) => join(server.input, `slice-${i}.dcm`));
  for (const input of inputs) copyFileSync(seed, input);
  await server.post({ input_image_path: seed, output_folder_path: folder });
  await fetch(`${server.url}/metrics`);

  const expected = Object.values(truth);
  let wrong = 0;
  const began = performance.now();
  const latencies = await Promise.all(
    inputs.map(async (input) => {
      const { status, body } = await server.post({
        input_image_path: input,
        output_folder_path: folder,
      });
      const answer = answerSchema.safeParse(body);
      const areas =
        answer.data?.models.find((m) => m.name === "ct-tissue")?.measurements.map((m) => m.value) ??
        [];
      const right =
        status === 200 &&
        areas.length === 4 &&
        areas.every((a, i) => Math.abs(a - expected[i]!) < 1e-6);
      if (!right) wrong++;
      return performance.now() - began;
    }),
  );
  const seconds = (performance.now() - began) / 1000;
  const metrics = await (await fetch(`${server.url}/metrics`)).text();
  const delay = delayOf(metrics);
  const result = {
    requests: count,
    wrong,
    images_per_second: count / seconds,
    latency_ms: { p50: quantile(latencies, 0.5), p99: quantile(latencies, 0.99) },
    event_loop_delay_ms: { p50: delay("p50"), p99: delay("p99"), max: delay("max") },
  };
  console.log(result);
  process.exitCode = wrong === 0 && result.event_loop_delay_ms.p99 < 10 ? 0 : 1;
} finally {
  await server.stop();
}
