/** What every scenario takes and gives. */
import type { Job } from "../../../src/jobs/schema.js";
import { countsText } from "../../../src/commands/job-text.js";

export interface Options {
  items: number;
  kills: number;
  seed: number;
  /** Tells people what goes on. */
  say: (text: string) => void;
}

export interface Outcome {
  /** Figures, in one line. */
  summary: string;
  /** What is wrong; nothing where the promise was kept. */
  faults: string[];
}

export interface Scenario {
  description: string;
  /** Why it cannot run here; false where it can. */
  skip?: () => string | false;
  run: (options: Options) => Promise<Outcome>;
}

/** Faults of a job whose every image must have succeeded. */
export function notAllSucceeded(job: Job, count: number): string[] {
  const faults: string[] = [];
  if (job.state !== "completed") faults.push(`the job is ${job.state}`);
  if (job.total !== count) faults.push(`${job.total ?? "no"} items of ${count}`);
  if (job.counts.succeeded !== count) faults.push(`items: ${countsText(job)}`);
  return faults;
}

export const seconds = (since: number): string =>
  `${((performance.now() - since) / 1000).toFixed(0)} s`;
