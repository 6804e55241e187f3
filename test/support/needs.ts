/**
 * What some tests need beside the clone, and the one place that decides between skipping and
 * failing without it.
 */
import { spawnSync } from "node:child_process";
import { existsSync, statSync } from "node:fs";
import { dirname, resolve } from "node:path";

/**
 * Why a test is skipped. If RADSERVE_REQUIRE_SHARED is set, as in continuous integration, it fails
 * instead.
 */
export function without(missing: string | undefined): string | false {
  if (missing === undefined) return false;
  if (process.env["RADSERVE_REQUIRE_SHARED"] !== undefined)
    throw new Error(`${missing} has to be there`);
  return `${missing} is not there`;
}

/**
 * Why tests that need these files are skipped; false if all are there.
 * @param paths absolute, or relative to the repository
 */
export function needs(...paths: string[]): string | false {
  return without(paths.find((path) => !existsSync(resolve(path))));
}

/**
 * Why tests that run programs of the clone as an ordinary user are skipped: a folder above it keeps
 * that user out, as /root does.
 */
export function reachedByAll(): string | false {
  const isClosed = (folder: string): boolean =>
    (statSync(folder).mode & 0o001) === 0 ||
    (folder !== dirname(folder) && isClosed(dirname(folder)));
  return without(isClosed(resolve(".")) ? "a clone that every user can reach" : undefined);
}

export const ADDON = "build/Release/addon.node";
/** Put there by npm run setup:openvino. */
export const OPENVINO = "build/Release/openvino/libopenvino_c.so.2641";
export const CONFINE = "build/Release/confine.node";
export const DICOM_FILES = "../shared/dicom/MANIFEST.tsv";

/** The interpreter for the outside checks: RADSERVE_PYTHON, or the machine's own. */
export const PYTHON = process.env["RADSERVE_PYTHON"] ?? "python3";

/** Why tests that need these Python modules are skipped; false if all can be imported. */
export function pythonHas(...modules: string[]): string | false {
  const { status } = spawnSync(PYTHON, ["-c", `import ${modules.join(", ")}`], { stdio: "ignore" });
  return without(status === 0 ? undefined : `Python with ${modules.join(", ")}`);
}

/** Why tests that need these programs are skipped; false if all are on the path. */
export function commandsAre(...commands: string[]): string | false {
  return without(
    commands.find((command) => spawnSync("which", [command], { stdio: "ignore" }).status !== 0),
  );
}
