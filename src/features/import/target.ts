/** The folder that an import writes a model into: what is refused, written and said of it. */
import { existsSync } from "node:fs";
import { copyFile, writeFile } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { errors } from "../../base/errors.js";
import { makeWithParents } from "../../files/folders.js";
import type { Manifest } from "../../manifest/manifest.js";
import { modelNameOf } from "../../models/draft.js";
import type { Problem } from "../../models/explain.js";
import type { Gap, Gaps } from "./gaps.js";

/** @throws RadserveError bad_request for a folder that has a model.json */
export function requireNoModel(target: string): void {
  if (existsSync(join(target, "model.json")))
    throw errors.bad_request(
      `Expected no model.json in ${target}, found one. Move it away first; it is never overwritten.`,
    );
}

/**
 * The model's name, after its folder.
 * @param instead what else can be done where the folder's own name cannot be a model's
 */
export function nameFor(target: string, gaps: Gaps, instead = ""): string {
  const name = modelNameOf(target);
  if (name !== basename(target))
    gaps.note(
      "the folder's name",
      `${basename(target)} cannot be a model's name, so the model is called ${name}: move the folder to ${join(dirname(target), name)} before the next step${instead}`,
    );
  return name;
}

const gapLine = ({ field, message }: Gap): string => `  ${field}: ${message}.`;

/**
 * @param mistakes of the manifest; one that is not whole has mistakes that say nothing
 * @throws RadserveError bad_request, with every gap and mistake, where results would be wrong
 */
export async function requireRight(gaps: Gaps, mistakes: () => Promise<Problem[]>): Promise<void> {
  const wrong = gaps.all.filter((gap) => gap.wrong);
  const problems = wrong.length > 0 ? [] : await mistakes();
  if (wrong.length === 0 && problems.length === 0) return;
  const lines = [
    ...wrong.map(gapLine),
    ...problems.map(({ path, message }) => `  ${path}: ${message}.`),
  ];
  throw errors.bad_request(
    `Nothing was written, because results would be wrong:\n${lines.join("\n")}`,
    { gaps: wrong, problems },
  );
}

/** Copies the files of a graph, by their paths beside it. */
export async function copyFiles(from: string, to: string, files: Manifest["files"]): Promise<void> {
  for (const { path } of files) {
    makeWithParents(dirname(join(to, path)));
    await copyFile(join(from, path), join(to, path));
  }
}

/** @returns its path */
export async function writeManifest(
  target: string,
  manifest: Record<string, unknown>,
): Promise<string> {
  const path = join(target, "model.json");
  makeWithParents(target);
  await writeFile(path, `${JSON.stringify(manifest, null, 2)}\n`, { flag: "wx" });
  return path;
}

/** What the manifest cannot say of the network, for people. */
export const gapLines = ({ all }: Gaps): string[] =>
  all.length === 0 ? [] : ["", "Not expressed:", ...all.map(gapLine)];

/** What comes next, for people. */
export const NEXT_STEPS = [
  "",
  "It is a draft that no server loads (release off). Review accepts, description and intended_use, then:",
];
