/**
 * What every kind of finding and measurement looks like on the page, in Debian's Chromium; pictures
 * as page.test.ts keeps them.
 */
import { mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import type { Page } from "playwright-core";
import t from "tap";
import { float, type ModelDescription } from "../../../scripts/lib/onnx-model.js";
import { ctSeries, samples } from "../../../scripts/demo/samples.js";
import type { ModelOutput } from "../../../src/manifest/outputs/outputs.js";
import { privatePlace } from "../../support/private-postgres.js";
import { CHROMIUM, look, signIn, startBrowser } from "../../support/looks.js";
import { copyModel } from "../../support/manifests.js";
import { writeDraft } from "../../support/drafts.js";
import { constant, meanOf } from "../../support/model-parts.js";
import { ADDON, needs } from "../../support/needs.js";
import { radserve, startServer } from "../../support/server.js";

t.setTimeout(400_000);

const LANDMARKS = ["femoral head, left", "femoral head, right", "sacral promontory"];
const points = constant(
  "points",
  "points",
  [32, 32],
  [3, 3],
  [22, 20, 0.93, 10, 20, 0.88, 16, 12, 0.31],
);
const pointOutput: ModelOutput = {
  kind: "keypoints",
  tensor: "points",
  activation: "none",
  table: { columns: ["x", "y", "score"], normalised: false, counted_from: "edges" },
  labels: LANDMARKS.map((label) => ({ label, threshold: 0.5 })),
};

/**
 * Three grades that exclude each other, an age by bins, and one score over all slices; all follow
 * the brightness.
 */
const classes: ModelDescription = {
  name: "classes",
  inputs: [{ name: "x", dtype: "float32", shape: ["n", 1, 32, 32] }],
  outputs: [
    { name: "grades", dtype: "float32", shape: ["n", 3] },
    { name: "bleeding", dtype: "float32", shape: ["n", 1] },
    { name: "age", dtype: "float32", shape: ["n", 4] },
  ],
  initializers: [
    ...(["grades", "bleeding", "age"] as const).map((name) => {
      const data = { grades: [-0.01, 0, 0.01], bleeding: [0.01], age: [0, 0.01, 0.01, 0] }[name];
      return { name: `${name}.w`, dtype: "float32" as const, shape: [1, data.length], data };
    }),
    { name: "grades.b", dtype: "float32", shape: [3], data: [0.6, 0.5, -0.4] },
    { name: "bleeding.b", dtype: "float32", shape: [1], data: [-1] },
    { name: "age.b", dtype: "float32", shape: [4], data: [0, 1, 0.5, 0] },
  ],
  nodes: [
    ...meanOf("x", "row"),
    ...["grades", "bleeding", "age"].map((name) => ({
      op: "Gemm",
      inputs: ["row", `${name}.w`, `${name}.b`],
      outputs: [name],
      attributes: { alpha: float(1) },
    })),
  ],
};

const CALIBRATION = { kind: "none" } as const;
const YEAR = { value: "a", scheme: "UCUM", meaning: "year" };
const classOutputs: ModelOutput[] = [
  {
    kind: "classification",
    tensor: "grades",
    activation: "softmax",
    calibration: CALIBRATION,
    decision: "highest",
    labels: ["none or minimal", "moderate", "severe"].map((label) => ({ label })),
  },
  {
    kind: "classification",
    tensor: "bleeding",
    activation: "sigmoid",
    calibration: CALIBRATION,
    over_frames: "noisy_or",
    labels: [{ label: "bleeding", threshold: 0.5 }],
  },
  {
    kind: "regression",
    tensor: "age",
    activation: "softmax",
    values: [{ name: "Age", unit: YEAR, multiply: 1, add: 0, bins: [30, 45, 60, 75] }],
  },
];

t.test("findings and measurements", { skip: needs(ADDON, CHROMIUM) }, async (t) => {
  const place = privatePlace(t, { RADSERVE_FILES_BY_HTTP: "download,view" });
  const models = place.environment["RADSERVE_MODELS_DIR"]!;
  copyModel(models, "ct-tissue", "measured", (manifest) => {
    manifest.accepts.dimensions = "2d";
    const measurements = [
      "area",
      "volume",
      "mean",
      "sd",
      "p10",
      "p90",
      "entropy",
      "diameter_in_plane",
    ];
    Object.assign(manifest.outputs[0]!, { measurements, bin_width: 25 });
  });
  writeDraft(models, points, [pointOutput]);
  writeDraft(models, { ...points, name: "hidden" }, [pointOutput], undefined, "shadow");
  writeDraft(models, classes, classOutputs);
  const server = await startServer(place);
  t.teardown(() => server.stop());
  const page: Page = await (await startBrowser(t)).newPage();
  await signIn(page, server);

  const send = async (input: string, model: string, grouped = false) => {
    await page.goto(`${server.url}/#/`);
    await page.getByRole("link", { name: "Send", exact: true }).click();
    await page.getByLabel("Image, or folder of one series").fill(input);
    await page.getByLabel("Folder for the results").fill(path.join(place.output, model));
    for (const name of ["measured", "points", "classes", "hidden"])
      await page.getByLabel(name, { exact: true }).setChecked(name === model);
    await page.getByLabel(/^Treat each series of a folder as one item/).setChecked(grouped);
    await page.getByRole("button", { name: "Send the image" }).click();
    await page.getByRole("heading", { name: `${model} 1.0.0` }).waitFor();
    await page.locator(".stage-inner .picture").first().waitFor();
  };
  const textOf = (name: string) => page.getByRole("region", { name, exact: true }).innerText();
  const image = path.join(place.input, "chest.dcm");
  writeFileSync(image, (await samples()).ct);
  const series = path.join(place.input, "series");
  mkdirSync(series);
  ctSeries(8, 12, 128).forEach((bytes, i) => writeFileSync(path.join(series, `${i}.dcm`), bytes));

  await t.test("points", async (t) => {
    await send(image, "points");
    t.match(await textOf("Findings of points"), /femoral head, left\s+Yes\s+0\.930/i);
    t.equal(await page.locator(".stage-labels span").count(), 2, "those above their thresholds");
    await look(t, page, "points");
  });

  await t.test("what a model in shadow found is drawn when it is asked for", async (t) => {
    await send(image, "hidden");
    const overlay = page.getByLabel(/^Overlay/);
    t.equal(await overlay.inputValue(), "");
    t.match(await overlay.innerText(), /hidden \(shadow\)/);
    await overlay.selectOption("hidden");
    await page.locator(".stage-labels span").nth(1).waitFor();

    await send(series, "hidden", true);
    await overlay.selectOption("");
    const found = page.getByRole("region", { name: "Findings of hidden", exact: true });
    await found.getByRole("button", { name: /^Show/ }).first().click();
    await page.locator(".stage-labels span").nth(1).waitFor();
    t.equal(await overlay.inputValue(), "hidden", "not the marks of another model");

    const { stdout } = await radserve(place, "infer", image, t.testdir(), "--model", "hidden");
    t.match(stdout, /^hidden 1\.0\.0 \(shadow: recorded, not to be shown\): succeeded$/m);
  });

  await t.test("measurements of segments", async (t) => {
    await send(image, "measured");
    t.match(await textOf("Measurements of measured"), /\tSD\t[\s\S]*bone\t[^\n]*\t85\.63 HU\t/);
    await look(t, page, "measured");
  });

  await t.test("margins, bins, and scores over all slices, of a group", async (t) => {
    await send(series, "classes", true);
    t.match(await textOf("Findings of classes"), /noisy-or of all slices/);
    await look(t, page, "classes");
  });

  await t.test("totals of a group", async (t) => {
    await send(series, "measured", true);
    t.match(await textOf("Findings of measured"), /total of all slices/);
    t.match(
      await textOf("Measurements of measured"),
      /Label\tVolume\tSlices[\s\S]*bone\t463\.7 mL\t8/,
    );
    await look(t, page, "group");
  });

  await t.test("a finding is shown with the marks of its model", async (t) => {
    const output = path.join(place.output, "both");
    mkdirSync(output);
    const answer = await server.post("/single_inference", {
      input_image_path: series,
      output_folder_path: output,
      group: "series",
      models: ["measured", "points"],
    });
    t.match(await answer.json(), { models: [{ name: "measured" }, { name: "points" }] });
    await page.goto(`${server.url}/#/results`);
    await page.getByRole("link", { name: "series", exact: true }).first().click();
    const words = page.locator(".stage-labels span");
    await words.nth(1).waitFor();
    const overlay = page.getByLabel(/^Overlay/);
    t.equal(await overlay.inputValue(), "points", "it opens with the marks of what it opens at");
    const labels = page.getByRole("list", { name: "Labels" });
    const masks = page.locator("img.marks");
    const show = (label: string) =>
      page
        .getByRole("button", { name: new RegExp(`^Show ${label} `) })
        .first()
        .click();
    await show("bone");
    await masks.waitFor();
    t.equal(await overlay.inputValue(), "measured");
    await labels.getByRole("button", { name: "Only fat" }).click();
    await show("bone");
    t.ok(await labels.getByLabel("Show bone").isChecked(), "whichever labels were chosen before");
    await show("femoral head, left");
    await words.nth(1).waitFor();
    t.equal(await overlay.inputValue(), "points");
    t.equal(await masks.count(), 0);
  });

  await t.test("the key o switches marks off, and on again as they were", async (t) => {
    const overlay = page.getByLabel(/^Overlay/);
    const labels = page.getByRole("list", { name: "Labels" });
    const masks = page.locator("img.marks");
    const stage = page.locator(".stage");
    await overlay.selectOption("measured");
    await labels.getByRole("button", { name: "Only bone" }).click();
    const off = [() => stage.press("o"), () => overlay.selectOption("none")];
    for (const switchOff of off) {
      await switchOff();
      await masks.waitFor({ state: "detached" });
      t.equal(await overlay.inputValue(), "");
      await stage.press("o");
      await masks.waitFor();
      t.equal(await overlay.inputValue(), "measured");
      t.ok(await labels.getByLabel("Show bone").isChecked());
      t.notOk(await labels.getByLabel("Show fat").isChecked());
    }
    await stage.press("o");
    await overlay.selectOption("points");
    await stage.press("o");
    t.equal(await overlay.inputValue(), "", "not those of the model before");
  });
});
