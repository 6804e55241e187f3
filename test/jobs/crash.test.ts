/**
 * Processes that die, stand still or are told to stop in the middle of a job: every image ends, and
 * once.
 */
import { readdirSync, readFileSync, renameSync } from "node:fs";
import path from "node:path";
import t, { type Test } from "tap";
import { databaseFolders } from "../../src/features/local-postgres/folders.js";
import { postmasterOf } from "../../src/features/local-postgres/process.js";
import { lockName } from "../../src/files/helper-names.js";
import { parseOwner } from "../../src/files/lock-owner.js";
import { hashFile } from "../../src/files/durable-files.js";
import { receiptSchema } from "../../src/results/receipt/receipt.js";
import { filesOf } from "../../src/results/receipt/read-receipt.js";
import { withDurations } from "../support/durations.js";
import { endlessOver } from "../support/endless.js";
import { ADDON, needs } from "../support/needs.js";
import {
  bulkOf,
  bulkPlace,
  hold,
  nameOf,
  startBulk,
  startWorker,
  writeSlice,
  writeSlices,
} from "../support/bulk.js";
import { privatePlace } from "../support/private-postgres.js";
import { sharedDatabase } from "../support/postgres.js";
import { startServer } from "../support/server.js";
import { until } from "../support/until.js";

const skip = needs(ADDON);

/** Every image has its whole result, and nothing else lies there. */
async function verify(t: Test, folder: string, count: number): Promise<void> {
  const entries = readdirSync(folder);
  const receipts = entries.filter((name) => name.endsWith(".json"));
  t.equal(receipts.length, count);
  const listed = new Set(receipts);
  for (const name of receipts) {
    const files = filesOf(
      receiptSchema.parse(JSON.parse(readFileSync(path.join(folder, name), "utf8"))),
    );
    for (const [file, sha256] of files) {
      listed.add(file);
      if ((await hashFile(path.join(folder, file))) !== sha256)
        t.fail("a file differs from its receipt");
    }
  }
  t.strictSame(entries.sort(), [...listed].sort(), "nothing is left over");
}

/** Holds the results of all images from one on. */
const holdFrom = (t: Test, output: string, from: number, count: number) =>
  hold(
    t,
    output,
    Array.from({ length: count - from }, (_, i) => nameOf(from + i)),
  );

t.test("the serving process killed again and again", { skip }, async (t) => {
  const place = bulkPlace(t);
  const bulk = await startBulk(t, place);
  const count = 40;
  writeSlices(path.join(place.input, "many"), count);
  const output = path.join(place.output, "many");
  const stops = [10, 25];
  // It is killed when it comes to these
  const groups = await Promise.all(
    stops.map((from) =>
      hold(
        t,
        output,
        Array.from({ length: 4 }, (_, i) => nameOf(from + i)),
      ),
    ),
  );
  const id = await bulk.submit({
    input_folder_path: path.join(place.input, "many"),
    output_folder_path: output,
    outputs: ["seg"],
  });
  for (const [time, done] of stops.entries()) {
    await bulk.until(id, ({ counts }) => counts.succeeded >= done && counts.running > 0);
    process.kill(bulk.server.servingPid(), "SIGKILL");
    await groups[time]!();
  }
  const job = await bulk.ended(id);
  t.match(job, { state: "completed", total: count, counts: { succeeded: count } });
  const items = await bulk.items(id);
  t.equal(new Set(items.map(({ index }) => index)).size, count);
  t.ok(
    items.some(({ attempts }) => attempts > 1),
    "some ran again",
  );
  await verify(t, output, count);
});

/** The process that has a name; undefined where none has it, or one that is just taking it. */
function holderOf(folder: string, name: string): number | undefined {
  try {
    return parseOwner(readFileSync(path.join(folder, lockName(name)), "utf8"))?.pid;
  } catch {
    return undefined;
  }
}

/**
 * Ends the serving process each time that one image of 40 runs, three times in all.
 * @returns the ended job's items, and how often the process was ended
 */
async function endWith(t: Test, signal: NodeJS.Signals) {
  const { pool, url } = await sharedDatabase(t);
  const place = bulkPlace(t, { DATABASE_URL: url });
  endlessOver(place.environment["RADSERVE_MODELS_DIR"]!, 4_000);
  const bulk = await startBulk(t, place);
  const input = path.join(place.input, "poison");
  const output = path.join(place.output, "poison");
  writeSlices(input, 40);
  // It runs until its process ends; the other does not
  const [poison, harmless] = [path.join(input, nameOf(20)), path.join(place.input, "harmless")];
  writeSlice(harmless, 20);
  writeSlice(poison, 20, { RescaleIntercept: "5000" });
  const id = await bulk.submit({
    input_folder_path: input,
    output_folder_path: output,
    models: ["endless-over"],
    outputs: ["json"],
  });
  const killed = new Set<number>();
  while (killed.size < 3) {
    await until("the image runs in the next process", async () => {
      const { rows } = await pool.query(
        "select from radserve.item where index = 20 and state = 'running' and attempts = $1",
        [killed.size + 1],
      );
      return rows.length === 1 && holderOf(output, nameOf(20)) === bulk.server.servingPid();
    });
    const pid = bulk.server.servingPid();
    // This one has read it
    if (killed.size === 2) renameSync(harmless, poison);
    process.kill(pid, signal);
    killed.add(pid);
  }
  const { state, counts } = await bulk.ended(id);
  t.equal(state, "completed");
  t.equal(killed.size, 3, "once among others, twice alone");
  return { counts, items: await bulk.items(id), output };
}

t.test(
  "an image that crashes the process is found, and its neighbours go on",
  { skip },
  async (t) => {
    const { counts, items } = await endWith(t, "SIGSEGV");
    t.match(counts, { succeeded: 39, failed: 1 });
    t.match(items[20], {
      index: 20,
      state: "failed",
      attempts: 3,
      error: { error: "engine_crash" },
    });
  },
);

t.test(
  "an image that ran whenever the process was killed from outside is not to blame",
  { skip },
  async (t) => {
    const { counts, items, output } = await endWith(t, "SIGKILL");
    t.match(counts, { succeeded: 40 });
    t.match(items[20], { index: 20, state: "succeeded", attempts: 4 });
    await verify(t, output, 40);
  },
);

t.test(
  "a node that stood still loses its images, and does no harm when it wakes",
  { skip },
  async (t) => {
    const { pool, url } = await sharedDatabase(t);
    const place = bulkPlace(t, {
      ...withDurations({ nodeBeat: 500, nodeSilent: 2_000, nodeLease: 8_000 }),
      DATABASE_URL: url,
    });
    const bulk = await startBulk(t, place);
    const second = await startWorker(t, place);
    await second.logged((line) => line.msg === "models loaded");
    const count = 40;
    writeSlices(path.join(place.input, "many"), count);
    const output = path.join(place.output, "many");
    const release = await holdFrom(t, output, 4, count);
    const id = await bulk.submit({
      input_folder_path: path.join(place.input, "many"),
      output_folder_path: output,
      outputs: ["seg"],
    });
    const owners = async () => {
      const { rows } = await pool.query(
        "select distinct owner from radserve.item where state = 'running'",
      );
      return rows.length;
    };
    await until("both nodes have images", async () => (await owners()) === 2);
    const saysIt = ({ msg }: { msg: string }) => /silent for too long/.test(msg);
    // On a busy machine a node may have stood still before
    const said = second.log.filter(saysIt).length;
    const sleeper = second.servingPid();
    process.kill(sleeper, "SIGSTOP");
    await release();
    const job = await bulk.ended(id);
    t.match(job, { state: "completed", counts: { succeeded: count, failed: 0 } });
    const before = await bulk.items(id);
    process.kill(sleeper, "SIGCONT");
    await second.told(saysIt, said + 1);
    await until("what it had begun has ended", async () =>
      /^radserve_inferences_running 0$/m.test(await (await fetch(`${second.url}/metrics`)).text()),
    );
    t.strictSame(await bulk.items(id), before, "its late results change nothing");
    await verify(t, output, count);
    const refused = await fetch(`${second.url}/bulk_inference`, {
      headers: { Authorization: second.token },
    });
    t.equal(refused.status, 404, "a worker takes no requests");
  },
);

t.test(
  "told to stop, it gives back what it has not begun; the next start goes on",
  { skip },
  async (t) => {
    const place = privatePlace(t);
    const first = bulkOf(await startServer({ ...place, remove: () => undefined }));
    const count = 40;
    writeSlices(path.join(place.input, "many"), count);
    const output = path.join(place.output, "many");
    const release = await holdFrom(t, output, 10, count);
    const id = await first.submit({
      input_folder_path: path.join(place.input, "many"),
      output_folder_path: output,
      outputs: ["json"],
    });
    await first.until(id, ({ counts }) => counts.succeeded === 10 && counts.running > 0);
    const stopped = first.server.stop();
    // From then on nothing is begun
    await first.server.logged(({ msg }) => msg.startsWith("stopping"));
    await release();
    t.equal(await stopped, 0);
    const written = readdirSync(output).filter((name) => name.endsWith(".json")).length;
    t.ok(written >= 10 && written < count);
    const bulk = await startBulk(t, place);
    await bulk.server.logged((line) => line.msg === "bulk database started");
    t.match(await bulk.ended(id), { state: "completed", counts: { succeeded: count } });
    t.ok(
      (await bulk.items(id)).every(({ attempts }) => attempts === 1),
      "nothing ran twice",
    );
    await verify(t, output, count);
  },
);

t.test("the database killed in the middle", { skip }, async (t) => {
  const place = privatePlace(t);
  const bulk = await startBulk(t, place);
  const count = 40;
  writeSlices(path.join(place.input, "many"), count);
  const release = await holdFrom(t, path.join(place.output, "many"), 10, count);
  const id = await bulk.submit({
    input_folder_path: path.join(place.input, "many"),
    output_folder_path: path.join(place.output, "many"),
    outputs: ["json"],
  });
  await bulk.until(id, ({ counts }) => counts.succeeded >= 10);
  process.kill(
    postmasterOf(databaseFolders(place.environment["RADSERVE_STATE_DIR"]!).data)!,
    "SIGKILL",
  );
  await release();
  writeSlice(path.join(place.input, "single.dcm"));
  const single = await bulk.send("POST", "/single_inference", {
    input_image_path: path.join(place.input, "single.dcm"),
    output_folder_path: place.output,
  });
  t.equal(single.status, 200, "single requests do not notice");
  t.match(await bulk.ended(id), { state: "completed", counts: { succeeded: count } });
  await verify(t, path.join(place.output, "many"), count);
});
