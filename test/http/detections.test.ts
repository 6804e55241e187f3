/**
 * Detection heads as they are exported, over HTTP: where the boxes lie in the source, and what the
 * receipt says.
 */
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import t from "tap";
import { createEngine } from "../../src/engine/engine.js";
import { readImage } from "../../src/images/read-image.js";
import { modelsCanary } from "../../src/commands/models/canary.js";
import { receiptSchema, receiptText } from "../../src/results/receipt/receipt.js";
import { ADDON, needs } from "../support/needs.js";
import { radiograph } from "../support/radiograph.js";
import { makePlace, radserve, startServer } from "../support/server.js";
import { writeTestModel } from "../support/test-models.js";

const HEADS = ["columns", "rows", "objectness"] as const;

t.test("detection tables", { skip: needs(ADDON) }, async (t) => {
  const place = makePlace();
  t.teardown(() => {
    place.remove();
  });
  // 24 rows of 32 pixels lie in the tensor's 32 x 32 from row 4 on, as large as they are.
  const image = join(place.input, "image.dcm");
  writeFileSync(image, radiograph());
  const engine = createEngine({ provider: "cpu" });
  for (const head of HEADS) {
    const folder = writeTestModel(place.environment["RADSERVE_MODELS_DIR"]!, head);
    await modelsCanary(folder, await readImage(radiograph()), { engine, providers: ["cpu"] });
  }
  await engine.close();
  const server = await startServer(place);
  t.teardown(() => server.stop());
  mkdirSync(join(place.output, "all"));
  const answer = await fetch(`${server.url}/single_inference`, {
    method: "POST",
    headers: { Authorization: server.token, "Content-Type": "application/json" },
    body: JSON.stringify({
      input_image_path: image,
      output_folder_path: join(place.output, "all"),
    }),
  });
  const body = await answer.text();
  t.equal(answer.status, 200, body);
  const { receipt_path } = JSON.parse(body) as { receipt_path: string };
  const receipt = receiptSchema.parse(JSON.parse(readFileSync(receipt_path, "utf8")));
  t.strictSame(
    receipt.models.map(({ name, status }) => `${name} ${status}`),
    [...HEADS].sort().map((head) => `test-${head} succeeded`),
  );
  for (const { name, findings, decoding, outputs } of receipt.models) {
    const boxes = findings.map(({ label, box, present }) => ({ label, box, present }));
    t.strictSame(
      boxes,
      [
        { label: "nodule", box: { x0: 8, y0: 8, x1: 16, y1: 16 }, present: true },
        { label: "mass", box: { x0: 20, y0: 6, x1: 28, y1: 18 }, present: true },
      ],
      name,
    );
    t.match(decoding?.[0], { step: "table", tensor: "output0" }, name);
    t.match(
      decoding?.find(({ step }) => step === "thresholds"),
      { at_or_above: { nodule: 0.5, mass: 0.5 } },
      name,
    );
    t.equal(
      decoding?.some(({ step }) => step === "nms"),
      name !== "test-rows",
      name,
    );
    t.ok(
      outputs.some(({ path }) => path.endsWith(".sr.dcm")),
      name,
    );
  }
  const verified = await radserve(place, "verify", receipt_path, "--input", image);
  t.equal(verified.status, 0, verified.stdout + verified.stderr);
  const changed = JSON.parse(readFileSync(receipt_path, "utf8")) as typeof receipt;
  changed.models[0]!.decoding![0]!["axes"] = "boxes_columns";
  const copy = join(place.output, "all", "changed.json");
  writeFileSync(copy, receiptText(changed));
  const other = await radserve(place, "verify", copy, "--input", image);
  t.match(other.stdout, /differs +test-columns +computed again, there are other decoding\n/);
  t.equal(other.status, 1);
});
