/** What is told of a job: its state, why it waits, how fast it is and when it will have ended. */
import t from "tap";
import { jobOf } from "../../src/jobs/api.js";
import type { JobRow } from "../../src/jobs/jobs.js";

const NOW = new Date("2026-11-22T12:00:00.000Z");
const ago = (seconds: number) => new Date(NOW.getTime() - seconds * 1000);

const row = (more: Partial<JobRow>): JobRow => ({
  id: "5f0c7a52-9d0b-4d35-8f4e-6a1d3a1c9b11",
  seq: "1",
  subject: "x",
  input_roots: null,
  output_roots: null,
  request: {},
  created_at: ago(200),
  started_at: ago(100),
  finished_at: null,
  over: false,
  traceparent: null,
  cancelled_at: null,
  scan_cut: false,
  total: 1000,
  state: "running",
  worked: true,
  pins: null,
  pinned_before: [],
  pinned_anew: [],
  runnable: true,
  begun: null,
  paused: false,
  pause_code: null,
  pause_message: null,
  paused_at: null,
  pause_box: null,
  report: null,
  counts: { queued: 500, running: 10, succeeded: 450, failed: 20, skipped: 20 },
  recent: 120,
  now: NOW,
  ...more,
});

t.test("rate and end", (t) => {
  t.match(jobOf(row({})), {
    state: "running",
    images_per_second: 2,
    estimated_end: "2026-11-22T12:04:15.000Z",
    counts: { queued: 500, partial: 0, cancelled: 0 },
  });
  t.match(
    jobOf(row({ started_at: ago(10), recent: 30 })),
    { images_per_second: 3 },
    "since it began",
  );
  t.match(jobOf(row({ recent: 0 })), { images_per_second: null, estimated_end: null });
  t.match(jobOf(row({ started_at: null, counts: null, recent: 0 })), {
    images_per_second: null,
    counts: { queued: 0 },
  });
  t.match(jobOf(row({ state: "scanning", total: null })), {
    state: "scanning",
    estimated_end: null,
  });
  t.match(
    jobOf(
      row({
        state: "completed",
        finished_at: ago(53),
        counts: { succeeded: 450, failed: 20, skipped: 20 },
        recent: 0,
      }),
    ),
    { state: "completed", images_per_second: 10, estimated_end: null },
    "over all its time, of what ran",
  );
  t.end();
});

t.test("why it waits", (t) => {
  const waits = (more: Partial<JobRow>) => jobOf(row({ state: "paused", ...more }));
  const paused = { state: "paused", estimated_end: null };
  t.match(waits({ pause_code: "disk_full", pause_message: "No room." }), {
    ...paused,
    paused_reason: { code: "disk_full", message: "No room.", since: null },
  });
  t.match(waits({ pause_code: "disk_full", paused_at: ago(5) }), {
    paused_reason: { since: ago(5).toISOString() },
  });
  t.match(
    waits({ paused: true, pause_code: "repeated_failures" }),
    { paused_reason: { code: "repeated_failures" } },
    "held, and not by request",
  );
  t.match(waits({ paused: true, pause_code: "disk_full" }), {
    ...paused,
    paused_reason: { code: "paused_by_request" },
  });
  const share = { pause_code: "share_unavailable", paused_at: ago(5) };
  t.match(
    waits({ ...share, runnable: false, begun: true }),
    {
      paused_reason: {
        code: "no_node_can_run",
        message: /^Images of the job are done/,
        since: null,
      },
    },
    "the cause of now, and not what it waited for before",
  );
  t.match(waits({ ...share, runnable: false, begun: false }), {
    paused_reason: { code: "no_node_can_run", message: /^No image of the job is done/ },
  });
  t.match(
    waits({ ...share, runnable: false, worked: false }),
    { paused_reason: { code: "share_unavailable" } },
    "a node whose share is away is not ready",
  );
  t.match(waits({ paused: true, pause_code: "repeated_failures", runnable: false }), {
    paused_reason: { code: "repeated_failures" },
  });
  t.match(waits({ worked: false }), { ...paused, paused_reason: { code: "no_worker" } });
  t.match(waits({}), { ...paused, paused_reason: { code: "no_node_can_run" } });
  for (const state of ["running", "cancelled", "completed"] as const)
    t.match(waits({ state, pause_code: "disk_full" }), { state, paused_reason: null });
  const trouble = { code: "database_full", message: "Make room.", since: ago(3) };
  for (const state of ["running", "scanning"] as const)
    t.match(
      jobOf(row({ state }), trouble),
      { ...paused, paused_reason: { code: "database_full", since: ago(3).toISOString() } },
      "what keeps this node from writing, from memory",
    );
  t.match(jobOf(row({ state: "completed" }), trouble), { state: "completed", paused_reason: null });
  t.end();
});
