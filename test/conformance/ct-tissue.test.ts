/**
 * Tissue areas of real CT slices against a count that knows nothing of Radserve (ct_tissue.py
 * beside this file).
 */
import { execFileSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join, resolve } from "node:path";
import t from "tap";
import { createEngine } from "../../src/engine/engine.js";
import { infer } from "../../src/inference/infer-image.js";
import { modelsOf } from "../support/real-engine.js";
import { ADDON, DICOM_FILES, needs, PYTHON, pythonHas } from "../support/needs.js";

const skip = needs(ADDON, DICOM_FILES) || pythonHas("pydicom", "scipy");

t.test("tissue areas of real CT slices", { skip }, async (t) => {
  const folder = resolve("../shared/dicom");
  const series = readdirSync(join(folder, "ct-series-chest")).map((name) =>
    join(folder, "ct-series-chest", name),
  );
  const files = [...series, join(folder, "ele-ct-small-padding.dcm")];
  const counted = JSON.parse(
    execFileSync(PYTHON, ["test/conformance/ct_tissue.py", ...files], { encoding: "utf8" }),
  ) as Record<string, Record<string, number>>;
  const engine = createEngine({ provider: "cpu" });
  const models = await modelsOf(resolve("models"), engine);
  const outputFolder = mkdtempSync(join(tmpdir(), "radserve-tissue-"));
  t.teardown(async () => {
    await models.close();
    await engine.close();
    rmSync(outputFolder, { recursive: true });
  });
  for (const inputPath of files) {
    const answer = await infer(
      {
        requestId: "test",
        inputPath,
        outputFolder,
        outputs: ["json"],
        models: ["ct-tissue"],
        priority: "routine",
        cancelId: 1,
        roots: { input: undefined, output: undefined },
      },
      { engine, models: models.entries },
    );
    const areas = answer.models[0]!.measurements.map(({ value }) => value.toFixed(6));
    const expected = Object.values(counted[inputPath]!).map((value) => value.toFixed(6));
    t.strictSame(areas, expected, basename(inputPath));
  }
});
