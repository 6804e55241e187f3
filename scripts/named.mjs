/**
 * `npm run bench -- NAME [OPTIONS]`, and in the same way `trial`, `pack` and `write`: the programs
 * of a kind, by name. What has changed is built first. Without a name it prints those that there
 * are.
 */
import { spawnSync } from "node:child_process";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { PROGRAMS, script } from "./programs.mjs";

const root = fileURLToPath(new URL("..", import.meta.url));

function run([command, ...words]) {
  const { status, signal } = spawnSync(command, words, { cwd: root, stdio: "inherit" });
  if (signal !== null) process.kill(process.pid, signal);
  return status ?? 1;
}

const [kind, name, ...options] = process.argv.slice(2);
const programs = PROGRAMS[kind] ?? {};
const commands = Object.hasOwn(programs, name ?? "") ? programs[name] : undefined;
if (commands === undefined) {
  const names = Object.keys(programs).sort().join(", ");
  process.stderr.write(
    `Expected npm run ${kind} -- NAME, with one of: ${names}. Found: ${name ?? "no name"}.\n`,
  );
  process.exit(2);
}
for (const [i, command] of [script("build"), ...commands].entries()) {
  const isLast = i === commands.length;
  const status = run(isLast ? [...command, ...options] : command);
  if (status !== 0) process.exit(status);
}
