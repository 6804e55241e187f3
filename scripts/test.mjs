/**
 * `npm test`, and each group of tests: `node scripts/test.mjs [--quick | --group NAME | FILE...]
 * [--jobs N] [--no-build] [--remember]`.
 *
 * Builds what has changed, and then runs checks and test files beside each other, the longest
 * first. A test file is a process of its own that prints TAP; short ones that change nothing of
 * their process share one, unless they are named. The run ends with tap's summary over all of them
 * and with the ten slowest. It fails where a check or a test fails, where a file ends without a
 * summary, or leaves processes behind. --no-build takes what is built, for a run beside another
 * one. --remember writes the seconds of each file to scripts/test-seconds.json, from which the
 * order comes.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { Buffer } from "node:buffer";
import process from "node:process";
import { clearTimeout, setTimeout } from "node:timers";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { QUICK } from "./quick-tests.mjs";
import { nodeBinary } from "./runtime.mjs";

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "..");
const tests = path.join(root, "dist/test");
const table = path.join(root, "scripts/test-seconds.json");

/**
 * What .ci/run alone runs, by files or folders of test/ and by names of CHECKS: why, and what its
 * processes find in their environment. A file or a check that is in no group is in `npm test`.
 */
const GROUPS = {
  tree: {
    why: "What is committed decides it, not the machine.",
    checks: ["lint", "format", "floors", "contract"],
    files: ["scripts/assertions.test.js", "scripts/supply.test.js"],
  },
  native: {
    why: "Compiling these takes a minute; what they test runs in the addon, for the tests of that.",
    checks: ["native tests"],
    files: [],
  },
  outside: {
    why: "Validators, readers and clients from outside judge what is written; they and the conformance files must be there.",
    files: [
      "conformance/",
      "deploy/",
      "features/sign-in/proxy.test.js",
      "http/clients.test.js",
      "scripts/unit.test.js",
    ],
  },
  kills: {
    why: "Processes are killed, PostgreSQL, disks and shares break, and all start again each time.",
    files: [
      "commands/doctor-databases.test.js",
      "results/commit/commit-kill.test.js",
      "results/commit/commit-crash.test.js",
      "jobs/crash.test.js",
      "jobs/database-faults.test.js",
      "jobs/failing-disk.test.js",
      "features/gateway/failing-disk.test.js",
      "features/gateway/failing-disk-stow.test.js",
      "jobs/faults.test.js",
      "jobs/parts-kill.test.js",
      "server/breakages.test.js",
      "features/local-postgres/postgres.test.js",
      "http/supervisor.test.js",
      "http/memory-kill.test.js",
      "teardown/teardown.test.js",
    ],
  },
  clock: {
    why: "Real time is the subject: ratios within one run.",
    files: [
      "http/revocation-time.test.js",
      "images/dicom/budgets.test.js",
      "teardown/returning.test.js",
    ],
  },
  memory: {
    why: "What a process takes shows beside large images and volumes alone, which take long.",
    files: [
      "engine/volume-memory.test.js",
      "features/gateway/stow-memory.test.js",
      "graph/large.test.js",
      "http/burst-memory.test.js",
      "http/loading-memory.test.js",
      "http/unpacked-memory.test.js",
      "images/dicom/many-planes.test.js",
      "models/reload-memory.test.js",
    ],
  },
  upkeep: {
    why: "The commands of the pages start many servers and databases one after the other; a million items are written.",
    files: ["scripts/documents.test.js", "server/upkeep.test.js", "jobs/lease-plans.test.js"],
  },
  page: {
    why: "Chromium shows the page for people.",
    files: [
      "features/gateway/page.test.js",
      "features/viewer/page.test.js",
      "features/viewer/page-files.test.js",
      "features/viewer/page-findings.test.js",
      "features/viewer/page-hands.test.js",
      "features/viewer/page-labels.test.js",
      "features/viewer/page-modalities.test.js",
      "features/viewer/page-patient.test.js",
    ],
  },
  cuda: {
    why: "A stand-in for the CUDA libraries, over a provider of 600 MB (scripts/test-cuda.mjs).",
    files: ["server/cuda.test.js"],
    environment: { RADSERVE_TEST_CUDA: "1" },
  },
  openvino: {
    why: "setup:openvino fetches 59 MB; without it the tests that need it skip.",
    files: ["graph/openvino.test.js", "inference/openvino.test.js"],
  },
  "gpu-setup": {
    why: "setup:gpu fetches 600 MB.",
    files: ["scripts/gpu-setup.test.js"],
    environment: { RADSERVE_TEST_GPU_SETUP: "1" },
  },
};

/**
 * What stands in no file that shares a process: it changes what all of a process have, or looks at
 * that. The threads of the engine are the process's, and the first who makes one says how many. A
 * file by itself takes half a second of the processor for loading tap and what it tests.
 */
const OWN_PROCESS =
  /(?<![-./\w])process\.(?!execPath|pid\b|kill\(|gete?uid\b|cwd\(|env\b(?!\S* = ))|globalThis|setDurations|threads: \d|setEnvironmentData|setPriority|node:(cluster|worker_threads)/;
/**
 * The remembered seconds of a file that shares, at most, and of all in a process: the last process
 * of a run is not to be waited for long.
 */
const SHORT_SECONDS = 40;
const TOGETHER_SECONDS = 60;

const script = (name, ...words) => [process.execPath, path.join(root, "scripts", name), ...words];
const npm = (name) => ["npm", "run", "--silent", name];

/** What is checked beside the test files, with about how many seconds each takes. */
const CHECKS = [
  { name: "native tests", seconds: 1_000, command: script("test-native.mjs") },
  { name: "lint", seconds: 900, command: npm("lint:code") },
  { name: "types", seconds: 800, command: npm("types") },
  { name: "format", seconds: 700, command: npm("format:check") },
  { name: "floors", seconds: 600, command: npm("lint:floors") },
  { name: "contract", seconds: 500, command: npm("lint:contract") },
];

/** Tests that wait leave a core to another file. */
const JOBS = os.availableParallelism() + 1;
/**
 * What a file has on a machine that is very busy; tap itself ends a test file that hangs before.
 */
const LONGEST_FILE_MS = 1_800_000;
const TAP_TIMEOUT_S = "600";
/**
 * Code as V8 keeps it, for the hundreds of processes that load the same modules. Stale entries are
 * found by their content.
 */
const COMPILE_CACHE = path.join(root, "dist/compile-cache");
/** What a test started and has told to end may take this long to be gone. */
const LONGEST_END_MS = 10_000;
/** A file that has failed may be silent for so long. */
const LONGEST_SILENCE_MS = 30_000;
/** Lines of the first failure that are told again at the end. */
const FIRST_LINES = 20;
const UNKNOWN_SECONDS = 8;
const SLOWEST = 10;

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    quick: { type: "boolean", default: false },
    group: { type: "string", multiple: true },
    jobs: { type: "string", default: String(JOBS) },
    "no-build": { type: "boolean", default: false },
    remember: { type: "boolean", default: false },
  },
});

const belongs = (file, entry) => (entry.endsWith("/") ? file.startsWith(entry) : file === entry);
const groupOf = (file) =>
  Object.keys(GROUPS).find((name) => GROUPS[name].files.some((entry) => belongs(file, entry)));

/** The checks of this run. */
function chosenChecks() {
  if (positionals.length > 0) return [];
  if (values.quick) return CHECKS.filter(({ name }) => name === "types");
  const groupOfCheck = (name) =>
    Object.keys(GROUPS).find((key) => GROUPS[key].checks?.includes(name));
  return CHECKS.filter(({ name }) => {
    const group = groupOfCheck(name);
    return values.group === undefined ? group === undefined : values.group.includes(group);
  });
}

/**
 * The test files of this run, as paths in dist/test. Ends the process where a name means nothing.
 */
function chosenFiles(all) {
  const refuse = (text) => {
    console.error(text);
    process.exit(2);
  };
  if (positionals.length > 0)
    return positionals.map((name) => {
      const file = path
        .relative(tests, path.resolve(name))
        .replace(/^(\.\.\/)+test\//, "")
        .replace(/\.ts$/, ".js");
      return all.includes(file)
        ? file
        : refuse(`${name} is no test file. Expected test/FOLDER/NAME.test.ts.`);
    });
  if (values.quick) return QUICK;
  if (values.group === undefined) return all.filter((file) => groupOf(file) === undefined);
  const unknown = values.group.find((name) => !(name in GROUPS));
  if (unknown !== undefined)
    refuse(`There is no group ${unknown}; there are ${Object.keys(GROUPS).join(", ")}.`);
  return all.filter((file) => values.group.includes(groupOf(file)));
}

/** The files of each process: those that may share one lie together, in their order. */
function inProcesses(files) {
  const shares = (file) =>
    positionals.length === 0 &&
    groupOf(file) === undefined &&
    secondsOf(file) <= SHORT_SECONDS &&
    !OWN_PROCESS.test(readFileSync(path.join(tests, file), "utf8"));
  const sharing = files.filter(shares);
  const processes = [];
  let seconds = Infinity;
  for (const file of sharing) {
    seconds += secondsOf(file);
    if (seconds > TOGETHER_SECONDS) {
      processes.push([]);
      seconds = secondsOf(file);
    }
    processes.at(-1).push(file);
  }
  return [...processes, ...files.filter((file) => !sharing.includes(file)).map((file) => [file])];
}

/** A group or a file that is not there would never run, and nobody would miss it. */
function faultsOfTables(all) {
  const entries = [...Object.values(GROUPS).flatMap(({ files }) => files), ...QUICK];
  const checks = Object.values(GROUPS).flatMap(({ checks = [] }) => checks);
  return [
    ...entries
      .filter((entry) => !all.some((file) => belongs(file, entry)))
      .map((entry) => `scripts/test.mjs names ${entry}, which is not in test/.`),
    ...checks
      .filter((check) => !CHECKS.some(({ name }) => name === check))
      .map((check) => `scripts/test.mjs names ${check}, which is not among its checks.`),
  ];
}

const running = new Set();

/** The command lines of the processes that are left of a group of processes; zombies are not. */
function leftOf(group) {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .flatMap((pid) => {
      try {
        const fields = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ").at(-1).split(" ");
        if (Number(fields[2]) !== group || fields[0] === "Z") return [];
        return [readFileSync(`/proc/${pid}/cmdline`, "utf8").replaceAll("\0", " ").slice(0, 200)];
      } catch {
        return [];
      }
    });
}

function end(group) {
  try {
    process.kill(-group, "SIGKILL");
  } catch {
    // It has gone
  }
}

const ENDS_WITH_PARENT = ["setpriv", "--pdeathsig", "KILL", "--"];
/**
 * A shell that tells on descriptor 3 what its command and all that this waited for took of the
 * processor.
 */
const TIMED = ["sh", "-c", '"$@" 3>&-; status=$?; times >&3; exit $status', "sh"];

/**
 * The sum of what `times` of a shell tells, in seconds: its own and its children's, each of the
 * user and of the system.
 */
const processorSeconds = (times) =>
  [...times.matchAll(/(\d+)m([\d.]+)s/g)].reduce(
    (sum, [, minutes, rest]) => sum + 60 * minutes + +rest,
    0,
  );

/** A test that was not skipped has failed. */
const FAILURE = /^ *not ok \d(?!.* # (?:SKIP|TODO))/m;
/** scripts/test-together.mjs: the file that may have failed has ended, and the next one begins. */
const NEXT_FILE = /^# together: .*\n/gm;

/**
 * Ends a command that has told of a failure and then says nothing: it waits for what its failure
 * keeps from coming.
 */
function endInSilence(child) {
  let timer;
  let said = "";
  let isOver = false;
  child.stdout.on("data", (data) => {
    said = `${said.slice(-1000)}${data}`;
    // Files that take a moment end several at a time
    const ended = [...said.matchAll(NEXT_FILE)].at(-1);
    if (ended !== undefined) {
      said = said.slice(ended.index + ended[0].length);
      clearTimeout(timer);
      timer = undefined;
    }
    if (timer === undefined && !FAILURE.test(said)) return;
    clearTimeout(timer);
    timer = setTimeout(() => {
      isOver = true;
      end(child.pid);
    }, LONGEST_SILENCE_MS);
  });
  return {
    /** @returns it was ended */
    stop() {
      clearTimeout(timer);
      return isOver;
    },
  };
}

/** Runs a command in a group of processes of its own, which ends with it and with this process. */
async function run({ command, environment }) {
  const began = Date.now();
  const [program, ...words] = [...ENDS_WITH_PARENT, ...TIMED, ...ENDS_WITH_PARENT, ...command];
  const child = spawn(program, words, {
    cwd: root,
    env: { ...process.env, ...environment },
    stdio: ["ignore", "pipe", "pipe", "pipe"],
    detached: true,
  });
  running.add(child.pid);
  const chunks = [];
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (data) => chunks.push(data));
  let times = "";
  child.stdio[3].on("data", (data) => (times += data));
  const closed = once(child, "close");
  const timer = setTimeout(() => end(child.pid), LONGEST_FILE_MS);
  const silence = endInSilence(child);
  const [code, signal] = await once(child, "exit");
  clearTimeout(timer);
  const status = silence.stop()
    ? `silence for ${LONGEST_SILENCE_MS / 1000} s after a failure`
    : (code ?? signal);
  const seconds = (Date.now() - began) / 1000;
  const until = Date.now() + LONGEST_END_MS;
  while (leftOf(child.pid).length > 0 && Date.now() < until) await delay(100);
  const left = leftOf(child.pid);
  end(child.pid);
  running.delete(child.pid);
  await closed;
  const text = Buffer.concat(chunks).toString();
  return { status, seconds, processor: processorSeconds(times), left, text };
}

/** The counts in tap's last summary: total, pass, fail, skip, todo. */
function countsOf(text) {
  const summary = [...text.matchAll(/^# \{ (total: .*) \}$/gm)].at(-1)?.[1];
  if (summary === undefined) return undefined;
  return Object.fromEntries(
    summary
      .split(", ")
      .map((part) => part.split(": "))
      .map(([key, n]) => [key, +n]),
  );
}

/** What scripts/test-together.mjs told of each file that ended, by the file's name. */
const toldOf = (text) =>
  new Map(
    [...text.matchAll(/^# together: (.*)$/gm)]
      .map(([, told]) => JSON.parse(told))
      .map((told) => [told.file, told]),
  );

/** Counts with one failure more: that of a file which failed beside its assertions. */
const plusOne = (counts = {}) => ({
  ...counts,
  total: (counts.total ?? 0) + 1,
  fail: (counts.fail ?? 0) + 1,
});

const total = { total: 0, pass: 0, fail: 0 };
const durations = {};
const failed = [];
/** What is told again at the end. */
let first;

/** What tap tells of a failure that nobody needs to find it. */
const BESIDE = new Set(["at", "compare", "generated", "source", "tapCaught"]);

/**
 * The first assertion that failed: its name below those of the tests that it is in, what was
 * expected and found, and where. Of a check, its last lines.
 */
function firstFailure(text) {
  const lines = text.split("\n");
  const at = lines.findIndex((line) => FAILURE.test(line));
  if (at < 0) return lines.filter(Boolean).slice(-FIRST_LINES);
  const indentOf = (line) => line.length - line.trimStart().length;
  const told = [];
  let indent = indentOf(lines[at]);
  const details = " ".repeat(indent + 2);
  for (const line of lines.slice(0, at).reverse()) {
    if (!/^ *# Subtest: /.test(line) || indentOf(line) >= indent) continue;
    told.unshift(line);
    indent = indentOf(line);
  }
  told.push(lines[at]);
  let isBeside = false;
  for (const line of lines.slice(at + 1)) {
    if (!line.startsWith(details) || line === `${details}...`) break;
    const [, key] = /^(\w+):/.exec(line.slice(details.length)) ?? [];
    if (key !== undefined) isBeside = BESIDE.has(key);
    if (!isBeside && line !== `${details}---`) told.push(line);
  }
  return told.slice(0, FIRST_LINES);
}

/**
 * Adds the counts of a test file, a check or a process of several files to the sum, and prints one
 * line.
 */
function tell(name, { seconds, processor, counts = {} }, faults) {
  const word = faults.length === 0 ? "ok    " : "FAILED";
  console.log(
    `${word} ${name} (${seconds.toFixed(1)} s, ${processor.toFixed(1)} s of processor time)`,
  );
  for (const [key, n] of Object.entries(counts)) total[key] = (total[key] ?? 0) + n;
  if (faults.length > 0) failed.push(`${name}: ${faults.join(", ")}`);
}

/**
 * Runs a check, a test file or several in one process, and tells of each; if it failed, everything
 * that it said. Where a process of several ends before its last file, those after the one that
 * ended it run in another.
 */
async function judge({ name, files: meant = [], ...job }) {
  const { status, left, text, ...took } = await run(job);
  const faults = [];
  if (status !== 0) faults.push(`ended with ${status}`);
  if (left.length > 0) faults.push(`left running: ${left.join("; ")}`);
  const alone = meant.length === 1;
  const told = alone ? new Map([[name, { ...took, counts: countsOf(text) }]]) : toldOf(text);
  const [, ...unrun] = meant.filter((file) => !told.has(file));
  const files = meant.filter((file) => !unrun.includes(file));
  for (const file of files) {
    const found = told.get(file) ?? { seconds: 0, processor: 0 };
    const own = alone ? faults : [];
    if (found.counts === undefined) own.push("has no summary");
    else if (found.counts.fail > 0 && !alone) own.push(`${found.counts.fail} failed`);
    durations[file] = found;
    const counts = found.counts?.fail || own.length === 0 ? found.counts : plusOne(found.counts);
    tell(file, { ...found, counts }, own);
  }
  if (!alone) tell(name, took, faults);
  if (faults.length > 0) {
    console.log(text);
    first ??= [name, ...firstFailure(text)];
  }
  if (unrun.length > 0) await judge(jobOf(unrun));
}

async function runAll(jobs, atOnce) {
  const waiting = [...jobs];
  const lane = async () => {
    for (let job = waiting.shift(); job !== undefined; job = waiting.shift()) await judge(job);
  };
  await Promise.all(Array.from({ length: atOnce }, lane));
}

/**
 * Builds the scripts and the addon where something has changed. Ends the process where that fails.
 */
async function build() {
  const parts = await Promise.all(
    [script("build.mjs"), script("build-addon.mjs")].map((command) => run({ command })),
  );
  for (const { status, text } of parts)
    if (status !== 0) {
      console.error(text);
      process.exit(1);
    }
}

/** One PostgreSQL for the files of the run. */
async function startPostgres() {
  const { startRunPostgres } = await import(path.join(tests, "support/run-postgres.js"));
  return startRunPostgres();
}

/** The shipped model is tried once for the servers of a whole run; of a named file, by each. */
async function tryModel() {
  if (positionals.length > 0) return {};
  const { triedModel } = await import(path.join(tests, "support/tried-model.js"));
  return triedModel();
}

function report(began) {
  const all = Object.entries(durations);
  for (const [of, word] of [
    ["seconds", "slowest"],
    ["processor", "largest in processor time"],
  ]) {
    console.log(`\nThe ${SLOWEST} ${word} of ${all.length} test files:`);
    for (const [file, took] of all.sort(([, a], [, b]) => b[of] - a[of]).slice(0, SLOWEST))
      console.log(`  ${took[of].toFixed(1).padStart(6)} s  ${file}`);
  }
  for (const line of failed) console.log(`FAILED ${line}`);
  if (first !== undefined) console.log(`\nThe first failure: ${first.join("\n")}\n`);
  // Fields 16 and 17: processor time of children that were waited for, in hundredths of seconds
  const fields = readFileSync("/proc/self/stat", "utf8").split(") ").at(-1).split(" ");
  const processor = (Number(fields[13]) + Number(fields[14])) / 100;
  console.log(
    `${processor.toFixed(0)} s of processor time in ${((Date.now() - began) / 1000).toFixed(0)} s`,
  );
  const counts = Object.entries(total).filter(([key, n]) => n > 0 || key === "pass");
  console.log(`# { ${counts.map(([key, n]) => `${key}: ${n}`).join(", ")} }`);
  console.log(`# time=${Date.now() - began}ms`);
}

const began = Date.now();
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"])
  process.on(signal, () => {
    for (const group of running) end(group);
    process.exit(1);
  });
if (!values["no-build"]) await build();
const all = readdirSync(tests, { recursive: true, encoding: "utf8" })
  .filter((name) => name.endsWith(".test.js"))
  .sort();
const wrong = faultsOfTables(all);
if (wrong.length > 0) {
  console.error(wrong.join("\n"));
  process.exit(1);
}
const files = chosenFiles(all);
const remembered = existsSync(table) ? JSON.parse(readFileSync(table, "utf8")) : {};
// The Node.js that serves
const node = nodeBinary();
const tried = await tryModel();
const postgres = await startPostgres();
const secondsOf = (file) => remembered[file] ?? UNKNOWN_SECONDS;
/** The process of these files. */
const jobOf = (files) => ({
  name: files.length === 1 ? files[0] : `${files.length} files together`,
  files,
  seconds: files.reduce((sum, file) => sum + secondsOf(file), 0),
  command: [
    node,
    "--enable-source-maps",
    ...(files.length === 1
      ? [path.join(tests, files[0])]
      : [path.join(root, "scripts/test-together.mjs")]),
  ],
  environment: {
    // Not among the words: tap names folders after these
    FILES: files.join(" "),
    TAP_TIMEOUT: TAP_TIMEOUT_S,
    PATH: `${path.dirname(node)}:${process.env.PATH}`,
    NODE_COMPILE_CACHE: COMPILE_CACHE,
    ...postgres.environment,
    ...tried,
    ...GROUPS[groupOf(files[0])]?.environment,
  },
});
const jobs = inProcesses(files).map(jobOf);
const ordered = [...chosenChecks(), ...jobs].sort((a, b) => b.seconds - a.seconds);
try {
  await runAll(ordered, Number(values.jobs));
} finally {
  await postgres.stop();
}
if (values.remember) {
  const taken = Object.entries(durations).map(([file, { seconds }]) => [file, seconds]);
  const seconds = Object.entries({ ...remembered, ...Object.fromEntries(taken) })
    .filter(([file]) => all.includes(file))
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([file, n]) => [file, Math.ceil(n)]);
  writeFileSync(table, `${JSON.stringify(Object.fromEntries(seconds), null, 2)}\n`);
}
report(began);
process.exitCode = failed.length > 0 || total.fail > 0 ? 1 : 0;
