/** Jobs and items of bulk work as people read them. */
import {
  ITEM_STATES,
  type Item,
  type Job,
  type JobDetails,
  type Reconciliation,
} from "../jobs/schema.js";
import { count, counted, duration, table } from "../base/table.js";
import { pinsText } from "../jobs/pins.js";

/** Images whose fate is settled. */
export function done({ counts }: Job): number {
  return counts.succeeded + counts.partial + counts.failed + counts.skipped + counts.cancelled;
}

/** Nothing more will happen to it by itself. */
export function hasEnded({ state, counts }: Pick<Job, "state" | "counts">): boolean {
  return state === "completed" || (state === "cancelled" && counts.running === 0);
}

/** "9,990 succeeded, 3 failed": what is not zero. */
export function countsText(job: Job): string {
  return countsOf(job, ITEM_STATES) || (hasEnded(job) ? "no images" : "nothing yet");
}

function countsOf({ counts }: Job, states: readonly Item["state"][]): string {
  const parts = states.filter((state) => counts[state] > 0);
  return parts.map((state) => `${count(counts[state])} ${state}`).join(", ");
}

function timeLeft({ estimated_end, state }: Job, now: number): string {
  if (estimated_end === null || state !== "running") return "";
  return `${duration(Date.parse(estimated_end) - now)} left`;
}

const rate = ({ images_per_second: value }: Job) =>
  value === null ? "" : `${value.toFixed(1)} images/s`;

/** The state of a running job in one line, without the bar. */
export function progressText(job: Job, now = Date.now()): string {
  const total = job.total === null ? "?" : count(job.total);
  const why = job.paused_reason === null ? "" : `: ${job.paused_reason.message}`;
  const state = job.state === "running" ? "" : `${job.state}${job.state === "paused" ? why : ""}`;
  const bad = countsOf(job, ["partial", "failed", "skipped"]);
  return [`${count(done(job))}/${total}`, state, rate(job), timeLeft(job, now), bad]
    .filter((part) => part !== "")
    .join("  ");
}

const BAR = 24;

/** `progressText` with a bar before it, cut to the width of the terminal. */
export function progressBar(job: Job, columns: number, now = Date.now()): string {
  const share = job.total === null || job.total === 0 ? 0 : Math.min(1, done(job) / job.total);
  const filled = Math.floor(share * BAR);
  const percent = `${Math.floor(share * 100)} %`.padStart(5);
  const bar = `[${"#".repeat(filled)}${"-".repeat(BAR - filled)}] ${percent}  `;
  return (bar + progressText(job, now)).slice(0, Math.max(20, columns - 1));
}

export function jobsTable(jobs: readonly Job[], now = Date.now()): string {
  const rows = jobs.map((job) => [
    job.job_id,
    job.state,
    job.created_at.slice(0, 19).replace("T", " "),
    job.total === null ? "?" : count(job.total),
    count(done(job)),
    count(job.counts.failed + job.counts.partial),
    rate(job),
    timeLeft(job, now),
  ]);
  const head = ["JOB", "STATE", "CREATED (UTC)", "IMAGES", "DONE", "FAILED", "RATE", ""];
  return table([head, ...rows], [3, 4, 5, 6]);
}

/**
 * "disk_full since 2026-11-21T12:00:00.000Z on node-1: The disk is full.", with how many images
 * where not all wait.
 */
function waitingText({
  reason,
  message,
  since,
  node,
  images,
}: JobDetails["waiting"][number]): string {
  const head = [
    images === null ? reason : `${counted(images, "image")}: ${reason}`,
    ...(since === null ? [] : [`since ${since}`]),
    ...(node === null ? [] : [`on ${node}`]),
  ];
  return `${head.join(" ")}: ${message}`;
}

function nodeText({
  name,
  release,
  alive,
  works,
  ready,
  running,
  seen_at,
}: JobDetails["nodes"][number]): string {
  const state = !alive
    ? `silent since ${seen_at}`
    : !works
      ? "alive, does not run jobs"
      : ready
        ? "alive"
        : "alive, its models are not ready";
  const version = release === "" ? "" : ` (${release})`;
  return `${name}${version}: ${state}, ${count(running)} running`;
}

/** Everything about one job. */
export function jobText(job: JobDetails, now = Date.now()): string {
  const end = job.finished_at === null ? now : Date.parse(job.finished_at);
  const rows = [
    ["job", job.job_id],
    ["state", job.state],
    ...job.waiting.map((one, i) => [i === 0 ? "waits" : "", waitingText(one)]),
    ["created", job.created_at],
    ...(job.finished_at === null ? [] : [["finished", job.finished_at]]),
    ["time", duration(end - Date.parse(job.created_at))],
    ["images", job.total === null ? "still being counted" : count(job.total)],
    ["", countsText(job)],
    ...job.warnings.map(({ message }) => ["", message]),
    ...(rate(job) === "" ? [] : [["rate", rate(job)]]),
    ...(timeLeft(job, now) === "" ? [] : [["", timeLeft(job, now)]]),
    ...job.progress.map(({ index, windows_done, windows }, i) => [
      i === 0 ? "windows" : "",
      `item ${index}: ${count(windows_done)} of ${count(windows)}`,
    ]),
    ...(job.report === null
      ? []
      : [["report", job.report.html_path ?? job.report.error?.message ?? "none"]]),
    ...(job.pinned === null ? [] : [["with", pinsText(job.pinned)]]),
    ...job.pinned_before.map((pins) => ["before with", pinsText(pins)]),
    ...job.pinned_anew.map(({ before }) => ["sent for", pinsText(before)]),
    ...job.nodes.map((one, i) => [i === 0 ? "nodes" : "", nodeText(one)]),
  ];
  return table(rows);
}

/** One table of differences between a job and its output folders. */
export function differencesTable(differences: Reconciliation["differences"]): string {
  const rows = differences.map(({ difference, index, path, message }) => [
    index === null ? "" : String(index),
    difference,
    path,
    message,
  ]);
  return table([["ITEM", "DIFFERENCE", "FILE", "WHY"], ...rows], [0]);
}

/** Why an image failed or was skipped; empty where there is nothing to say. */
export const whyOf = ({ error, reason }: Item): string => (error ?? reason)?.message ?? "";

export function itemsTable(items: readonly Item[]): string {
  const rows = items.map((item) => [
    String(item.index),
    item.state,
    String(item.attempts),
    item.input_image_path,
    whyOf(item),
  ]);
  return table([["ITEM", "STATE", "RUNS", "IMAGE", "WHY"], ...rows], [0, 2]);
}

/** The last words about a job: what became of its images, and how long it took. */
export function summaryText(job: Job): string {
  const milliseconds =
    job.finished_at === null ? 0 : Date.parse(job.finished_at) - Date.parse(job.created_at);
  const of =
    job.total === null ? "" : `${counted(job.total, "image")} in ${duration(milliseconds)}: `;
  return `${job.state}: ${of}${countsText(job)}`;
}
