/**
 * The folders of models: their files, their hashes and their graphs. No model is loaded beside
 * those of a server.
 */
import path from "node:path";
import type { Config } from "../../config.js";
import { graphMistakes, modelFolders } from "../../models/load.js";
import { readModelFolder, type FolderReport } from "../../models/read.js";
import type { GraphLook } from "../../models/graph.js";
import { READ } from "../../server/conditions.js";
import { withEngine } from "../engine.js";
import { bad, good, whyUnusable, wordsOf, type Diagnosis } from "./finding.js";

/**
 * @param engineWorks false where the addon cannot be loaded; graphs then stay unread, and the
 * finding of the addon says why
 */
export async function models(config: Config, engineWorks: boolean): Promise<Diagnosis[]> {
  const { models_dir } = config;
  const why = await whyUnusable(models_dir, READ);
  if (why !== undefined)
    return [
      bad(
        "models",
        `${models_dir}: ${why}`,
        "Set RADSERVE_MODELS_DIR to a folder of model folders, or mount it.",
      ),
    ];
  const folders = await modelFolders(models_dir);
  if (folders.length === 0)
    return [
      bad(
        "models",
        `${models_dir} has no model folder`,
        "Put a model there, or set RADSERVE_MODELS_DIR.",
      ),
    ];
  const names = folders.map((folder) => path.basename(folder)).join(", ");
  const found = good("models", `${path.resolve(models_dir)}: ${names}`);
  if (!engineWorks) return [found];
  return withEngine({ ...config, providers: ["cpu"] }, async ({ trials }) => {
    const findings = await Promise.all(folders.map((folder) => model(folder, trials, config)));
    return [found, ...findings.flat()];
  });
}

async function model(folder: string, look: GraphLook, config: Config): Promise<Diagnosis[]> {
  const report = await readModelFolder(folder);
  const { name, model: sound, problems } = report;
  const [first] = problems;
  if (first !== undefined || sound === undefined)
    return [
      unsound(
        report,
        first?.path ?? "model.json",
        first?.message ?? "cannot be used",
        problems.length - 1,
      ),
    ];
  const { release, execution, version } = { ...sound.manifest };
  if (release === "off") return [good("model", `${name} ${version}: off`)];
  const can = config.providers;
  if (!execution.providers.some((one) => can.includes(one)))
    return [
      bad(
        "model",
        `${name}: it runs on ${execution.providers.join(", ")} only, and this server has ${can.join(", ")}`,
        `Set RADSERVE_PROVIDERS, or release to "off" in ${path.join(folder, "model.json")}.`,
      ),
    ];
  try {
    const [mistake, ...others] = await graphMistakes(folder, sound.manifest, look);
    if (mistake !== undefined)
      return [unsound(report, mistake.path, mistake.message, others.length)];
  } catch (error) {
    return [unsound(report, sound.manifest.files[0]?.path ?? "", wordsOf(error), 0)];
  }
  return [good("model", `${name} ${version}: files and graph are in order`)];
}

function unsound(
  { name, directory, required }: FolderReport,
  where: string,
  what: string,
  more: number,
): Diagnosis {
  const needed = required ? ", and the server is not ready without this model" : "";
  return bad(
    "model",
    `${name}: ${where}: ${what.replace(/\.$/, "")}${more > 0 ? ` (and ${more} more)` : ""}`,
    `radserve models check ${directory} explains every mistake${needed}.`,
  );
}
