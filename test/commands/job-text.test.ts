import t from "tap";
import type { Item, JobDetails } from "../../src/jobs/schema.js";
import {
  countsText,
  hasEnded,
  itemsTable,
  jobsTable,
  jobText,
  progressBar,
  progressText,
  summaryText,
} from "../../src/commands/job-text.js";
import { duration, table } from "../../src/base/table.js";

const NOW = Date.parse("2026-11-21T12:00:00Z");
const none = {
  queued: 0,
  running: 0,
  succeeded: 0,
  partial: 0,
  failed: 0,
  skipped: 0,
  cancelled: 0,
};

const job = (changes: Partial<JobDetails> = {}): JobDetails => ({
  job_id: "0b6d8f2e-6a0a-4f0e-9a8e-1b2c3d4e5f60",
  state: "running",
  paused_reason: null,
  created_at: "2026-11-21T11:58:00.000Z",
  finished_at: null,
  total: 10_000,
  counts: { ...none, queued: 4_990, running: 8, succeeded: 5_000, failed: 2 },
  warnings: [],
  images_per_second: 41.66,
  estimated_end: "2026-11-21T12:02:05.000Z",
  request: {},
  status_url: "/bulk_inference/0b6d8f2e-6a0a-4f0e-9a8e-1b2c3d4e5f60",
  waiting: [],
  nodes: [],
  progress: [],
  failures: [],
  report: null,
  pinned: null,
  pinned_before: [],
  pinned_anew: [],
  ...changes,
});

t.test("windows of the items that run", (t) => {
  const progress = [
    { index: 3, windows_done: 1_400, windows: 3_136 },
    { index: 9, windows_done: 0, windows: 12 },
  ];
  const text = jobText(job({ progress }), NOW);
  t.match(text, /windows +item 3: 1,400 of 3,136\n +item 9: 0 of 12/);
  t.notMatch(jobText(job(), NOW), "windows");
  t.end();
});

t.test("progress in one line", (t) => {
  t.equal(progressText(job(), NOW), "5,002/10,000  41.7 images/s  2 min 5 s left  2 failed");
  t.match(progressBar(job(), 120, NOW), /^\[#{12}-{12}\] {2}50 % {2}5,002\/10,000 /);
  t.equal(progressBar(job(), 40, NOW).length, 39, "never wider than the terminal");
  const scanning = job({
    state: "scanning",
    total: null,
    counts: none,
    images_per_second: null,
    estimated_end: null,
  });
  t.equal(progressText(scanning, NOW), "0/?  scanning");
  const paused = job({
    state: "paused",
    paused_reason: { code: "disk_full", message: "The disk is full.", since: null },
    counts: { ...none, queued: 9_999, succeeded: 1 },
  });
  t.equal(
    progressText(paused, NOW),
    "1/10,000  paused: The disk is full.  41.7 images/s",
    "and no time left",
  );
  t.end();
});

t.test("when a job has ended", (t) => {
  t.notOk(hasEnded(job()));
  t.ok(hasEnded(job({ state: "completed" })));
  t.notOk(
    hasEnded(job({ state: "cancelled", counts: { ...none, running: 1 } })),
    "what runs still ends",
  );
  t.ok(hasEnded(job({ state: "cancelled", counts: none })));
  t.end();
});

t.test("summary", (t) => {
  const ended = job({
    state: "completed",
    finished_at: "2026-11-21T13:01:30.000Z",
    total: 3,
    counts: { ...none, succeeded: 2, skipped: 1 },
  });
  t.equal(summaryText(ended), "completed: 3 images in 1 h 3 min: 2 succeeded, 1 skipped");
  t.equal(countsText(job({ counts: none })), "nothing yet");
  t.equal(countsText(job({ state: "completed", counts: none })), "no images");
  t.match(jobText(ended, NOW), /^images {4}3$/m);
  t.end();
});

t.test("tables", (t) => {
  t.equal(
    table(
      [
        ["A", "NUMBER", ""],
        ["longer", "7", "x"],
      ],
      [1],
    ),
    "A       NUMBER\nlonger       7  x",
  );
  t.match(jobsTable([job()], NOW), /5,002 {7}2 {2}41\.7 images\/s {2}2 min 5 s left$/);
  const item: Item = {
    index: 3,
    input_image_path: "/in/a.dcm",
    output_folder_path: "/out",
    state: "failed",
    attempts: 2,
    outputs: [],
    models: [],
    warnings: [],
    error: { error: "corrupt_image", message: "It is broken." },
  };
  t.match(itemsTable([item]), /^ +3 {2}failed +2 {2}\/in\/a\.dcm {2}It is broken\.$/m);
  const forged = itemsTable([{ ...item, input_image_path: "/in/a\n 4  succeeded  1  /in/b.dcm" }]);
  t.equal(forged.split("\n").length, 2, "a name is no row of its own");
  t.end();
});

t.test("durations", (t) => {
  const cases: [number, string][] = [
    [-5_000, "0 s"],
    [400, "0 s"],
    [59_600, "1 min"],
    [125_000, "2 min 5 s"],
    [3_600_000, "1 h"],
    [3_605_000, "1 h"],
    [90_000_000, "1 d 1 h"],
  ];
  for (const [milliseconds, text] of cases) t.equal(duration(milliseconds), text);
  t.end();
});
