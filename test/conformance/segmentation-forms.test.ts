/**
 * Segmentations in the forms that a site may choose, label maps and structure sets: against
 * dciodvfy and dsrdump, and read by pydicom and highdicom, which hold every pixel and every contour
 * against the model's masks.
 */
import { execFileSync, spawnSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import t from "tap";
import { openFile } from "../../src/images/dicom/dicom-file.js";
import { LABEL_MAP_SEGMENTATION } from "../../src/results/dicom/segments.js";
import { ADDON, commandsAre, DICOM_FILES, needs, PYTHON, pythonHas } from "../support/needs.js";
import { LABEL_MAPS_UNKNOWN, objectErrors } from "../support/validators.js";
import { FORM_CASES, objectsOf, specialShop, type Result } from "./special.js";

t.test("label maps and structure sets", { skip: needs(ADDON, DICOM_FILES) }, async (t) => {
  const shop = await specialShop();
  t.teardown(() => shop.close());
  const made: Result[] = [];
  for (const [model, source] of FORM_CASES) made.push(await shop.makeForms(model, source));
  const classOf = (path: string) => openFile(readFileSync(path)).attributes.string("SOPClassUID");
  const hasMap = ({ seg }: Result) => seg !== null && classOf(seg) === LABEL_MAP_SEGMENTATION;

  t.test("which segmentations are label maps", (t) => {
    t.strictSame(
      made.filter(hasMap).map(({ title }) => title),
      [
        "test-segmenter on ct-series-chest/000021.dcm",
        "test-segmenter on jpeg50-cr-chest.dcm",
        "test-volume on ct-series-chest",
      ],
    );
    t.end();
  });

  t.test("structure sets are written where the source lies in the patient", (t) => {
    t.strictSame(
      made.filter(({ rtstruct }) => rtstruct === null).map(({ title }) => title),
      ["test-segmenter on jpeg50-cr-chest.dcm"],
    );
    t.end();
  });

  await t.test("dciodvfy", { skip: commandsAre("dciodvfy") }, (t) => {
    for (const result of made)
      for (const path of objectsOf(result)) {
        const errors = objectErrors(path);
        const unknown = (error: string) =>
          hasMap(result) && LABEL_MAPS_UNKNOWN.some((known) => known.test(error));
        t.strictSame(
          errors.filter((error) => !unknown(error)),
          [],
          `${result.title}: ${basename(path)}`,
        );
      }
    t.end();
  });

  await t.test("dsrdump", { skip: commandsAre("dsrdump") }, (t) => {
    // DCMTK 3.6.7 reads no report that refers to a label map, and takes RT Dose for no image
    const readable = made.filter((result) => !hasMap(result) && !result.title.includes("rtdose"));
    t.ok(readable.length > 0);
    for (const { sr, title } of readable) t.equal(spawnSync("dsrdump", [sr!]).status, 0, title);
    t.end();
  });

  await t.test("pydicom and highdicom", { skip: pythonHas("pydicom", "highdicom", "PIL") }, (t) => {
    const file = join(shop.folder, "list.json");
    writeFileSync(file, JSON.stringify(made));
    const output = execFileSync(PYTHON, ["test/conformance/objects.py", file], {
      encoding: "utf8",
    });
    const lines = output.trim().split("\n");
    const count = Number(lines.pop());
    t.strictSame(lines, []);
    t.equal(count, made.flatMap(objectsOf).length);
    t.end();
  });
});
