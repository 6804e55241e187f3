/**
 * A 2D plan of nnU-Net for images that are no series: the same pixels come to what nnU-Net itself
 * says of them.
 */
import { readFileSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import t, { type Test } from "tap";
import { modelsTry } from "../../src/commands/models/try.js";
import { decodeNpy } from "../../src/engine/npy.js";
import { infer } from "../../src/inference/infer-image.js";
import { readImage } from "../../src/images/read-image.js";
import type { Manifest } from "../../src/manifest/manifest.js";
import { toNumbers } from "../../src/models/compare.js";
import { modelsImport, type ImportOptions } from "../../src/features/import/import.js";
import { receiptSchema } from "../../src/results/receipt/receipt.js";
import { failure } from "../support/expect.js";
import { ADDON, needs } from "../support/needs.js";
import { engine, modelsOf } from "../support/real-engine.js";
import { seriesFiles, VOLUMES } from "../support/reference-volumes.js";

const REFERENCE = join(VOLUMES, "nnunet-2d-single");
/** nnU-Net is told a distance of slices, which a single image does not have. */
const [file] = seriesFiles("nnunet-2d-single", { modality: "MR" });

async function imported(t: Test, options: ImportOptions = {}) {
  const models = join(t.testdir(), "models");
  mkdirSync(models);
  const to = join(models, "single");
  await modelsImport(REFERENCE, engine(), {
    single: true,
    modality: "MR",
    mirror: "all",
    ...options,
    to,
  });
  return { models, to };
}

t.test("a 2D plan on a single image", { skip: needs(ADDON) }, async (t) => {
  t.teardown(() => engine().close());
  const { models, to } = await imported(t);
  const manifest = JSON.parse(readFileSync(join(to, "model.json"), "utf8")) as Manifest;
  t.match(manifest, { accepts: { dimensions: "2d" }, outputs: [{ measurements: ["area"] }] });
  const image = await readImage(file!);
  for (const what of ["probabilities", "labels"]) {
    const expect = join(REFERENCE, `${what}.npy`);
    const options = { engine: engine(), providers: ["cpu"] as const, expect };
    const { text, data, exitCode } = await modelsTry(to, image, options);
    const { comparison } = data as { comparison: { what: string; maxAbsolute: number } };
    t.equal(comparison.what, what);
    t.equal(exitCode, 0, text);
    if (what === "probabilities") t.ok(comparison.maxAbsolute < 2e-5, text);
    t.comment(text);
  }

  await t.test("its areas are those of nnU-Net's labels", async (t) => {
    const input = join(t.testdir(), "image.dcm");
    writeFileSync(input, file!);
    writeFileSync(join(to, "model.json"), JSON.stringify({ ...manifest, release: "active" }));
    const set = await modelsOf(models);
    t.teardown(() => set.close());
    const task = {
      requestId: "r",
      inputPath: input,
      outputFolder: join(input, "..", "out"),
      cancelId: 1,
      priority: "routine" as const,
      roots: { input: undefined, output: undefined },
    };
    const { receipt_path } = await infer(task, { engine: engine(), models: set.entries });
    const [model] = receiptSchema.parse(JSON.parse(readFileSync(receipt_path, "utf8"))).models;
    const labels = toNumbers(decodeNpy(readFileSync(join(REFERENCE, "labels.npy"))));
    const pixelsOf = (value: number) => Array.from(labels).filter((one) => one === value).length;
    t.strictSame(
      model!.findings.map(({ label, present, area, volume }) => [
        label,
        present,
        area?.pixels,
        volume,
      ]),
      ["muscle", "fat"].map((label, i) => [label, true, pixelsOf(i + 1), undefined]),
    );
    t.ok(Math.abs(model!.findings[0]!.area!.cm2! - pixelsOf(1) * 0.0072) < 1e-9);
    const nowhere = seriesFiles("nnunet-2d-single", {
      modality: "MR",
      attributes: { PixelSpacing: "" },
    });
    writeFileSync(input, nowhere[0]!);
    const refused = await failure(infer(task, { engine: engine(), models: set.entries }));
    t.match(refused.details, { models: [{ reasons: [{ code: "spacing_required" }] }] });
  });

  await t.test("what is no 2D plan is refused", async (t) => {
    const other = modelsImport(join(VOLUMES, "nnunet-3d"), engine(), {
      single: true,
      mirror: "all",
      to: join(t.testdir(), "x"),
    });
    t.match(await failure(other), {
      message: /--single: Expected a 2d configuration of one channel/,
    });
  });
});
