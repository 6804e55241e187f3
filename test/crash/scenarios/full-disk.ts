/**
 * The results' disk is full: the job pauses and says why; when there is room it goes on by itself,
 * and loses nothing.
 */
import { mkdirSync, statfsSync } from "node:fs";
import path from "node:path";
import { countsText, done } from "../../../src/commands/job-text.js";
import { ServingNode } from "../lib/node.js";
import { writeImages } from "../lib/images.js";
import { CrashJob } from "../lib/job.js";
import {
  notAllSucceeded,
  seconds,
  type Options,
  type Outcome,
  type Scenario,
} from "../lib/scenario.js";
import { noSmallDisk, SmallDisk } from "../lib/small-disk.js";
import { verify } from "../lib/verify.js";

const RESERVE = 256 * 1024;
/**
 * What one receipt takes of the disk: its blocks, and the page that its folder or inode may need.
 */
const PER_ITEM = 8 * 1024;

async function fillAndRecover(options: Options): Promise<Outcome> {
  // Room for a third of the results
  const small = RESERVE + Math.ceil(options.items / 3) * PER_ITEM;
  const node = await ServingNode.start({
    settings: { RADSERVE_MINIMUM_FREE_DISK: String(RESERVE) },
  });
  const folder = path.join(node.output, "disk");
  mkdirSync(folder);
  const disk = new SmallDisk(folder, small);
  const began = performance.now();
  try {
    const images = writeImages(path.join(node.input, "all"), options.items);
    const job = await CrashJob.submit(node, "full", {
      input_folder_path: path.join(node.input, "all"),
      output_folder_path: folder,
    });
    const paused = await job.until("paused", ({ state }) => state === "paused", 120_000);
    const faults: string[] = [];
    if (paused.paused_reason?.code !== "disk_full")
      faults.push(`paused: ${JSON.stringify(paused.paused_reason)}`);
    if (paused.counts.failed > 0) faults.push(`when paused: ${countsText(paused)}`);
    const single = await node.client.send("POST", "/single_inference", {
      input_image_path: path.join(node.input, "all", images[0]!.relative),
      output_folder_path: path.join(node.output, "elsewhere"),
    });
    if (single.status !== 200)
      faults.push(`a single request elsewhere: ${JSON.stringify(single.body)}`);
    const { bavail, bsize } = statfsSync(folder);
    const free = Math.round((bavail * bsize) / 1024);
    disk.grow(small + options.items * PER_ITEM * 2);
    const roomy = performance.now();
    const ended = await job.untilEnded(300_000);
    faults.push(...notAllSucceeded(ended, options.items));
    faults.push(...verify(images, path.join(node.input, "all"), folder).faults);
    const summary = `${options.items} items, paused (${paused.paused_reason?.code}) at ${done(paused)} with ${free} KiB free, all ended ${seconds(roomy)} after there was room; ${seconds(began)}`;
    return { summary, faults };
  } finally {
    await node.stop();
    disk.unmount();
    await node.remove();
  }
}

export const fullDisk: Record<string, Scenario> = {
  "full-disk": {
    description: "a small tmpfs for results fills up, and gets room again",
    skip: noSmallDisk,
    run: fillAndRecover,
  },
};
