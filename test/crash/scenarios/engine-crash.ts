/**
 * One image crashes the engine whenever it runs. No image really does, so the crash is planted from
 * outside: its run never ends by itself, and the serving process faults soon after it has taken the
 * lock of that one result, which is when its inference begins.
 */
import { cpSync, existsSync, mkdirSync, readFileSync, watch } from "node:fs";
import path from "node:path";
import { countsText } from "../../../src/commands/job-text.js";
import { parseOwner } from "../../../src/files/lock-owner.js";
import * as bulk from "../../support/bulk.js";
import { endlessOver } from "../../support/endless.js";
import { root } from "../../support/server.js";
import { until } from "../../support/until.js";
import { ServingNode } from "../lib/node.js";
import { writeImages } from "../lib/images.js";
import { CrashJob } from "../lib/job.js";
import { slay } from "../lib/processes.js";
import { seconds, type Options, type Outcome, type Scenario } from "../lib/scenario.js";
import { verify } from "../lib/verify.js";

const MARKED = "marked.dcm";
/** An image with a value above this has no end. */
const LIMIT_HU = 4_000;
/** A lock that is taken only to clear up what a dead process left is gone by then. */
const LOCK_MS = 500;

/** The process that has a lock; undefined where nobody has it. */
function holderOf(lock: string): number | undefined {
  try {
    return parseOwner(readFileSync(lock, "utf8"))?.pid;
  } catch {
    return undefined;
  }
}

async function plantCrash(options: Options): Promise<Outcome> {
  const node = await ServingNode.start({
    prepare: ({ directory }) => {
      const models = path.join(directory, "own-models");
      cpSync(path.join(root, "models/ct-tissue"), path.join(models, "ct-tissue"), {
        recursive: true,
      });
      endlessOver(models, LIMIT_HU);
      return { RADSERVE_MODELS_DIR: models };
    },
  });
  const began = performance.now();
  let crashes = 0;
  let pending = false;
  mkdirSync(path.join(node.output, "poison"));
  const lock = path.join(node.output, "poison", `.${MARKED}.lock`);
  const watcher = watch(path.join(node.output, "poison"), (_, name) => {
    if (name !== path.basename(lock) || pending) return;
    pending = true;
    setTimeout(() => {
      pending = false;
      const serving = node.serving();
      // The lock of one that has ended stays until the image runs again
      if (serving === undefined || holderOf(lock) !== serving) return;
      if (slay(serving, "SIGSEGV")) crashes += 1;
    }, LOCK_MS);
  });
  try {
    const others = writeImages(node.input, options.items - 1);
    bulk.writeSlice(path.join(node.input, "poison", MARKED), 1, { RescaleIntercept: "5000" });
    const job = await CrashJob.submit(node, "crash", { models: ["ct-tissue", "endless-over"] });
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
    // What its last process left is cleared away beside the end of the job
    await until("the lock of the marked image has gone", () => !existsSync(lock));
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
