/**
 * What the token of whoever sends images, or says that they are complete, has to reach: jobs by
 * rules read the spool, write where the rule says, and send results on, as jobs by request do.
 */
import path from "node:path";
import { isInside, realPathToBe, type Root } from "../../../files/roots.js";
import { requireMaySend } from "../../../inference/request.js";
import { makesJobs, takesAll, type Rule } from "../rule-settings.js";
import type { ReceivingSettings } from "../settings.js";
import { seriesPath } from "./spool.js";

/** Real paths, and destinations; all where these are undefined. */
export interface Reach {
  input: readonly Root[];
  output: readonly Root[];
  destinations: readonly string[] | undefined;
}

interface ReachedSeries {
  peer: string;
  study: string;
  series: string;
}

async function writes({ output }: Reach, folder: string): Promise<boolean> {
  const real = await realPathToBe(folder);
  return real !== undefined && isInside(real, output);
}

const destinationsOf = ({ deliver }: Rule, settings: ReceivingSettings): readonly string[] =>
  deliver ?? settings.deliver;

/**
 * Whether a token reaches a series and what becomes of it.
 * @throws RadserveError path_not_allowed where its results go to a destination that the token may
 * not send to
 */
export async function reaches(
  reach: Reach,
  settings: ReceivingSettings,
  { peer, study, series }: ReachedSeries,
  rule: Rule | undefined,
): Promise<boolean> {
  const inputs = [
    seriesPath(peer, study, series),
    ...(rule?.group === "study" ? [["studies", rule.name, peer, study]] : []),
  ];
  const reads = inputs.every((names) => isInside(path.join(settings.spool, ...names), reach.input));
  if (!reads || rule === undefined || !makesJobs(rule)) return reads;
  if (!(await writes(reach, path.join(rule.output_folder, peer, study)))) return false;
  requireMaySend(destinationsOf(rule, settings), reach.destinations);
  return true;
}

/**
 * A rule that may take what a peer sends, and that the token does not reach; undefined where there
 * is none. Which rule it will be is not known before the objects are there.
 * @throws RadserveError path_not_allowed for a destination
 */
export async function ruleBeyond(
  reach: Reach,
  settings: ReceivingSettings,
  peer: string,
): Promise<string | undefined> {
  for (const rule of settings.rules) {
    if (rule.from?.includes(peer) === false || !makesJobs(rule)) continue;
    if (!(await writes(reach, path.join(rule.output_folder, peer)))) return rule.name;
    requireMaySend(destinationsOf(rule, settings), reach.destinations);
    // No rule behind it has anything to take
    if (takesAll(rule)) return undefined;
  }
  return undefined;
}
