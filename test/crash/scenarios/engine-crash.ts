/**
 * One image crashes the engine whenever it runs. No image really does, so the crash is planted from
 * outside: the serving process faults as soon as the lock of that one result appears, which is when
 * its inference begins.
 */
import { existsSync, mkdirSync, watch } from "node:fs";
import path from "node:path";
import { countsText } from "../../../src/commands/job-text.js";
import { ServingNode } from "../lib/node.js";
import { writeImages, writeSlice } from "../lib/images.js";
import { CrashJob } from "../lib/job.js";
import { slay } from "../lib/processes.js";
import { seconds, type Options, type Outcome, type Scenario } from "../lib/scenario.js";
import { verify } from "../lib/verify.js";

const MARKED = "marked.dcm";
/** Large, so that it still runs when its lock has been seen. */
const MARKED_SIDE = 3072;
/** A lock that is taken only to clear up what a dead process left is gone by then. */
const LOCK_MS = 50;

async function plantCrash(options: Options): Promise<Outcome> {
  const node = await ServingNode.start();
  const began = performance.now();
  let crashes = 0;
  let pending = false;
  mkdirSync(path.join(node.output, "poison"));
  const watcher = watch(path.join(node.output, "poison"), (_, name) => {
    if (name !== `.${MARKED}.lock` || pending) return;
    pending = true;
    setTimeout(() => {
      pending = false;
      if (!existsSync(path.join(node.output, "poison", name))) return;
      const serving = node.serving();
      if (serving !== undefined && slay(serving, "SIGSEGV")) crashes += 1;
    }, LOCK_MS);
  });
  try {
    const others = writeImages(node.input, options.items - 1);
    writeSlice(node.input, `poison/${MARKED}`, options.items, MARKED_SIDE);
    const job = await CrashJob.submit(node, "crash");
    const ended = await job.untilEnded(900_000);
    const faults: string[] = [];
    const { succeeded, failed } = ended.counts;
    if (ended.state !== "completed" || succeeded !== others.length || failed !== 1)
      faults.push(`${ended.state}, items: ${countsText(ended)}`);
    const [item, ...more] = await job.items("failed");
    if (item?.input_image_path.endsWith(MARKED) !== true || more.length > 0)
      faults.push("it is not the marked image, or not it alone, that failed");
    if (item?.error?.error !== "engine_crash")
      faults.push(`it failed with ${JSON.stringify(item?.error)}`);
    faults.push(...verify(others, node.input, node.output).faults);
    const summary = `${options.items} items, ${crashes} crashes by the marked one, then ${String(item?.error?.error)} after ${item?.attempts ?? "?"} runs; ${countsText(ended)}; ${seconds(began)}`;
    return { summary, faults };
  } finally {
    watcher.close();
    await node.stop();
    await node.remove();
  }
}

export const engineCrash: Record<string, Scenario> = {
  "engine-crash": { description: "one image of many crashes the engine", run: plantCrash },
};
