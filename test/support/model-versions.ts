/** Versions of the model ct-tissue on the nodes of jobs. */
import { readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import type { Test } from "tap";
import type { JobDetails } from "../../src/jobs/schema.js";
import type { Bulk } from "./bulk.js";
import { countedReceipts } from "./receipts.js";
import { radserve, type Place } from "./server.js";

/** Gives the model another version, which a server has once it starts or reloads its models. */
export function setVersion({ environment }: Place, version: string): void {
  const file = path.join(environment["RADSERVE_MODELS_DIR"]!, "ct-tissue", "model.json");
  const manifest = JSON.parse(readFileSync(file, "utf8")) as object;
  writeFileSync(file, JSON.stringify({ ...manifest, version }));
}

/** How many receipts of a job's folder are of each version of its models. */
export const versionsIn = (folder: string): Record<string, number> =>
  countedReceipts(folder, ({ models }) =>
    models.map((model) => `${model.name} ${model.version}`).join(", "),
  );

/**
 * Replaces the version on the node that works on a job, some of whose images are held: these go on
 * once the new version is ready.
 * @param asked shows the job
 * @param release lets the images go
 * @returns the job as it waits, because no node has its version any more
 */
export async function replaceVersionDuring(
  t: Test,
  id: string,
  { asked, worker, release }: { asked: Bulk; worker: Bulk; release: () => Promise<void> },
  version: string,
): Promise<JobDetails> {
  setVersion(worker.place, version);
  const reload = radserve(worker.place, "models", "reload");
  await worker.server.logged((line) => /is ready$/.test(line.msg) && line["version"] === version);
  await release();
  t.match(await reload, { status: 0, stdout: /^replaced\tct-tissue$/m });
  return asked.until(id, ({ state, counts }) => state === "paused" && counts.running === 0);
}
