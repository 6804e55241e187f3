/** `radserve models list`: the models of a folder, from their files alone. */
import { counted, table } from "../../base/table.js";
import type { CommandResult } from "../../models/command-result.js";
import type { Problem } from "../../models/explain.js";
import { modelFolders } from "../../models/load.js";
import { readModelFolder } from "../../models/read.js";

/** One line for each model of a directory, from its files alone; nothing is loaded. */
export async function modelsList(directory: string): Promise<CommandResult> {
  const reports = await Promise.all((await modelFolders(directory)).map(readModelFolder));
  const data = reports.map(({ name, model, problems }) => ({
    name,
    version: model?.manifest.version,
    stage: model?.manifest.stage,
    release: model?.manifest.release,
    required: model?.manifest.required,
    sha256: model?.sha256,
    problems,
  }));
  const rows = data.map((m) => [
    m.name,
    m.version ?? "-",
    m.release ?? "-",
    m.stage ?? "-",
    m.sha256?.slice(0, 12) ?? "-",
    filesText(m.problems),
  ]);
  const text = table([["MODEL", "VERSION", "RELEASE", "STAGE", "SHA256", "FILES"], ...rows]);
  return { text, exitCode: data.some((m) => m.problems.length > 0) ? 1 : 0, data };
}

function filesText(problems: readonly Problem[]): string {
  const [first, ...others] = problems;
  if (first === undefined) return "in order";
  return others.length === 0
    ? `${first.path}: ${first.message}`
    : `${counted(problems.length, "mistake")}: radserve models check`;
}
