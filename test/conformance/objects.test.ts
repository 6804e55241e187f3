/**
 * Result objects of every single-frame conformance file against tools that know nothing of
 * Radserve: dciodvfy and dcentvfy (dicom3tools), dsrdump (DCMTK), and pydicom with highdicom, which
 * also compare the masks.
 */
import { execFileSync, spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import t from "tap";
import { readImage } from "../../src/images/read-image.js";
import { ADDON, commandsAre, DICOM_FILES, needs, PYTHON, pythonHas } from "../support/needs.js";
import { objectErrors, outputOf, refusedErrors } from "../support/validators.js";
import { HEADS, pythonList, workshop, type Made } from "./objects.js";

const OTHERS = ["classifier", "detector", ...HEADS] as const;
const skip = needs(ADDON, DICOM_FILES);

t.test("objects of every single-frame file", { skip }, async (t) => {
  const shop = await workshop();
  const folder = mkdtempSync(join(tmpdir(), "radserve-read-back-"));
  t.teardown(async () => {
    await shop.close();
    rmSync(folder, { recursive: true });
  });
  const made: Made[] = [];
  const modalities = new Set<string | undefined>();
  for (const [index, path] of shop.sources.entries()) {
    // Pictures take longest: one secondary capture a modality is enough
    const { modality } = (await readImage(readFileSync(path))).source;
    const kinds = modalities.has(modality)
      ? (["sr", "seg"] as const)
      : (["sr", "seg", "sc"] as const);
    modalities.add(modality);
    made.push(...(await shop.make(path, ["test-segmenter"], [...kinds])));
    const others = ["test-overlapping", `test-${OTHERS[index % OTHERS.length]!}`];
    made.push(...(await shop.make(path, others, ["sr", "seg"])));
  }
  const objects = made.flatMap(({ objects }) => Object.values(objects));
  const reports = made.flatMap(({ objects }) => objects.sr ?? []);
  t.ok(reports.length > 60, `${reports.length} reports, ${objects.length} objects`);

  await t.test("dciodvfy", { skip: commandsAre("dciodvfy") }, (t) => {
    for (const path of objects) t.strictSame(objectErrors(path), [], basename(path));
    t.end();
  });

  await t.test("dcentvfy", { skip: commandsAre("dcentvfy") }, (t) => {
    for (const source of new Set(made.map(({ sourcePath }) => sourcePath))) {
      const its = made.filter(({ sourcePath }) => sourcePath === source);
      const files = its.flatMap(({ objects }) => Object.values(objects));
      if (files.length === 0) continue;
      // It reads neither deflated nor high-throughput JPEG 2000 sources; then ours are held against
      // each other
      const output = outputOf("dcentvfy", ...files, source);
      const readable = !output.includes("Dicom dataset read failed");
      t.strictSame(
        refusedErrors("dcentvfy", readable ? output : outputOf("dcentvfy", ...files)),
        [],
        basename(source),
      );
    }
    t.end();
  });

  await t.test("dsrdump", { skip: commandsAre("dsrdump") }, (t) => {
    for (const path of reports) {
      const { status, stderr } = spawnSync("dsrdump", [path], { encoding: "utf8" });
      t.equal(status, 0, basename(path));
      t.notMatch(stderr, /^E: /m, basename(path));
    }
    t.end();
  });

  await t.test("pydicom and highdicom", { skip: pythonHas("pydicom", "highdicom", "PIL") }, (t) => {
    const withObjects = made.filter(({ objects }) => objects.sr !== undefined);
    const list = pythonList(withObjects, folder);
    const output = execFileSync(PYTHON, ["test/conformance/objects.py", list], {
      encoding: "utf8",
    });
    const lines = output.trim().split("\n");
    const count = lines.pop();
    t.strictSame(lines, []);
    const readable = withObjects
      .flatMap(({ objects }) => [objects.sr, objects.seg])
      .filter((path) => path);
    t.equal(Number(count), readable.length);
    t.end();
  });
});
