/** A Python environment of the bench's own, with the packages that requirements.txt pins. */
import { execFileSync } from "node:child_process";
import { existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { root } from "../lib/server.js";

const REQUIREMENTS = join(root, "bench/peers/requirements.txt");

/**
 * The path of its interpreter; it is built where there is none yet, or where the requirements have changed.
 * Needs RADSERVE_PYTHON or python3 with venv, and a package index.
 */
export function venv(folder = join(root, "build/peers-venv")): string {
  const python = join(folder, "bin/python");
  const stamp = join(folder, "requirements.txt");
  const wanted = readFileSync(REQUIREMENTS, "utf8");
  if (existsSync(stamp) && readFileSync(stamp, "utf8") === wanted) return python;
  rmSync(folder, { recursive: true, force: true });
  const quiet = { stdio: ["ignore", "ignore", "inherit"] as ["ignore", "ignore", "inherit"] };
  execFileSync(process.env["RADSERVE_PYTHON"] ?? "python3", ["-m", "venv", folder], quiet);
  execFileSync(python, ["-m", "pip", "install", "--quiet", "--requirement", REQUIREMENTS], quiet);
  writeFileSync(stamp, wanted);
  return python;
}
