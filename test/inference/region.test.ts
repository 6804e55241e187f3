/**
 * A model that looks at the region that another found: what results say of both, and of regions
 * that are not there.
 */
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import t, { type Test } from "tap";
import { openInput } from "../../src/files/guarded-paths.js";
import { volumeOf } from "../../src/images/dicom/volume.js";
import { infer } from "../../src/inference/infer-image.js";
import { readInput } from "../../src/inference/read-input.js";
import { wholePairs, withMargin } from "../../src/inference/region.js";
import { replay } from "../../src/inference/replay.js";
import type { Manifest } from "../../src/manifest/manifest.js";
import { modelsTry } from "../../src/commands/models/try.js";
import { modelsCheck } from "../../src/commands/models/check.js";
import { modelsCanary } from "../../src/commands/models/canary.js";
import { receiptSchema } from "../../src/results/receipt/receipt.js";
import { ADDON, needs } from "../support/needs.js";
import { reference, writeReachModel } from "../support/reach-models.js";
import { engine, modelsOf } from "../support/real-engine.js";

t.test("margins are rounded up to pixels, and end with the image", (t) => {
  const box = { slice: 2, slices: 1, top: 4, rows: 2, left: 3, columns: 2 };
  const grid = { slices: 4, rows: 20, columns: 7, spacing: { slice: 5, row: 1.5, column: 0.5 } };
  t.match(withMargin(box, 2, grid), { slice: 1, slices: 3, top: 2, rows: 6, left: 0, columns: 7 });
  t.strictSame(withMargin(box, 0, grid), box);
  const format = { columns: 7, packed422: true } as Parameters<typeof wholePairs>[1];
  t.match(wholePairs(box, format), { left: 2, columns: 4 });
  t.end();
});

/** A finder that finds nothing. */
function unfound({ outputs: [output] }: Manifest): void {
  if (output?.kind === "segmentation") output.labels[0]!.threshold = 1;
}

t.test("regions", { skip: needs(ADDON) }, async (t) => {
  t.teardown(() => engine().close());
  const options = { engine: engine(), providers: ["cpu"] as const };
  const inputPath = join(reference("inputs"), "series");
  const opened = await openInput(inputPath, undefined);
  t.teardown(() => {
    opened.close();
  });
  const image = await readInput(opened);

  const write = async (models: string, name: string, change?: (m: Manifest) => void) =>
    modelsCanary(writeReachModel(models, name, change), image, options);
  const run = async (t: Test, models: string, names?: string[]) => {
    const set = await modelsOf(models);
    t.teardown(() => set.close());
    const outputFolder = mkdtempSync(join(tmpdir(), "radserve-region-"));
    t.teardown(() => {
      rmSync(outputFolder, { recursive: true });
    });
    const roots = { input: undefined, output: undefined };
    const task = { requestId: "test", priority: "routine" as const, cancelId: 1, roots, inputPath };
    const asked = names === undefined ? {} : { models: names };
    const answer = await infer(
      { ...task, ...asked, outputFolder },
      { engine: engine(), models: set.entries },
    );
    const receipt = receiptSchema.parse(JSON.parse(readFileSync(answer.receipt_path, "utf8")));
    const again = () => replay({ receipt, image, models: set.entries, engine: engine() });
    return { set, receipt, again };
  };

  await t.test("the receipt pins both, says what was looked at, and can be verified", async (t) => {
    const models = t.testdir();
    await write(models, "finder");
    await write(models, "looker");
    // Who names the second alone gets the first too.
    const { set, receipt, again } = await run(t, models, ["looker"]);
    const [finder, looker] = [receipt.models[0]!, receipt.models[1]!];
    t.strictSame(looker.region, {
      model: "finder",
      version: "1.0.0",
      sha256: set.entries[0]!.sha256,
      site_thresholds: {},
      label: "bright",
      margin_mm: 2,
      when_empty: "whole",
    });
    t.equal(finder.sha256, set.entries[0]!.sha256);
    t.match(looker.transforms[0], {
      step: "region",
      model: "finder",
      empty_seen_whole: 1,
      by_frame: true,
      source_area: { top: { least: 0, most: 1 }, left: { least: 2, most: 4 } },
    });
    t.match(looker.warnings, [{ code: "region_empty", message: /whole image/ }]);
    t.match(await again(), [{ verdict: "ok" }, { verdict: "ok" }, { verdict: "ok" }]);
    looker.region!.label = "soft";
    t.match((await again()).at(-1), { verdict: "differs", detail: /region/ });
  });

  await t.test("what a region that is not there means is what the manifest says", async (t) => {
    const models = t.testdir();
    // A canary needs a region.
    const writeBoth = async (change?: (m: Manifest) => void) => {
      for (const name of ["finder-3d", "looker-3d"])
        rmSync(join(models, name), { recursive: true, force: true });
      await write(models, "finder-3d");
      await write(models, "looker-3d", change);
      rmSync(join(models, "finder-3d"), { recursive: true });
      await write(models, "finder-3d", unfound);
    };
    await writeBoth();
    const { receipt, again } = await run(t, models);
    const looker = receipt.models[1]!;
    t.match(looker, {
      status: "succeeded",
      warnings: [{ code: "region_empty", message: /did not look/ }],
    });
    t.match(looker.transforms[0], { step: "region", empty_not_seen: 1 });
    t.ok(looker.findings.every(({ present }) => !present));
    t.match(await again(), [{ verdict: "ok" }, { verdict: "ok" }, { verdict: "ok" }]);

    await writeBoth((m) => (m.region!.when_empty = "refuse"));
    const refused = await run(t, models);
    t.match(refused.receipt.models[1], {
      status: "not_accepted",
      reasons: [{ code: "region_empty" }],
    });
    t.match(await refused.again(), [{ verdict: "ok" }, { verdict: "ok" }, { verdict: "ok" }]);
  });

  await t.test("try shows the model the part that a server shows it", async (t) => {
    const models = t.testdir();
    const lone = writeReachModel(t.testdir({ lone: {} }), "looker-3d", (m) => {
      Object.assign(m, { stage: "draft", results: { outputs: ["json"] } });
    });
    await t.rejects(modelsTry(lone, image, options), {
      code: "model_unavailable",
      message: /Expected the model "finder-3d" beside this one/,
    });
    await write(models, "finder-3d");
    await write(models, "looker-3d");
    const { receipt } = await run(t, models);
    const looker = receipt.models[1]!;
    const area = looker.transforms[0]!["source_area"] as Record<string, number>;
    const tried = await modelsTry(join(models, "looker-3d"), image, options);
    const { slices, rows, columns } = area;
    t.match(tried.data, { input: { shape: [1, 1, slices, rows, columns] } });
    t.match(
      tried.text,
      `region: model finder-3d, label bright, margin mm 2, source area {slice ${area["slice"]}, `,
    );
    const voxels = looker.findings.map(({ volume }) => volume?.voxels).join(", ");
    t.match(tried.text, `mask: pixels of each label ${voxels}`);

    rmSync(join(models, "finder-3d"), { recursive: true });
    await write(models, "finder-3d", unfound);
    await t.rejects(modelsTry(join(models, "looker-3d"), image, options), {
      code: "no_model_accepts",
      message: /found no "bright"; this model did not look/,
    });
  });

  await t.test("segments in the grid of the network lie where the part was cut out", async (t) => {
    const models = t.testdir();
    await write(models, "finder-3d");
    await write(models, "looker-3d", (m) => {
      m.region!.when_empty = "refuse";
      for (const output of m.outputs)
        if (output.kind === "segmentation") output.segment_grid = "model";
    });
    const { receipt, again } = await run(t, models);
    const looker = receipt.models[1]!;
    const { source_area: area } = looker.transforms[0] as unknown as {
      source_area: Record<"slice" | "slices" | "top" | "rows" | "left" | "columns", number>;
    };
    const { frames, geometry: whole } = volumeOf(image);
    t.ok(area.slices < frames.length, "a part");
    const place = whole.origin.map(
      (at, axis) =>
        at +
        area.left * whole.columnSpacing * whole.columnDirection[axis]! +
        area.top * whole.rowSpacing * whole.rowDirection[axis]! +
        area.slice * whole.sliceSpacing * whole.sliceDirection[axis]!,
    );
    // The network takes the part's own voxels.
    t.match(looker.segmentation_grid, {
      slices: area.slices,
      rows: area.rows,
      columns: area.columns,
      image_position_patient: place,
      slice_spacing: whole.sliceSpacing,
    });
    const voxels = looker.findings.flatMap(({ volume }) => volume?.voxels ?? []);
    t.strictSame(
      looker.segmentation_grid?.segments.map((segment) => segment.voxels),
      voxels,
    );
    t.match(await again(), [{ verdict: "ok" }, { verdict: "ok" }, { verdict: "ok" }]);
  });

  await t.test(
    "a model whose first is missing, off or unlike is not loaded, and check says why",
    async (t) => {
      const asDraft = (m: Manifest) => {
        m.stage = "draft";
        m.results.outputs = ["json"];
      };
      const why = async (first: string | undefined, change?: (m: Manifest) => void) => {
        const models = t.testdir();
        if (first !== undefined)
          writeReachModel(models, first, (m) => {
            asDraft(m);
            change?.(m);
          });
        const folder = writeReachModel(models, "looker", asDraft);
        const { text } = await modelsCheck(folder, options);
        const set = await modelsOf(models);
        const found = set.entries.find(({ name }) => name === "looker")!;
        await set.close();
        t.equal(found.state, "failed");
        const message = found.error?.message ?? "";
        t.ok(text.includes(message.slice(message.indexOf("region."))), text);
        return message;
      };
      t.match(await why(undefined), /beside this one; found none/);
      t.match(await why("finder", (m) => (m.release = "off")), /its release is "off"/);
      t.match(
        await why("finder", (m) => {
          (m.outputs[0] as { labels: { label: string }[] }).labels[0]!.label = "other";
        }),
        /expected a label of a segmentation of "finder"; found "bright"/,
      );
      t.match(
        await why("looker", (m) => {
          m.name = "finder";
          m.region!.model = "looker";
        }),
        /Regions of regions, and circles/,
      );
      const text = async (change: (m: Manifest) => void) =>
        (await modelsCheck(writeReachModel(t.testdir(), "looker", change), options)).text;
      t.match(
        await text((m) => (m.region!.model = "looker")),
        /region\.model: Expected another model/,
      );
      t.match(
        await text((m) => (m.region!.when_empty = "negative")),
        /region\.when_empty: Expected "refuse"/,
      );
    },
  );
});
