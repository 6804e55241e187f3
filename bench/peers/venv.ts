/**
 * Python environments of the bench's own, with the packages that the files requirements*.txt pin.
 */
import { execFileSync } from "node:child_process";
import { existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { root } from "../lib/server.js";

const FOLDER = join(root, "bench/peers");

/** By the name of an environment: its folder in build/, and the file of its requirements. */
const ENVIRONMENTS = {
  script: { folder: "peers-venv", file: "requirements.txt" },
  loadgen: { folder: "loadgen-venv", file: "requirements-loadgen.txt" },
} as const;

/**
 * The path of its interpreter; it is built where there is none yet, or where the requirements have
 * changed. Needs RADSERVE_PYTHON or python3 with venv, and a package index.
 */
export function venv(name: keyof typeof ENVIRONMENTS): string {
  const environment = ENVIRONMENTS[name];
  const folder = join(root, "build", environment.folder);
  const python = join(folder, "bin/python");
  const stamp = join(folder, "requirements.txt");
  const requirements = join(FOLDER, environment.file);
  const wanted = readFileSync(requirements, "utf8");
  if (existsSync(stamp) && readFileSync(stamp, "utf8") === wanted) return python;
  rmSync(folder, { recursive: true, force: true });
  const quiet = { stdio: ["ignore", "ignore", "inherit"] as ["ignore", "ignore", "inherit"] };
  execFileSync(process.env["RADSERVE_PYTHON"] ?? "python3", ["-m", "venv", folder], quiet);
  execFileSync(python, ["-m", "pip", "install", "--quiet", "--requirement", requirements], quiet);
  writeFileSync(stamp, wanted);
  return python;
}
