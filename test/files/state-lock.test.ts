/** One process at a time holds a state directory, for as long as it lives. */
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import path from "node:path";
import t from "tap";
import { ConfigError } from "../../src/base/errors.js";
import { holderHere, lockState } from "../../src/files/state-lock.js";
import { ADDON, needs } from "../support/needs.js";
import { until } from "../support/until.js";

const module = new URL("../../src/files/state-lock.js", import.meta.url).href;

/** Runs a module in a process of its own; resolves with its number once it has printed a line. */
async function started(program: string, shell?: string) {
  const [command, ...words] =
    shell === undefined ? [process.execPath] : ["sh", "-c", shell, process.execPath, program];
  const rest = shell === undefined ? ["--input-type=module", "-e", program] : [];
  const child = spawn(command, [...words, ...rest], { stdio: ["ignore", "pipe", "inherit"] });
  const [line] = (await once(child.stdout, "data")) as [Buffer];
  return { child, pid: Number(line.toString()) };
}

const taking = (directory: string, then: string) => `
  const { lockState } = await import(${JSON.stringify(module)});
  lockState(${JSON.stringify(directory)});
  ${then}
  process.stdout.write(process.pid + "\\n");`;

t.test("the lock of the state directory", { skip: needs(ADDON) }, async (t) => {
  await t.test("is one's alone, and free again when it is released", (t) => {
    const directory = path.join(t.testdir(), "state");
    const lock = lockState(directory);
    t.equal(holderHere(directory), process.pid);
    t.throws(() => lockState(directory), {
      constructor: ConfigError,
      message: new RegExp(`process ${process.pid} on \\S+ holds it`),
    });
    lock.release();
    t.equal(holderHere(directory), undefined);
    lockState(directory).release();
    t.end();
  });

  await t.test("says that somebody holds it, whatever its text is", (t) => {
    const directory = t.testdir();
    const lock = lockState(directory);
    writeFileSync(path.join(directory, "lock"), "no holder");
    t.throws(() => lockState(directory), { message: /; another process holds it/ });
    t.equal(holderHere(directory), undefined);
    lock.release();
    t.end();
  });

  await t.test("is not kept by the text of one that has ended", (t) => {
    const directory = t.testdir({ lock: JSON.stringify({ pid: process.ppid, host: "elsewhere" }) });
    lockState(directory).release();
    t.end();
  });

  await t.test("does not pass to a child that outlives its holder", async (t) => {
    const directory = t.testdir();
    const child = `
      const { spawn } = await import("node:child_process");
      const kept = spawn("sleep", ["1000"], { detached: true, stdio: "ignore" });
      process.on("SIGTERM", () => undefined);
      await new Promise((resolve) => kept.once("spawn", resolve));
      setInterval(() => undefined, 1000);
      process.stdout.write(kept.pid + "\\n");
      await new Promise(() => undefined);`;
    const holder = await started(taking(directory, child));
    t.throws(() => lockState(directory), { message: new RegExp(`process ${holder.child.pid} on`) });
    holder.child.kill("SIGKILL");
    await once(holder.child, "exit");
    t.teardown(() => process.kill(holder.pid));
    t.ok(existsSync(`/proc/${holder.pid}`), "the child lives");
    lockState(directory).release();
    t.pass("and the lock is free at once");
  });

  await t.test("is free when its holder is dead, though not buried", async (t) => {
    const directory = t.testdir();
    // A parent that never takes note of its child's end, as a container's first process that is no
    // init
    const script = `"$0" --input-type=module -e "$1" & exec sleep 1000`;
    const holder = await started(
      `${taking(directory, "")} process.kill(process.pid, "SIGKILL");`,
      script,
    );
    t.teardown(() => holder.child.kill());
    const proc = `/proc/${holder.pid}`;
    const isDead = () =>
      /\) Z /.test(readFileSync(`${proc}/stat`, "utf8")) &&
      readdirSync(`${proc}/task`).length === 1;
    await until("the holder is dead", isDead);
    t.ok(existsSync(proc), "it is still there to be seen");
    lockState(directory).release();
  });
});

t.test("other things under the name of the lock are named", (t) => {
  const kinds: [string, RegExp, (file: string) => void][] = [
    ["pipe", /found a named pipe/, (file) => execFileSync("mkfifo", [file])],
    ["folder", /found a folder/, (file) => mkdirSync(file)],
    ["link", /found a symbolic link/, (file) => symlinkSync("/dev/null", file)],
  ];
  for (const [name, message, put] of kinds) {
    const directory = path.join(t.testdir({ [name]: {} }), name);
    put(path.join(directory, "lock"));
    t.throws(() => lockState(directory), { name: "ConfigError", message });
    t.equal(holderHere(directory), undefined, "and nobody waits for it");
  }
  t.end();
});
