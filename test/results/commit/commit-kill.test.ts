/**
 * kill -9 of the whole product at random points of its life, and two of it on one NAME: afterwards
 * there is everything or nothing, an earlier result is never lost, and the bytes are those of a run
 * that nobody disturbed. Deaths before each single step of the commit are in commit-crash.test.ts.
 * RADSERVE_KILLS sets the number of points.
 */
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { cpSync, mkdirSync, readdirSync, readFileSync, watch, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import t from "tap";
import { samples } from "../../../scripts/demo/samples.js";
import { infer } from "../../../src/inference/infer-image.js";
import { type InferTask } from "../../../src/inference/task.js";
import { filesOf, readReceipt } from "../../../src/results/commit/reuse.js";
import { engineWithFolder, modelsOf } from "../../support/real-engine.js";
import { shippedModels } from "../../support/manifests.js";
import { random } from "../../support/dicom.js";
import { ADDON, needs } from "../../support/needs.js";
import { hash, recoverFolder } from "../../support/commits.js";

const KILLS = Number(process.env["RADSERVE_KILLS"] ?? 50);
const MOST_KILLS = 4 * KILLS;
/** A process that has ended before its moment shows that others come too late as well. */
const SOONER = 0.9;
const AT_ONCE = 2;
const NAME = "slice.dcm";
const STAGING = `.${NAME}.radserve`;
const STARTED = "2026-11-21T10:00:00.000Z";
const main = fileURLToPath(new URL("../../../src/main.js", import.meta.url));

/**
 * When to kill: so many milliseconds after the start, or after an entry of the output folder has
 * changed so often.
 */
type Moment = { after: number } | { changes: number; then: number } | { staged: number };

/** What a folder holds: each file's hash by name, the receipt without its times. */
async function contents(folder: string): Promise<Record<string, unknown>> {
  const found = await readReceipt(`${folder}/${NAME}.json`);
  if (found.kind !== "receipt") return { names: readdirSync(folder) };
  const { timings, ...receipt } = found.receipt;
  const names = readdirSync(folder).sort();
  const hashes = names
    .filter((name) => name !== `${NAME}.json`)
    .map((name) => [name, hash(readFileSync(join(folder, name)))] as const);
  t.same(
    names,
    [...filesOf(found.receipt).keys(), `${NAME}.json`].sort(),
    "the receipt and what it lists",
  );
  t.same(
    Object.fromEntries(hashes),
    Object.fromEntries(filesOf(found.receipt)),
    "each with its hash",
  );
  return { started: timings.started_at, receipt, files: Object.fromEntries(hashes) };
}

t.test("killed at any time, and two at once", { skip: needs(ADDON) }, async (t) => {
  const { engine, folder: place } = engineWithFolder(t, "kill");
  const models = join(place, "models");
  cpSync(join(shippedModels, "ct-tissue"), join(models, "ct-tissue"), { recursive: true });
  const input = join(place, NAME);
  writeFileSync(input, (await samples()).ct);
  const loaded = await modelsOf(models, engine);
  const run = (outputFolder: string, more: Partial<InferTask> = {}) =>
    infer(
      {
        requestId: "test",
        inputPath: input,
        outputFolder,
        priority: "routine",
        cancelId: 1,
        startedAt: STARTED,
        roots: { input: undefined, output: undefined },
        ...more,
      },
      { engine, models: loaded.entries },
    );

  /** What a run that nobody disturbs writes, by its start. */
  const undisturbed = new Map<string, Promise<Record<string, unknown>>>();
  const expected = (startedAt: string) => {
    let known = undisturbed.get(startedAt);
    if (known === undefined) {
      const folder = join(place, `alone-${undisturbed.size}`);
      known = run(folder, { startedAt }).then(() => contents(folder));
      undisturbed.set(startedAt, known);
    }
    return known;
  };
  const earlier = join(place, "earlier");
  await run(earlier, { outputs: ["png"] });
  const old = await contents(earlier);

  const start = (folder: string) =>
    spawn(process.execPath, [main, "infer", input, folder], {
      env: {
        ...process.env,
        RADSERVE_MODELS_DIR: models,
        RADSERVE_STATE_DIR: join(place, "state"),
      },
      stdio: "ignore",
    });
  const prepare = (folder: string, withEarlier: boolean): string => {
    if (withEarlier) cpSync(earlier, folder, { recursive: true });
    else mkdirSync(folder);
    return folder;
  };

  await t.test(`${KILLS} deaths`, async (t) => {
    const pace = await calibrate(start(prepare(join(place, "whole"), false)), join(place, "whole"));
    const chance = random(20261121);
    const moment = (i: number): Moment => {
      if (i % 5 === 0) return { after: chance() * pace.life };
      if (i % 5 < 3)
        return { changes: 1 + Math.floor(chance() * pace.changes), then: chance() * 2 };
      return { staged: chance() * pace.commit };
    };
    const points: { folder: string; before: "old" | "none" }[] = [];
    const left = { lock: 0, staging: 0, killed: 0 };
    const isEnough = () => left.killed > KILLS / 2 && left.lock > KILLS / 4 && left.staging > 0;
    // Where in a life a moment lies depends on how fast it is: there are more of them until
    // processes have died in each of its parts
    const isLast = () => points.length >= (isEnough() ? KILLS : MOST_KILLS);
    const killOne = async (): Promise<void> => {
      while (!isLast()) {
        const i = points.length;
        const folder = prepare(join(place, `point-${i}`), i % 2 === 0);
        points.push({ folder, before: i % 2 === 0 ? "old" : "none" });
        if (await killedAt(start(folder), folder, moment(i))) left.killed += 1;
        else {
          pace.life *= SOONER;
          pace.commit *= SOONER;
        }
        const names = readdirSync(folder);
        if (names.includes(`.${NAME}.lock`)) left.lock += 1;
        if (names.includes(STAGING)) left.staging += 1;
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, killOne));
    t.comment(
      `${left.killed} killed, ${left.lock} with the lock, ${left.staging} while committing`,
    );
    t.ok(isEnough(), "deaths in the midst of work");

    const found = { none: 0, old: 0, new: 0 };
    for (const [i, { folder, before }] of points.entries()) {
      if (i % 3 > 0) await recoverFolder(folder);
      else await run(folder);
      const now = await contents(folder);
      const started = typeof now["started"] === "string" ? now["started"] : undefined;
      const isOld = before === "old" && JSON.stringify(now) === JSON.stringify(old);
      found[started === undefined ? "none" : isOld ? "old" : "new"] += 1;
      if (started === undefined)
        t.same([now, before], [{ names: [] }, "none"], "nothing, where nothing was");
      // Each child has a start of its own, and wants a run of its own to be compared with: some of
      // them do
      else if (!isOld && (started === STARTED || i % 4 === 1))
        t.same(now, await expected(started), "the bytes of a run that nobody disturbed");
      if (i % 3 !== 1) continue;
      await run(folder);
      const after = await contents(folder);
      t.same(after, await expected(String(after["started"])), "and the next run completes it");
    }
    t.comment(
      `found ${found.none} with nothing, ${found.old} with the old result, ${found.new} with the new one`,
    );
  });

  await t.test("two processes on one name", async (t) => {
    for (const withEarlier of [false, true]) {
      const folder = prepare(join(place, `both-${String(withEarlier)}`), withEarlier);
      const both = [start(folder), start(folder)];
      const ends = await Promise.all(both.map((child) => once(child, "exit")));
      t.same(
        ends.map(([code]) => code as unknown),
        [0, 0],
      );
      const now = await contents(folder);
      t.same(now, await expected(String(now["started"])));
    }
  });

  await t.test("two processes on one name, one of them killed", async (t) => {
    const chance = random(7);
    for (let i = 0; i < 2; i++) {
      const folder = prepare(join(place, `survivor-${i}`), i % 2 === 0);
      const survivor = start(folder);
      const end = once(survivor, "exit") as Promise<[number | null]>;
      await killedAt(start(folder), folder, { staged: chance() * 20 });
      t.equal((await end)[0], 0);
      const now = await contents(folder);
      t.same(now, await expected(String(now["started"])));
    }
  });
});

/**
 * Milliseconds of a whole life, changes of the folder's entries within it, and milliseconds from
 * staging to the end.
 */
async function calibrate(child: ChildProcess, folder: string) {
  const began = performance.now();
  let [changes, staged] = [0, began];
  const watcher = watch(folder, (_, entry) => {
    changes += 1;
    if (entry === STAGING && staged === began) staged = performance.now();
  });
  const [code] = (await once(child, "exit")) as [number | null];
  watcher.close();
  t.equal(code, 0);
  const end = performance.now();
  return { life: end - began, changes, commit: Math.min(end - staged, 200) };
}

/** Kills a process at a moment of its work in a folder; false where it ended before. */
async function killedAt(child: ChildProcess, folder: string, moment: Moment): Promise<boolean> {
  let changes = 0;
  let timer: NodeJS.Timeout | undefined;
  const killAfter = (milliseconds: number) => {
    timer ??= setTimeout(() => child.kill("SIGKILL"), milliseconds);
  };
  if ("after" in moment) killAfter(moment.after);
  const watcher = watch(folder, (_, entry) => {
    changes += 1;
    if ("changes" in moment && changes === moment.changes) killAfter(moment.then);
    if ("staged" in moment && entry === STAGING) killAfter(moment.staged);
  });
  const [, signal] = (await once(child, "exit")) as [number | null, string | null];
  clearTimeout(timer);
  watcher.close();
  return signal === "SIGKILL";
}
