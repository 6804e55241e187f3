/** What bulk work leaves in the audit, and that items wait while it cannot be written. */
import path from "node:path";
import pg from "pg";
import t from "tap";
import { linesOf, onSmallDisk, textOf, verified } from "../support/audit.js";
import { bulkPlace, hold, startBulk, writeSlice } from "../support/bulk.js";
import { withDurations } from "../support/durations.js";
import { ADDON, needs } from "../support/needs.js";
import type { Place } from "../support/server.js";

const skip = needs(ADDON);
const PLANTED = "Planted";
const ATTRIBUTES = {
  PatientName: "Attr^Name",
  PatientID: "AttrId",
  StudyDescription: "Attr study",
  SeriesDescription: "Attr series",
  ReferringPhysicianName: "Attr^Doctor",
  AccessionNumber: "Attr1",
};

/** The rows of every table of the database as text, by the tables' names. */
async function rows(place: Place): Promise<Map<string, string>> {
  const client = new pg.Client(place.environment["DATABASE_URL"]);
  await client.connect();
  try {
    const { rows: tables } = await client.query<{ name: string }>(
      `select format('%I.%I', schemaname, tablename) as name from pg_tables
       where schemaname not in ('pg_catalog', 'information_schema')`,
    );
    const found = new Map<string, string>();
    for (const { name } of tables) {
      const { rows: all } = await client.query<{ row: string }>(
        `select t::text as row from ${name} t`,
      );
      found.set(name, all.map(({ row }) => row).join("\n"));
    }
    return found;
  } finally {
    await client.end();
  }
}

const place = bulkPlace(t, {
  ...withDurations({ jobPause: 500, auditRetry: 500 }),
  RADSERVE_MINIMUM_FREE_DISK: "0",
});
const disk = onSmallDisk(place);
const bulk = skip === false ? await startBulk(t, place) : undefined!;

t.test("a job, its items and what is done to it", { skip }, async (t) => {
  const input = path.join(place.input, `${PLANTED}Folder`);
  const output = path.join(place.output, `${PLANTED}Results`);
  for (const n of [1, 2, 3]) writeSlice(path.join(input, `${PLANTED}-${n}.dcm`), n, ATTRIBUTES);
  const id = await bulk.submit({
    items: [1, 2, 3, 4].map((n) => {
      if (n === 4) writeSlice(path.join(input, "bad.dcm"), 4, { ...ATTRIBUTES, RescaleSlope: "x" });
      const name = n === 4 ? "bad.dcm" : `${PLANTED}-${n}.dcm`;
      return { input_image_path: path.join(input, name), output_folder_path: output };
    }),
    outputs: ["json"],
  });
  await bulk.ended(id);
  for (const page of ["/pause", "/purge"]) await bulk.send("POST", `/bulk_inference/${id}${page}`);
  const lines = linesOf(place);
  const items = lines.filter(({ kind }) => kind === "item");
  t.strictSame(items.map(({ item }) => item).sort(), [0, 1, 2, 3]);
  t.strictSame(
    items.map(({ outcome }) => outcome).filter((outcome) => outcome === "completed").length,
    3,
  );
  for (const line of items)
    t.match(line, {
      job_id: id,
      subject: "tester",
      input: /^[0-9a-f]{32}$/,
      output: /^[0-9a-f]{32}$/,
    });
  const completed = items.filter(({ outcome }) => outcome === "completed");
  t.strictSame([...new Set(completed.map(({ patient }) => typeof patient))], ["string"]);
  t.equal(new Set(completed.map(({ patient }) => patient)).size, 1);
  t.match(items.find(({ outcome }) => outcome === "completed")!.models, [
    { name: "ct-tissue", status: "succeeded" },
  ]);
  const pages = (endpoint: string) => lines.filter((line) => line.endpoint === endpoint);
  t.match(pages("POST /bulk_inference"), [
    { outcome: "asked", subject: "tester" },
    { outcome: "done", job_id: id, address: "127.0.0.1" },
  ]);
  t.match(pages("POST /bulk_inference/:id/pause"), [
    { outcome: "asked", job_id: id },
    { outcome: "job_state", job_id: id },
  ]);
  t.match(pages("POST /bulk_inference/:id/purge"), [
    { outcome: "asked", job_id: id },
    { outcome: "done", job_id: id },
  ]);

  const again = path.join(place.output, `${PLANTED}Again`);
  const folder = await bulk.submit({
    input_folder_path: input,
    output_folder_path: again,
    outputs: ["json"],
  });
  await bulk.ended(folder);
  t.match(
    linesOf(place).find((line) => line.job_id === folder && line.outcome === "done"),
    {
      input: /^[0-9a-f]{32}$/,
      output: /^[0-9a-f]{32}$/,
    },
  );

  t.notMatch(textOf(place), /Planted|Attr/, "the audit has neither names of files nor of patients");
  t.notMatch(JSON.stringify(bulk.server.log), /Planted|Attr/, "nor has the log");
  const tables = await rows(place);
  for (const [name, text] of tables) {
    t.notMatch(text, /Attr/, `${name} has nothing from the attributes`);
    if (!["radserve.job", "radserve.item"].includes(name))
      t.notMatch(text, /Planted/, `${name} has no paths`);
  }
  t.match(tables.get("radserve.item"), /Planted/, "items have their paths");
  t.match(await verified(place), { ok: true });
});

t.test("items wait while no line can be written", { skip }, async (t) => {
  if (disk === undefined) {
    t.comment("this user may not mount");
    return;
  }
  const input = path.join(place.input, "folder");
  const count = 40;
  for (let n = 0; n < count; n++) writeSlice(path.join(input, `${n}.dcm`), n);
  const output = path.join(place.output, "results");
  // The job is not done before the disk is full
  const names = Array.from({ length: count }, (_, n) => `${n}.dcm`);
  const release = await hold(t, output, names);
  const id = await bulk.submit({
    input_folder_path: input,
    output_folder_path: output,
    outputs: ["json"],
  });
  disk.fill();
  await release();
  // Its page tells nothing while that cannot be written down
  await bulk.server.logged(
    ({ msg, reason }) => msg === "a bulk job waits" && reason === "audit_failed",
  );
  t.match(await bulk.send("GET", `/bulk_inference/${id}`), {
    status: 507,
    body: { error: "audit_failed" },
  });
  t.match(
    await bulk.send("POST", `/bulk_inference/${id}/pause`),
    { status: 507 },
    "and nothing is steered",
  );
  disk.free();
  const job = await bulk.ended(id);
  t.match(job, { state: "completed", counts: { succeeded: count, failed: 0 } });
  const told = new Set(
    linesOf(place)
      .filter(
        ({ kind, outcome, job_id }) =>
          kind === "item" && job_id === id && (outcome === "completed" || outcome === "reused"),
      )
      .map(({ item }) => item),
  );
  t.equal(told.size, count, "each has its line");
  t.strictSame((await verified(place)).faults, []);
});
