/**
 * Two nodes with different models: the images of a job run with the models that it was submitted
 * with, and with no others.
 */
import path from "node:path";
import t, { type Test } from "tap";
import type { Condition } from "../../src/server/condition.js";
import {
  bulkOf,
  bulkPlace,
  hold,
  placeBeside,
  startBulk,
  writeSlices,
  type Bulk,
} from "../support/bulk.js";
import { withDurations } from "../support/durations.js";
import { copyModel } from "../support/manifests.js";
import { replaceVersionDuring, setVersion, versionsIn } from "../support/model-versions.js";
import { ADDON, needs } from "../support/needs.js";
import { sharedDatabase } from "../support/postgres.js";
import { radserve, startServer } from "../support/server.js";
import { until } from "../support/until.js";

/** More than both nodes take at once. */
const IMAGES = 40;
const SHORT = {
  jobPause: 300,
  nodeBeat: 300,
  bulkFigures: 200,
  conditionsLook: 200,
  itemsAhead: 0,
  // A node that stands still for a moment is told as one that lives
  nodeSilent: 11_000,
};

async function conditionsOf({ server }: Bulk): Promise<Condition[]> {
  const answer = await fetch(`${server.url}/overview`, {
    headers: { Authorization: server.token },
  });
  return ((await answer.json()) as { conditions: Condition[] }).conditions;
}

t.test("nodes with different models", { skip: needs(ADDON) }, async (t) => {
  const { url } = await sharedDatabase(t);
  const first = bulkPlace(t, {
    ...withDurations(SHORT),
    DATABASE_URL: url,
    RADSERVE_NODE_NAME: "node-a",
  });
  const a = await startBulk(t, first);
  const second = placeBeside(t, first, {
    ...withDurations(SHORT),
    RADSERVE_NODE_NAME: "node-b",
    RADSERVE_SEGMENTATION_TYPE: "labelmap",
  });
  setVersion(second, "1.1.0");
  copyModel(second.environment["RADSERVE_MODELS_DIR"]!, "ct-tissue", "ct-new");
  const b = bulkOf(await startServer(second));
  const input = path.join(first.input, "many");
  const names = writeSlices(input, IMAGES);
  const submit = (to: Bulk, name: string, more: object = {}) =>
    to.submit({
      input_folder_path: input,
      output_folder_path: path.join(first.output, name),
      outputs: ["json"],
      ...more,
    });

  await t.test("a job has the version of the node that took it", async (t) => {
    const models = { models: ["ct-tissue"] };
    // Of a job that has ended nothing is told that waits
    const release = await hold(t, path.join(first.output, "a"), names);
    const ofA = await submit(a, "a", models);
    const ofB = await submit(b, "b", models);
    const seen = await a.until(ofA, ({ waiting }) =>
      waiting.some(({ reason }) => reason === "other_versions"),
    );
    t.match(seen, {
      paused_reason: null,
      pinned: { every: false, models: { "ct-tissue": { version: "1.0.0" } } },
      waiting: [
        {
          reason: "other_versions",
          node: "node-b",
          message: /the model ct-tissue 1\.0\.0 \(\w{8}\): it has 1\.1\.0 \(\w{8}\)\.$/,
        },
      ],
    });
    await release();
    for (const [id, version] of [
      [ofA, "1.0.0"],
      [ofB, "1.1.0"],
    ] as const) {
      const job = await a.ended(id);
      t.match(job, {
        state: "completed",
        counts: { succeeded: IMAGES, failed: 0 },
        warnings: { length: 0 },
      });
      const folder = job.request.output_folder_path ?? "";
      t.strictSame(versionsIn(folder), { [`ct-tissue ${version}`]: IMAGES });
    }
  });

  await t.test("a model that one node has is run there", async (t) => {
    const id = await submit(b, "new", { models: ["ct-new"] });
    t.match(await a.ended(id), { state: "completed", counts: { succeeded: IMAGES, failed: 0 } });
    t.strictSame(versionsIn(path.join(first.output, "new")), { "ct-new 1.0.0": IMAGES });
  });

  await t.test("a job for all models is run where there are no others", async (t) => {
    const id = await submit(a, "all");
    t.match(await a.ended(id), { state: "completed", counts: { succeeded: IMAGES, failed: 0 } });
    t.strictSame(versionsIn(path.join(first.output, "all")), { "ct-tissue 1.0.0": IMAGES });
  });

  await t.test("every node says in what they differ", async (t) => {
    for (const bulk of [a, b]) {
      const found = await until("the conditions are there", async () => {
        const all = (await conditionsOf(bulk)).filter(
          ({ condition }) => condition === "nodes_differ",
        );
        return all.length === 3 && all;
      });
      t.match(found, [
        { where: "model ct-new", message: /node-a: none; node-b: 1\.0\.0/ },
        { where: "model ct-tissue", message: /node-a: 1\.0\.0 .*; node-b: 1\.1\.0/ },
        {
          where: "setting RADSERVE_SEGMENTATION_TYPE",
          message: /node-a: binary; node-b: labelmap/,
        },
      ]);
    }
    first.environment["RADSERVE_URL"] = a.server.url;
    first.environment["RADSERVE_TOKEN"] = a.server.token;
    const { status, stdout } = await radserve(first, "status", "--fleet");
    t.equal(status, 1);
    t.match(stdout, /^NODE +ADDRESS +RELEASE +STATE +CLOCK +KEYS\n/);
    t.match(stdout, /^node-b +http:\/\/127\.0\.0\.1:\d+ +\S+ +runs jobs/m);
    t.match(stdout, /^node-b\tmodel ct-tissue\t1\.1\.0 /m);
    t.match(stdout, /^node-b\tsetting RADSERVE_OUTPUTS\tnot set$/m);
    t.match(stdout, /^wrong\tnodes_differ\t/m);
  });

  await t.test("the model is replaced in the middle of a job, and no node has it", (t) =>
    replaced(t, a, b, names, () => submit(a, "replaced", { models: ["ct-tissue"] })),
  );
});

async function replaced(
  t: Test,
  a: Bulk,
  b: Bulk,
  names: readonly string[],
  submit: () => Promise<string>,
): Promise<void> {
  const folder = path.join(a.place.output, "replaced");
  const done = 4;
  const release = await hold(t, folder, names.slice(done));
  const id = await submit();
  await a.until(id, ({ counts }) => counts.succeeded === done && counts.running > 0);
  const waits = await replaceVersionDuring(t, id, { asked: a, worker: a, release }, "1.2.0");
  t.match(waits, {
    paused_reason: { code: "no_node_can_run", message: /radserve models reload/ },
    counts: { failed: 0 },
  });
  t.strictSame(
    waits.waiting.filter(({ reason }) => reason === "other_versions").map(({ node }) => node),
    ["node-a", "node-b"],
  );
  await until("the condition is there", async () =>
    (await conditionsOf(b)).some(
      ({ condition, where }) => condition === "job_paused" && where === "jobs: no_node_can_run",
    ),
  );
  const before = waits.counts.succeeded;
  t.strictSame(versionsIn(folder), { "ct-tissue 1.0.0": before });
  t.match(await a.send("POST", `/bulk_inference/${id}/resume`), { status: 200 });
  t.match(await a.ended(id), {
    state: "completed",
    counts: { succeeded: IMAGES, failed: 0 },
    warnings: [{ code: "several_versions" }],
    pinned: { models: { "ct-tissue": { version: "1.2.0" } } },
    pinned_before: [{ models: { "ct-tissue": { version: "1.0.0" } } }],
  });
  t.strictSame(versionsIn(folder), {
    "ct-tissue 1.0.0": before,
    "ct-tissue 1.2.0": IMAGES - before,
  });
  await b.server.stop();
}
