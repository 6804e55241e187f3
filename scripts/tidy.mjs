/**
 * `npm run lint:native`: clang-tidy over the native code, with the checks of .clang-tidy. It reads
 * what the last build of the addon compiled, together by the folder, so that headers are parsed
 * once a folder: some minutes of two cores. Ends with 1 where there is a finding, with 2 where
 * clang-tidy or the build is not there.
 */
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import path from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("..", import.meta.url));
const commands = path.join(root, "build/compile_commands.json");
/** Tests, the engine's rival of the benches, and the header that is compiled before all others. */
const LEFT_OUT = /\/(test_[^/]*\.dir|raw_ort\.dir)\/|cmake_pch/;
/** GCC's own options, which Clang does not know. */
const OPTIONS = ["-Wno-unknown-warning-option", "-Wno-ignored-optimization-argument"];

const fail = (message) => {
  console.error(`radserve: ${message}`);
  process.exit(2);
};

const program = ["clang-tidy-19", "clang-tidy"].find(
  (name) => spawnSync(name, ["--version"]).status === 0,
);
if (program === undefined)
  fail(
    "clang-tidy is not there. Debian: apt install clang-tidy-19; others: clang-tidy 19 or newer.",
  );
if (!existsSync(commands)) fail("The addon is not built. Run: npm run install");

const waiting = JSON.parse(readFileSync(commands, "utf8"))
  .map(({ file }) => file)
  .filter((file) => !LEFT_OUT.test(file));
const whole = waiting.length;
const findings = new Set();

/** Findings of one unit; those in headers come once for each unit that includes them. */
async function look(file) {
  const words = ["-p", path.dirname(commands), "--quiet"];
  for (const option of OPTIONS) words.push(`--extra-arg=${option}`);
  const child = spawn(program, [...words, file], { stdio: ["ignore", "pipe", "ignore"] });
  let said = "";
  child.stdout.on("data", (data) => (said += data));
  const [status] = await once(child, "close");
  const found = said.split(/\n(?=\/)/).filter((text) => / (error|warning): /.test(text));
  for (const text of found) findings.add(text.replaceAll(root, "").trimEnd());
  if (status !== 0 && found.length === 0) fail(`${program} ${file} ended with ${status}.\n${said}`);
}

async function take() {
  for (let file = waiting.pop(); file !== undefined; file = waiting.pop()) await look(file);
}

await Promise.all(Array.from({ length: Number(process.env.RADSERVE_BUILD_JOBS ?? 2) }, take));
for (const text of findings) console.log(`${text}\n`);
console.log(`${findings.size} findings in ${whole} units`);
process.exitCode = findings.size === 0 ? 0 : 1;
