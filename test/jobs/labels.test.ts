/**
 * Jobs that ask for some labels of segmentations alone: the same words and checks as for single
 * requests.
 */
import { cpSync, readFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { receiptSchema } from "../../src/results/receipt/receipt.js";
import { bulkPlace, startBulk } from "../support/bulk.js";
import { ADDON, needs } from "../support/needs.js";
import { writePartsModel } from "../support/parts-model.js";
import { reference } from "../support/reach-models.js";
import { radserve } from "../support/server.js";

const receiptAt = (file: string) => receiptSchema.parse(JSON.parse(readFileSync(file, "utf8")));

t.test("a job of some labels", { skip: needs(ADDON) }, async (t) => {
  const place = bulkPlace(t);
  writePartsModel(place.environment["RADSERVE_MODELS_DIR"]!, "body");
  const series = path.join(place.input, "ct");
  cpSync(path.join(reference("inputs"), "series"), series, { recursive: true });
  const bulk = await startBulk(t, place);
  const asking = (labels: readonly string[], more: object = {}) => ({
    input_folder_path: series,
    output_folder_path: path.join(place.output, "results"),
    outputs: ["json", "seg"],
    labels,
    ...more,
  });
  /** The one item of a job that is to succeed. */
  const itemOf = async (id: string) => {
    const job = await bulk.ended(id);
    t.match(job, { total: 1, counts: { succeeded: 1 } }, "models without a label make no items");
    const [item] = await bulk.items(id);
    return { job, item: item!, receipt: receiptAt(item!.receipt_path!) };
  };

  await t.test("a label that no model has is refused before the job is made", async (t) => {
    t.match(await bulk.send("POST", "/bulk_inference", asking(["densse"])), {
      status: 400,
      body: {
        error: "bad_request",
        message: /labels: expected labels of .*body, ct-tissue.*"densse"; the nearest is "dense"/,
      },
    });
    t.match(
      await bulk.send("POST", "/bulk_inference", asking(["dense"], { models: ["ct-tissue"] })),
      {
        status: 400,
        body: { message: /expected labels of the segmentations of ct-tissue; found "dense"/ },
      },
    );
    t.match(await bulk.send("POST", "/bulk_inference", asking(["dense", "dense"])), {
      status: 400,
    });
    t.strictSame((await bulk.send("GET", "/bulk_inference")).body["jobs"], []);
  });

  await t.test("its items mark these labels alone, and replay finds the same", async (t) => {
    const { job, item, receipt } = await itemOf(await bulk.submit(asking(["soft", "dense"])));
    t.strictSame(job.request.labels, ["soft", "dense"]);
    const [body, other] = receipt.models;
    t.strictSame(body?.labels, ["soft", "dense"]);
    t.strictSame(
      body?.findings.map(({ label }) => label),
      ["soft", "dense"],
    );
    t.match(other, { name: "ct-tissue", status: "not_accepted" });
    t.match(other?.reasons, [{ code: "labels_not_held" }]);
    t.strictSame(
      body?.parts?.map(({ name, ran }) => [name, ran]),
      [
        ["tissue", true],
        ["bright", false],
        ["dense", true],
      ],
    );
    const verified = await radserve(place, "verify", item.receipt_path!, "--input", series);
    t.match(verified, { status: 0, stdout: /ok +body +computed again/ });
  });

  await t.test("an earlier result serves for the same labels, and for no others", async (t) => {
    const again = await itemOf(await bulk.submit(asking(["dense", "soft"])));
    t.equal(again.item.reused, true, "in another order, too");
    const other = await itemOf(await bulk.submit(asking(["bright"])));
    t.not(other.item.reused, true);
    t.strictSame(other.receipt.models[0]?.labels, ["bright"]);
    const all = await itemOf(
      await bulk.submit({ ...asking([]), labels: undefined, models: ["body"] }),
    );
    t.not(all.item.reused, true);
    t.equal(all.receipt.models[0]?.labels, undefined);
  });

  await t.test("one idempotency key is for one choice of labels", async (t) => {
    const keyed = { idempotency_key: "one", output_folder_path: path.join(place.output, "keyed") };
    const id = await bulk.submit(asking(["bone"], keyed));
    t.match(await bulk.send("POST", "/bulk_inference", asking(["bone"], keyed)), {
      status: 200,
      body: { job_id: id },
    });
    t.match(await bulk.send("POST", "/bulk_inference", asking(["dense"], keyed)), {
      status: 409,
      body: { error: "idempotency_conflict" },
    });
    await bulk.ended(id);
  });

  await t.test("the command has the field, too", async (t) => {
    const out = path.join(place.output, "command");
    const environment = { ...place.environment, RADSERVE_URL: bulk.server.url };
    const there = { ...place, environment: { ...environment, RADSERVE_TOKEN: bulk.server.token } };
    const wrong = await radserve(there, "bulk", series, out, "--label", "densse");
    t.match(wrong, { status: 2, stderr: /the nearest is "dense"/ });
    const ran = await radserve(there, "bulk", series, out, "--label", "dense", "--json");
    t.equal(ran.status, 0, ran.stderr);
    t.strictSame((JSON.parse(ran.stdout) as { request: object }).request, {
      input_folder_path: series,
      output_folder_path: out,
      labels: ["dense"],
    });
  });
});
