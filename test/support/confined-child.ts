/**
 * Confines itself, then tries what its argument says; prints the error's code, or that it could.
 */
import { spawnSync } from "node:child_process";
import fs from "node:fs";
import net from "node:net";
import process from "node:process";
import { confine, leave } from "../../src/addon/confine.js";

const attempts: Record<string, () => unknown> = {
  open: () => fs.openSync("/etc/passwd", "r"),
  create: () => fs.openSync("/tmp/radserve-confined", "w"),
  list: () => fs.readdirSync("/"),
  stat: () => fs.statSync("/etc/passwd"),
  unlink: () => fs.unlinkSync("/tmp/radserve-confined"),
  execute: () => spawnSync("/bin/true").error,
  kill: () => process.kill(1, 0),
  killOwn: () => process.kill(process.pid, 0),
  memory: () => Buffer.alloc(2 ** 29, 1),
  think: () => Buffer.alloc(2 ** 20, 1),
};

function connect(): Promise<unknown> {
  return new Promise((resolve) => net.connect(1, "127.0.0.1").on("error", resolve));
}

function codeOf(thrown: unknown): string {
  if (!(thrown instanceof Error)) return "could";
  return (thrown as NodeJS.ErrnoException).code ?? thrown.name;
}

const [, , what = ""] = process.argv;
confine(2 ** 28);
let found;
try {
  found = codeOf(what === "connect" ? await connect() : attempts[what]?.());
} catch (error) {
  found = codeOf(error);
}
fs.writeSync(1, found);
leave(0);
