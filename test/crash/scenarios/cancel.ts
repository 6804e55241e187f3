/** Cancel when half is done: what was written stays and is whole, nothing more appears. */
import { mkdirSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";
import path from "node:path";
import { countsText, done } from "../../../src/commands/job-text.js";
import { NameLock } from "../../../src/files/name-lock.js";
import { ServingNode } from "../lib/node.js";
import { writeImages } from "../lib/images.js";
import { CrashJob } from "../lib/job.js";
import { seconds, type Options, type Outcome, type Scenario } from "../lib/scenario.js";
import { verify } from "../lib/verify.js";

/** Longer than any work in flight may take on these images. */
const SETTLE_MS = 3_000;
/** On a machine that does much else, an end takes long. */
const LONGEST_END_MS = 240_000;

async function cancelHalfWay(options: Options): Promise<Outcome> {
  const node = await ServingNode.start();
  const began = performance.now();
  try {
    const images = writeImages(node.input, options.items);
    // However late it is cancelled, one image is left
    const last = path.join(node.output, images.at(-1)!.relative);
    mkdirSync(path.dirname(last), { recursive: true });
    const lock = await NameLock.take(path.dirname(last), path.basename(last));
    const job = await CrashJob.submit(node, "cancel");
    const half = await job.until(
      "half done",
      (now) => now.total !== null && done(now) >= options.items / 2,
    );
    const asked = performance.now();
    await job.cancel();
    const ended = await job.untilEnded(LONGEST_END_MS);
    await lock.release();
    const took = performance.now() - asked;
    await delay(SETTLE_MS);
    const faults: string[] = [];
    const { succeeded, cancelled, failed } = ended.counts;
    if (ended.state !== "cancelled") faults.push(`the job is ${ended.state}`);
    if (succeeded + cancelled !== options.items || failed > 0)
      faults.push(`items: ${countsText(ended)}`);
    for (const item of failed > 0 ? await job.items("failed") : [])
      faults.push(`item ${item.index} failed: ${JSON.stringify(item.error)}`);
    if (cancelled === 0) faults.push("nothing was left to cancel");
    const written = new Set((await job.items("succeeded")).map((item) => item.input_image_path));
    const expected = images.filter(({ relative }) => written.has(path.join(node.input, relative)));
    faults.push(...verify(expected, node.input, node.output).faults);
    const later = await job.look();
    if (JSON.stringify(later.counts) !== JSON.stringify(ended.counts))
      faults.push("counts changed after the end");
    const summary = `${options.items} items, cancelled at ${done(half)}, ended ${took.toFixed(0)} ms later: ${countsText(ended)}; ${seconds(began)}`;
    return { summary, faults };
  } finally {
    await node.stop();
    await node.remove();
  }
}

export const cancel: Record<string, Scenario> = {
  cancel: { description: "cancel at 50 %", run: cancelHalfWay },
};
