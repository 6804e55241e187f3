/**
 * Two nodes against one, with a model of fixed cost that sleeps instead of computing: two nodes on
 * one machine share its cores, so a model that computes would say nothing about two machines. The
 * sleep is put round ONNX Runtime from outside (lib/sleeping-run.c); the product knows nothing of
 * it.
 */
import { execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import type { Job } from "../../../src/jobs/schema.js";
import { done } from "../../../src/commands/job-text.js";
import { root } from "../../support/server.js";
import { ServingNode } from "../lib/node.js";
import { writeImages } from "../lib/images.js";
import { CrashJob } from "../lib/job.js";
import { SharedPostgres } from "../lib/postgres.js";
import { notAllSucceeded, type Options, type Outcome, type Scenario } from "../lib/scenario.js";
import { verify } from "../lib/verify.js";
import { secondNode } from "./kills.js";

/**
 * Long against what reading and writing one image costs, so that two nodes leave the cores of this
 * machine idle.
 */
const SLEEP_MS = 400;
const WANTED_RATIO = 1.8;

function headers(): string | undefined {
  const given = process.env["ONNXRUNTIME_ROOT"];
  const packaged =
    "node_modules/com.github.asus4.onnxruntime/Plugins/iOS~/onnxruntime.xcframework/ios-arm64/onnxruntime.framework/Headers";
  const places = given === undefined ? [path.join(root, packaged)] : [path.join(given, "include")];
  return places.find((folder) => existsSync(path.join(folder, "onnxruntime_c_api.h")));
}

/** Builds the library that makes runs sleep; gives the settings that load it. */
function sleeping(folder: string): Record<string, string> {
  const library = path.join(folder, "sleeping-run.so");
  const source = path.join(root, "test/crash/lib/sleeping-run.c");
  execFileSync("cc", ["-shared", "-fPIC", "-O1", "-I", headers() ?? "", "-o", library, source]);
  return { LD_PRELOAD: library, SLEEPING_RUN_MS: String(SLEEP_MS) };
}

/**
 * Images a second between the tenth and the ninetieth percent: without start, scan and the last
 * stragglers.
 */
async function steadyRate(job: CrashJob, count: number): Promise<{ rate: number; ended: Job }> {
  const at = async (share: number) => {
    const seen = await job.until(
      `${share * 100} % done`,
      (now) => now.total !== null && done(now) >= share * count,
    );
    return { images: done(seen), time: performance.now() };
  };
  const from = await at(0.1);
  const to = await at(0.9);
  const rate = ((to.images - from.images) / (to.time - from.time)) * 1000;
  return { rate, ended: await job.untilEnded() };
}

async function compare(options: Options): Promise<Outcome> {
  const postgres = await SharedPostgres.start();
  const folder = mkdtempSync(path.join(os.tmpdir(), "radserve-sleep-"));
  const settings = sleeping(folder);
  const nodes = [
    await ServingNode.start({ settings: { ...settings, DATABASE_URL: postgres.url } }),
  ];
  const [first] = nodes as [ServingNode];
  const faults: string[] = [];
  const rates: number[] = [];
  try {
    for (const count of [1, 2]) {
      if (count === 2) nodes.push(await secondNode(first, postgres.url, { settings }));
      const [input, output] = [
        path.join(first.input, String(count)),
        path.join(first.output, String(count)),
      ];
      const images = writeImages(input, options.items);
      const job = await CrashJob.submit(first, `nodes-${count}`, {
        input_folder_path: input,
        output_folder_path: output,
      });
      const { rate, ended } = await steadyRate(job, options.items);
      options.say(`${count} of ${SLEEP_MS} ms a run: ${rate.toFixed(1)} images/s`);
      rates.push(rate);
      faults.push(
        ...notAllSucceeded(ended, options.items),
        ...verify(images, input, output).faults,
      );
    }
    const [one = NaN, two = NaN] = rates;
    const ratio = two / one;
    if (!(ratio >= WANTED_RATIO)) faults.push(`expected at least ${WANTED_RATIO} of one node`);
    const summary = `${options.items} items of ${SLEEP_MS} ms; one node ${one.toFixed(1)} images/s, two ${two.toFixed(1)}: ${ratio.toFixed(2)} of one`;
    return { summary, faults };
  } finally {
    await Promise.all(nodes.map((node) => node.stop()));
    await postgres.stop();
    for (const node of nodes) await node.remove();
    rmSync(folder, { recursive: true });
  }
}

export const nodes: Record<string, Scenario> = {
  "two-nodes": {
    description: "throughput of two nodes against one, with a model that sleeps",
    skip: () => headers() === undefined && "the headers of ONNX Runtime are not there",
    run: compare,
  },
};
