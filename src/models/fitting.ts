/**
 * Models that need another one, because they look at a region of it or are given its labels: which
 * versions of the two go together.
 */
import { errors, type ErrorObject, type RadserveError } from "../base/errors.js";
import { firstModelOf } from "../manifest/manifest.js";
import { regionProblem } from "../manifest/region.js";
import { idsOf, type Outcome } from "./load.js";
import type { FolderReport } from "./read.js";

/** Why a model that looks at a region of another cannot be loaded among these. */
export function withoutRegion(
  report: FolderReport,
  reports: readonly FolderReport[],
): RadserveError | undefined {
  if (report.model === undefined) return undefined;
  const { manifest } = report.model;
  const first = reports.find(({ name }) => name === firstModelOf(manifest))?.model?.manifest;
  const message = regionProblem(manifest, first);
  return message === undefined ? undefined : errors.model_unavailable(message);
}

/** A folder at a reload. */
export interface Reloaded {
  name: string;
  before: Outcome | undefined;
  /** What serves from now on: `before` where nothing has changed or what came does not serve. */
  now: Outcome;
  /** Why what came does not serve. */
  error?: ErrorObject;
}

/** Whether it is loaded: one that failed or is off serves nobody. */
export const serves = (outcome: Outcome | undefined): boolean =>
  outcome !== undefined && idsOf(outcome).length > 0;

/**
 * A model that looks at a region of another, or is given its labels, serves only beside a version
 * of the other that it fits: labels of the same name in the same order. Where one of the two was
 * kept because what came failed, what came of the other one is undone too; where that is no way
 * out, the model stops.
 * @param tell is told of each that does not serve as it lies there
 * @returns what was loaded in vain
 */
export function undoMisfits(
  reloaded: readonly Reloaded[],
  tell: (name: string, error: ErrorObject) => void,
): Outcome[] {
  const vain: Outcome[] = [];
  for (;;) {
    const misfit = misfitAmong(reloaded);
    if (misfit === undefined) return vain;
    const { model, first, message } = misfit;
    const undone = [model, first].find(
      (one) => one !== undefined && one.now !== one.before && serves(one.before) && serves(one.now),
    );
    const changed = undone ?? model;
    const { name, before, now } = changed;
    const why =
      changed === model
        ? message
        : `the model ${model.name}, which serves, needs its version of before. ${message}`;
    changed.error = errors.model_unavailable(`Model ${name}: ${why}`).toObject();
    if (now !== before) vain.push(now);
    changed.now =
      undone !== undefined && before !== undefined ? before : stopped(now, changed.error);
    tell(name, changed.error);
  }
}

/** A model that served, as one that does not. */
function stopped({ name, required, entry }: Outcome, error: ErrorObject): Outcome {
  if (entry === undefined) return { name, required, error };
  const { version, sha256, manifest, site, thresholds } = entry;
  const failed = { name, version, sha256, manifest, site, thresholds, error };
  return { name, required, error, entry: { ...failed, state: "failed" } };
}

/** A model that serves, and does not fit what serves of the model that it needs. */
function misfitAmong(reloaded: readonly Reloaded[]) {
  for (const model of reloaded) {
    const { entry } = model.now;
    if (entry?.state !== "ready") continue;
    const needed = firstModelOf(entry.manifest);
    const first = reloaded.find(({ name }) => name === needed);
    const message = regionProblem(entry.manifest, first?.now.entry?.manifest);
    if (message !== undefined) return { model, first, message };
  }
  return undefined;
}
