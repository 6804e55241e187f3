/**
 * The viewer with real images of each modality, in Debian's Chromium; pictures as page.test.ts
 * keeps them.
 */
import { copyFileSync, cpSync, existsSync, mkdirSync } from "node:fs";
import path from "node:path";
import t from "tap";
import type { Answer } from "../../../src/results/receipt/receipt.js";
import { privatePlace } from "../../support/private-postgres.js";
import { writeDraft } from "../../support/drafts.js";
import { CHROMIUM, look, signIn, startBrowser } from "../../support/looks.js";
import { constant } from "../../support/model-parts.js";
import { ADDON, needs } from "../../support/needs.js";
import { root, startServer } from "../../support/server.js";

const REAL = path.join(root, "../shared/dicom");
const skip = existsSync(REAL) ? needs(ADDON, CHROMIUM) : "../shared/dicom is not there";

t.setTimeout(400_000);

/** Four places along a diagonal, two of them close together, whatever the image. */
const points = constant(
  ...(["landmarks", "points", [32, 32], [4, 3]] as const),
  [8, 8, 0.93, 16, 16, 0.88, 16.6, 16.3, 0.81, 31.5, 0.5, 0.7],
);

t.test("real images", { skip }, async (t) => {
  const place = privatePlace(t, { RADSERVE_FILES_BY_HTTP: "view" });
  const models = place.environment["RADSERVE_MODELS_DIR"]!;
  cpSync(path.join(root, "models/burned-in-text"), path.join(models, "burned-in-text"), {
    recursive: true,
  });
  writeDraft(
    models,
    points,
    [
      {
        kind: "keypoints",
        tensor: "points",
        activation: "none",
        table: { columns: ["x", "y", "score"], normalised: false, counted_from: "edges" },
        labels: ["upper left", "middle", "middle, once more", "upper right"].map((label) => ({
          label,
          threshold: 0.5,
        })),
      },
    ],
    { formats: ["dicom"], modality: ["CR", "DX", "MR", "PT", "US"], dimensions: "2d_frames" },
  );
  const server = await startServer(place);
  t.teardown(() => server.stop());
  const page = await (await startBrowser(t)).newPage();
  await signIn(page, server);
  const corners = page.locator(".corners");

  const show = async (name: string, model: string) => {
    const input = path.join(place.input, name);
    if (name.endsWith(".dcm")) copyFileSync(path.join(REAL, name), input);
    else cpSync(path.join(REAL, name), input, { recursive: true });
    const output = path.join(place.output, model);
    mkdirSync(output, { recursive: true });
    const body = { input_image_path: input, output_folder_path: output, models: [model] };
    const answer = (await (await server.post("/single_inference", body)).json()) as Answer;
    t.match(answer, { status: "completed" }, `${name} ${JSON.stringify(answer).slice(0, 600)}`);
    await page.goto(`${server.url}/#/results`);
    await page.getByRole("link", { name, exact: true }).first().click();
    await page.locator(".stage-inner .picture").waitFor();
  };
  /** Words that lie over a box, a point, each other or the texts in the corners. */
  const covered = () =>
    page.evaluate<string[]>(`(() => {
      const words = [...document.querySelectorAll(".stage-labels span")];
      const named = [...document.querySelectorAll(".stage svg polygon, .stage svg path, .corners div")];
      const over = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 0.5 &&
        Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 0.5;
      const box = (element) => element.getBoundingClientRect();
      return words.flatMap((word, i) => [...named, ...words.slice(0, i)]
        .filter((other) => over(box(word), box(other))).map(() => word.textContent));
    })()`);

  await t.test("CT: slices and planes across them", async (t) => {
    await show("ct-series-chest", "ct-tissue");
    await page.locator("img.marks").waitFor();
    t.match(await corners.innerText(), /HU|W \S+ L/);
    await look(t, page, "real-ct");
    await page.getByRole("button", { name: "Coronal" }).click();
    await page.locator(".stage[data-plane='coronal 256'] img.marks").waitFor();
    await look(t, page, "real-ct-coronal");
    await page.getByRole("button", { name: "Sagittal" }).click();
    await page.locator(".stage[data-plane='sagittal 256'] img.marks").waitFor();
    await look(t, page, "real-ct-sagittal");
  });

  for (const [what, name, model, said] of [
    ["mr", "ele-mr-overlay.dcm", "landmarks", /W \S+ L/],
    ["xray", "jpeg50-cr-chest.dcm", "landmarks", /./],
    ["xray-dx", "j2k90-dx-chest-mono1.dcm", "landmarks", /./],
    ["pet", "ele-pt-icon-nested.dcm", "landmarks", /W \S+ L/],
    ["us", "ele-us-burnedin.dcm", "burned-in-text", /./],
    ["us-colour", "j2k91-us-ybr-ict.dcm", "landmarks", /./],
  ] as const)
    await t.test(`${what}: words beside what they name`, async (t) => {
      await show(name, model);
      await page.locator(".stage-labels span").first().waitFor();
      t.match(await corners.innerText(), said);
      t.same(await covered(), []);
      await look(t, page, `real-${what}`);
    });

  await t.test("a file that is dropped where the settings let none in", async (t) => {
    await page.evaluate(`(() => {
      const dataTransfer = new DataTransfer();
      dataTransfer.items.add(new File(["x"], "x.dcm"));
      document.body.dispatchEvent(new DragEvent("drop", { dataTransfer, bubbles: true, cancelable: true }));
    })()`);
    await page.getByRole("alert").getByText("RADSERVE_FILES_BY_HTTP=upload").waitFor();
    await look(t, page, "dropped");
  });
});
