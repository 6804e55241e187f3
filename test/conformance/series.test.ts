/** Whole series of real files, and the real network of ../shared/models on a series made for it. */
import { createHash } from "node:crypto";
import { copyFileSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import t from "tap";
import { infer } from "../../src/inference/infer-image.js";
import { inspectImage } from "../../src/inference/inspection.js";
import { packageRoot } from "../../src/models/files.js";
import { openInput } from "../../src/files/guarded-paths.js";
import { readInput } from "../../src/inference/read-input.js";
import { imageInputs } from "../../src/manifest/manifest.js";
import { ADDON, needs } from "../support/needs.js";
import { engine, modelsOf } from "../support/real-engine.js";
import { copyModel } from "../support/manifests.js";
import { attributesOf, dicomFile } from "../support/dicom.js";

const shared = join(packageRoot(), "..", "shared");
const chest = join(shared, "dicom", "ct-series-chest");
const meshnet = join(shared, "models", "brain-mri-tissue-meshnet", "model.onnx");

/**
 * Slices of the manifest by their place, which its purposes give: place, sha256 of the file and of
 * the frame.
 */
function chestRows(): { z: number; file: string; frame: string }[] {
  const [head, ...lines] = readFileSync(join(shared, "dicom", "MANIFEST.tsv"), "utf8")
    .trimEnd()
    .split("\n");
  const names = head!.split("\t");
  return lines
    .map((line) => line.split("\t"))
    .filter(([file]) => file!.startsWith("ct-series-chest/"))
    .map((values) => ({
      z: Number(/slice at z=(-[\d.]+)/.exec(values[names.indexOf("purpose")]!)![1]),
      file: values[names.indexOf("sha256")]!,
      frame: values[names.indexOf("ref_frame1_sha256")]!,
    }))
    .sort((a, b) => a.z - b.z);
}

const sha256 = (bytes: string | Uint8Array) => createHash("sha256").update(bytes).digest("hex");

t.test("the chest CT, sorted and assembled", { skip: needs(chest) }, async (t) => {
  const opened = await openInput(chest, undefined);
  t.teardown(() => opened.close());
  const image = await readInput(opened);
  const rows = chestRows();
  t.equal(rows.length, 20);
  t.strictSame(
    image.series?.slices.map(({ fileSha256 }) => fileSha256),
    rows.map(({ file }) => file),
  );
  for (const [i, { frame, z }] of rows.entries()) {
    t.equal(sha256(await image.frame(i)), frame, `slice ${i + 1}`);
    t.ok(Math.abs(image.plane(i)!.position[2] - z) < 1e-4, `at ${z}`);
  }
  const inspection = await inspectImage(image);
  t.match(inspection, {
    frames: 20,
    file_sha256: sha256(rows.map(({ file }) => `${file}\n`).join("")),
    first_frame: { sha256: rows[0]!.frame },
    last_frame: { sha256: rows[19]!.frame },
    units: "HU",
    warnings: [{ code: "frame_of_reference_by_slice" }],
  });
  const { origin, sliceSpacing, ...axes } = inspection.volume!;
  t.strictSame(axes, {
    slices: 20,
    columnDirection: [1, 0, 0],
    rowDirection: [0, 1, 0],
    sliceDirection: [0, 0, 1],
    columnSpacing: 0.78125,
    rowSpacing: 0.78125,
  });
  t.ok(Math.abs(sliceSpacing - 1) < 1e-6);
  t.ok(Math.abs(origin[2] + 539.8) < 1e-3);
});

const SIDE = 256;
/**
 * The reference of ../shared/models/README.md: distance from the middle voxel, thousandths of its
 * value.
 */
const SHELLS = [
  [60, 750],
  [80, 500],
  [90, 100],
] as const;

/** Slice `k` of the concentric volume. */
function concentric(k: number): Uint8Array {
  const values = new Uint16Array(SIDE * SIDE);
  for (let y = 0; y < SIDE; y++)
    for (let x = 0; x < SIDE; x++) {
      const distance = Math.hypot(x - 128, y - 128, k - 128);
      values[y * SIDE + x] = SHELLS.find(([radius]) => distance < radius)?.[1] ?? 0;
    }
  return new Uint8Array(values.buffer);
}

/**
 * The concentric volume as coronal T1-weighted MR slices 1 mm apart. Columns run to the left and
 * rows to the feet, as in the model's tensor; slices are sorted to the back and its depth runs to
 * the front, so the volume is written from its last slice on. Its middle is no centre of symmetry
 * of 256 voxels: a wrong turn would move it.
 */
function writeConcentric(folder: string): void {
  for (let k = 0; k < SIDE; k++) {
    const data = concentric(SIDE - 1 - k);
    const raw = { rows: SIDE, columns: SIDE, samples: 1, bitsAllocated: 16, bitsStored: 16, data };
    const file = dicomFile({
      attributes: attributesOf(raw, {
        SOPClassUID: "1.2.840.10008.5.1.4.1.1.4",
        SOPInstanceUID: `1.2.3.${k + 1}`,
        StudyInstanceUID: "1.2",
        SeriesInstanceUID: "1.2.3",
        FrameOfReferenceUID: "1.2.4",
        Modality: "MR",
        ImageType: "ORIGINAL\\PRIMARY",
        ImagePositionPatient: `-100\\${k - 120}\\130`,
        ImageOrientationPatient: "1\\0\\0\\0\\0\\-1",
        PixelSpacing: "1\\1",
        SpacingBetweenSlices: "1",
      }),
      pixels: data,
    });
    // Names that are not in the slices' order
    writeFileSync(join(folder, `${(k * 77) % SIDE}.dcm`), file);
  }
}

t.test(
  "MeshNet on the concentric volume",
  { skip: needs(ADDON, meshnet), timeout: 300_000 },
  async (t) => {
    const place = t.testdir({ models: {}, series: {} });
    const directory = join(place, "models");
    const folder = copyModel(
      directory,
      "examples/brain-tissue-3d",
      "brain-tissue-3d",
      (manifest) => {
        manifest.release = "active";
        // The reference volume's brightest voxels are 0.75, not 1
        imageInputs(manifest)[0]!.normalisation = {
          kind: "min_max",
          over: "volume",
          to: [0, 0.75],
        };
      },
    );
    mkdirSync(folder, { recursive: true });
    copyFileSync(meshnet, join(folder, "model.onnx"));
    const models = await modelsOf(directory);
    t.teardown(() => models.close());
    writeConcentric(join(place, "series"));
    const answer = await infer(
      {
        requestId: "concentric",
        inputPath: join(place, "series"),
        outputFolder: join(place, "out"),
        priority: "routine",
        cancelId: 1,
        roots: { input: undefined, output: undefined },
      },
      { engine: engine(), models: models.entries },
    );
    const [model] = answer.models;
    t.equal(model?.status, "succeeded");
    // The reference counts [15132417, 506726, 1138073] voxels of 0.001 mL; the first is background
    t.match(model?.findings, [
      { label: "white matter", present: true, volume: { voxels: 506_726 } },
      { label: "grey matter", present: true, volume: { voxels: 1_138_073 } },
    ]);
    t.match(model?.measurements, [
      { name: "Volume", label: "white matter", value: 506.726, unit: { value: "mL" } },
      { name: "Volume", label: "grey matter", value: 1138.073, unit: { value: "mL" } },
    ]);
    t.equal(model?.outputs.length, 1, "a picture");
  },
);
