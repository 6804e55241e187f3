/**
 * `npm run trial -- green [MODE...] [--times 3]`: `npm test` of a fresh clone of this commit, again
 * and again: on a machine with nothing else at work (`quiet`), beside two busy processes a core
 * (`busy`), with a third of a core (`third`, three at once; needs root for a control group), and at
 * the lowest priority beside busy processes on all cores but one (`nice`, once; beside one on every
 * core, the lowest priority gets a seventieth of the machine). A line for each run: what it ended
 * with, its seconds and its processor time. Without a mode: all of them, some hours.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import {
  chmodSync,
  createWriteStream,
  existsSync,
  mkdirSync,
  mkdtempSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { readFile } from "node:fs/promises";
import { availableParallelism, tmpdir } from "node:os";
import path from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "..");
const TIMES = 3;
/** Ends with the process that started it, however that ends. */
const BUSY = `while (process.ppid === ${process.pid});`;
/** Of a control group's turn, in microseconds. */
const PERIOD = 100_000;
const THIRD = Math.round(PERIOD / 3);

/** Runs a command with its output in `log`, and gives its status. */
async function run(words, cwd, log) {
  const out = createWriteStream(log);
  await once(out, "open");
  const child = spawn(words[0], words.slice(1), { cwd, stdio: ["ignore", out, out] });
  const [status] = await once(child, "exit");
  out.end();
  return status;
}

/** A clone that is installed, so that only its tests are measured. */
async function clone(folder) {
  const log = `${folder}.log`;
  for (const words of [
    ["git", "clone", "--quiet", root, folder],
    ["sh", "-c", `cd '${folder}' && npm ci --prefer-offline --no-audit --no-fund`],
  ])
    if ((await run(words, root, log)) !== 0) throw new Error(`${words.join(" ")} failed: ${log}`);
}

/** So many processes that never rest; gives what ends them. */
function busy(count) {
  const children = Array.from({ length: count }, () =>
    spawn(process.execPath, ["-e", BUSY], { stdio: "ignore" }),
  );
  return () => children.forEach((child) => child.kill());
}

/** Words that run a command with a third of a core, in a control group of its own. */
function withThird(name, words) {
  const unified = existsSync("/sys/fs/cgroup/cgroup.controllers");
  const group = path.join("/sys/fs/cgroup", unified ? "" : "cpu", `radserve-${name}`);
  mkdirSync(group, { recursive: true });
  if (unified) writeFileSync(path.join(group, "cpu.max"), `${THIRD} ${PERIOD}`);
  else {
    writeFileSync(path.join(group, "cpu.cfs_period_us"), String(PERIOD));
    writeFileSync(path.join(group, "cpu.cfs_quota_us"), String(THIRD));
  }
  return ["sh", "-c", `echo $$ > '${group}/cgroup.procs' && exec "$@"`, "sh", ...words];
}

const TEST = ["npm", "test"];
/** By its name: how often it runs, how many of them at once, what works beside, its words. */
const MODES = {
  quiet: { times: TIMES, atOnce: 1, beside: 0, words: () => TEST },
  busy: { times: TIMES, atOnce: 1, beside: 2 * availableParallelism(), words: () => TEST },
  third: { times: TIMES, atOnce: TIMES, beside: 0, words: (name) => withThird(name, TEST) },
  nice: {
    times: 1,
    atOnce: 1,
    beside: availableParallelism() - 1,
    words: () => ["nice", "-n", "19", ...TEST],
  },
};

async function tried(mode, number, folder) {
  const name = `${mode}-${number}`;
  const [place, log] = [path.join(folder, name), path.join(folder, `${name}.txt`)];
  await clone(place);
  const stop = busy(MODES[mode].beside);
  const began = Date.now();
  const status = await run(MODES[mode].words(name), place, log).finally(stop);
  const seconds = Math.round((Date.now() - began) / 1000);
  const said = (await readFile(log, "utf8")).split("\n");
  const processor = said.findLast((line) => /s of processor time in/.test(line)) ?? "";
  const counts = said.findLast((line) => line.startsWith("# { ")) ?? "no summary";
  console.log(
    `${status === 0 ? "ok    " : "FAILED"} ${name}: ${seconds} s; ${processor}; ${counts}`,
  );
  if (status === 0) return rmSync(place, { recursive: true });
  console.log(said.filter((line) => line.startsWith("FAILED ")).join("\n"));
  console.log(`       ${log}`);
  process.exitCode = 1;
}

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { times: { type: "string" } },
});
const unknown = positionals.find((mode) => !Object.hasOwn(MODES, mode));
if (unknown !== undefined) {
  console.error(`Expected some of ${Object.keys(MODES).join(", ")}; found ${unknown}.`);
  process.exit(2);
}
const folder = mkdtempSync(path.join(tmpdir(), "radserve-green-"));
// Tests run programs as an ordinary user, too
chmodSync(folder, 0o755);
// The clones find the conformance files beside them, as this one does
const shared = path.join(root, "../shared");
if (existsSync(shared)) symlinkSync(shared, path.join(folder, "shared"));
for (const mode of positionals.length > 0 ? positionals : Object.keys(MODES)) {
  const times = Number(values.times ?? MODES[mode].times);
  for (let done = 0; done < times; done += MODES[mode].atOnce) {
    const batch = Math.min(MODES[mode].atOnce, times - done);
    await Promise.all(Array.from({ length: batch }, (_, i) => tried(mode, done + i + 1, folder)));
  }
}
