/**
 * A model is replaced on every node that runs jobs: a job of which nothing was done goes on with
 * the new version by itself, and one of which something was done waits, so that nothing is mixed.
 */
import path from "node:path";
import t from "tap";
import { bulkOf, bulkPlace, hold, placeBeside, startBulk, writeSlices } from "../support/bulk.js";
import { linesOf } from "../support/audit.js";
import { withDurations } from "../support/durations.js";
import { replaceVersionDuring, versionsIn } from "../support/model-versions.js";
import { ADDON, needs } from "../support/needs.js";
import { sharedDatabase } from "../support/postgres.js";
import { startServer } from "../support/server.js";

const IMAGES = 24;
const DONE = 3;
const SHORT = { jobPause: 300, nodeBeat: 300, bulkFigures: 200, itemsAhead: 0, jobPinAnew: 1_000 };

t.test("a version is replaced before a job has begun", { skip: needs(ADDON) }, async (t) => {
  const { url } = await sharedDatabase(t);
  const place = bulkPlace(t, {
    ...withDurations(SHORT),
    DATABASE_URL: url,
    RADSERVE_ROLE: "api",
    RADSERVE_NODE_NAME: "asked",
  });
  const api = await startBulk(t, place);
  const second = placeBeside(t, place, {
    ...withDurations(SHORT),
    RADSERVE_ROLE: "worker",
    RADSERVE_NODE_NAME: "works",
  });
  const worker = bulkOf(await startServer(second));
  const input = path.join(place.input, "many");
  const names = writeSlices(input, IMAGES);
  const out = (name: string) => path.join(place.output, name);
  const submit = (name: string, more: object) =>
    api.submit({
      input_folder_path: input,
      output_folder_path: out(name),
      outputs: ["json"],
      ...more,
    });
  const release = await hold(t, out("begun"), names.slice(DONE));
  const begun = await submit("begun", { models: ["ct-tissue"] });
  await api.until(begun, ({ counts }) => counts.succeeded === DONE && counts.running > 0);
  const waits = await replaceVersionDuring(t, begun, { asked: api, worker, release }, "1.2.0");

  // The node that takes them has the old version still
  const fresh = await Promise.all([
    submit("named", { models: ["ct-tissue"] }),
    submit("all", {}),
    api.submit({
      items: names.map((name) => ({
        input_image_path: path.join(input, name),
        output_folder_path: out("listed"),
      })),
      outputs: ["json"],
    }),
  ]);
  for (const [i, name] of ["named", "all", "listed"].entries()) {
    const id = fresh[i]!;
    t.match(await api.ended(id), {
      state: "completed",
      counts: { succeeded: IMAGES, failed: 0 },
      pinned: { models: { "ct-tissue": { version: "1.2.0" } } },
      pinned_before: { length: 0 },
      pinned_anew: [{ node: "works", before: { models: { "ct-tissue": { version: "1.0.0" } } } }],
      warnings: [{ code: "pinned_anew", message: /node works/ }],
    });
    t.strictSame(versionsIn(out(name)), { "ct-tissue 1.2.0": IMAGES });
    t.match(
      await worker.server.told(({ job, msg }) => job === id && /goes on with/.test(msg)),
      [{ with: /ct-tissue 1\.2\.0/, before: /ct-tissue 1\.0\.0/ }],
      "the log says so once",
    );
    t.match(
      linesOf(second).filter(({ kind, job_id }) => kind === "pinned" && job_id === id),
      [{ outcome: "done", models: [{ name: "ct-tissue", version: "1.2.0" }] }],
      "and the audit",
    );
  }
  t.match(await api.job(begun), {
    state: "paused",
    paused_reason: { code: "no_node_can_run", message: /^Images of the job are done/ },
    pinned: { models: { "ct-tissue": { version: "1.0.0" } } },
    pinned_anew: { length: 0 },
    counts: { succeeded: waits.counts.succeeded },
  });
  t.strictSame(versionsIn(out("begun")), { "ct-tissue 1.0.0": waits.counts.succeeded });
  t.match(await api.send("DELETE", `/bulk_inference/${begun}`), { status: 200 });
  await worker.server.stop();
});
