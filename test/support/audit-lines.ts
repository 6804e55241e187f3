/** Lines of every kind that the audit has, as a server writes them. */
import type { AuditFacts } from "../../src/audit/entry.js";

const who = { subject: "pacs", jti: "0a1b2c3d4e5f", address: "::ffff:10.1.2.3" };
const model = { name: "ct-tissue", version: "1.0.0", sha256: "5".repeat(64), status: "succeeded" };
const image = {
  study: "2".repeat(32),
  input: "3".repeat(32),
  output: "4".repeat(32),
  models: [model],
  ms: 12,
};
const patient = "1".repeat(32);
const JOB = "70e4314d-7630-4332-af7d-60490550f5fe";
const single = {
  kind: "inference",
  endpoint: "POST /single_inference",
  request_id: "r-1",
  ...who,
} as const;
const item = { kind: "item", subject: "pacs", job_id: JOB, item: 7 } as const;
const page = (endpoint: string, more: object = {}): AuditFacts => ({
  kind: "page",
  endpoint,
  request_id: "r-2",
  outcome: "done",
  ms: 3,
  ...who,
  ...more,
});

const delivery = {
  kind: "delivery",
  subject: "pacs",
  request_id: "r-3",
  destination: "archive",
  study: image.study,
  count: 2,
} as const;

const reconcile = (more: object) => ({
  ...page("POST /bulk_inference/:id/reconcile", { job_id: JOB, ...more }),
  kind: "reconcile" as const,
});

/**
 * What a line says, and the profile of BALP that its event follows; undefined: no profile, null: no
 * event.
 */
export const SAMPLES: readonly { facts: AuditFacts; profile: string | undefined | null }[] = [
  { facts: { kind: "start", version: "0.2.0", after_crash: false }, profile: undefined },
  { facts: { kind: "models", models: [{ ...model, status: "ready" }] }, profile: undefined },
  { facts: { ...single, ...image, patient, outcome: "completed" }, profile: "PatientCreate" },
  { facts: { ...single, ...image, patient, outcome: "partial" }, profile: "PatientCreate" },
  { facts: { ...single, ...image, patient, outcome: "reused" }, profile: "PatientCreate" },
  { facts: { ...single, ...image, outcome: "completed" }, profile: "Create" },
  { facts: { ...single, patient, outcome: "disk_full" }, profile: undefined },
  { facts: { ...single, outcome: "input_not_found" }, profile: undefined },
  { facts: { ...item, ...image, patient, outcome: "completed" }, profile: "PatientCreate" },
  { facts: { ...item, outcome: "truncated_image" }, profile: undefined },
  {
    facts: { ...item, outcome: "share_unavailable", reason: "not_mounted" },
    profile: undefined,
  },
  { facts: page("POST /bulk_inference", { outcome: "asked" }), profile: null },
  { facts: page("POST /bulk_inference", { job_id: JOB, output: image.output }), profile: "Create" },
  { facts: page("GET /bulk_inference", { query: "state=failed&limit=5" }), profile: "Query" },
  { facts: page("GET /bulk_inference"), profile: "Query" },
  { facts: page("GET /bulk_inference/:id", { job_id: JOB }), profile: "Read" },
  { facts: page("GET /bulk_inference/:id/items", { job_id: JOB }), profile: "Read" },
  {
    facts: page("GET /bulk_inference/:id", { job_id: JOB, outcome: "job_not_found" }),
    profile: undefined,
  },
  { facts: page("GET /models", { signed_in: "proxy" }), profile: "Read" },
  {
    facts: page("PUT /files", { output: image.output, bytes: 77, sha256: "7".repeat(64) }),
    profile: "Create",
  },
  ...[
    "POST /bulk_inference/:id/pause",
    "POST /bulk_inference/:id/resume",
    "POST /bulk_inference/:id/retry",
  ].map((endpoint) => ({ facts: page(endpoint, { job_id: JOB }), profile: "Update" })),
  { facts: page("DELETE /bulk_inference/:id", { job_id: JOB }), profile: "Update" },
  {
    facts: {
      kind: "pinned",
      subject: "pacs",
      job_id: JOB,
      version: "0.2.1",
      models: [model],
      outcome: "done",
      ms: 0,
    },
    profile: "Update",
  },
  { facts: reconcile({ query: "limit=100", checked: 100, differences: 0 }), profile: "Read" },
  {
    facts: reconcile({ query: "retry=true", checked: 9, differences: 2, requeued: 1 }),
    profile: "Update",
  },
  { facts: reconcile({ outcome: "job_state" }), profile: undefined },
  { facts: page("POST /bulk_inference/:id/purge", { job_id: JOB }), profile: "Delete" },
  {
    facts: {
      kind: "received",
      subject: "ct1",
      address: "10.1.2.9",
      outcome: "done",
      ms: 90,
      study: image.study,
      count: 80,
      bytes: 42_000_000,
    },
    profile: "Create",
  },
  {
    facts: {
      kind: "submitted",
      subject: "ct1",
      job_id: JOB,
      count: 80,
      outcome: "done",
      study: image.study,
    },
    profile: "Create",
  },
  {
    facts: { kind: "removed", subject: "ct1", count: 80, outcome: "done", study: image.study },
    profile: "Delete",
  },
  ...["proven", "refused"].map((outcome) => ({
    facts: { ...delivery, patient, outcome },
    profile: undefined,
  })),
  {
    facts: { ...delivery, destination: "webhook ris", patient, outcome: "told" },
    profile: undefined,
  },
  { facts: { ...delivery, outcome: "asked" }, profile: null },
  { facts: { kind: "refused", reason: "revoked", ...who }, profile: undefined },
  {
    facts: { kind: "refused", reason: "malformed", count: 900, since: "2026-01-01T00:00:00.000Z" },
    profile: undefined,
  },
  {
    facts: {
      kind: "command",
      command: "token issue",
      token: { jti: "0a", subject: "pacs", admin: true },
      kid: "k",
    },
    profile: undefined,
  },
  { facts: { kind: "torn", bytes: 3, sha256: "6".repeat(64) }, profile: undefined },
  { facts: { kind: "trouble", since: "2026-01-01T00:00:00.000Z", count: 2 }, profile: undefined },
  { facts: { kind: "trouble", reason: "head_gone" }, profile: undefined },
  { facts: { kind: "stop" }, profile: undefined },
];
