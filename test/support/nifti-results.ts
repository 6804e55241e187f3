/** Results with masks over stacks that lie in every way, for what is exported of them. */
import { spawnSync } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Engine } from "../../src/engine/engine.js";
import { infer } from "../../src/inference/infer-image.js";
import type { Manifest } from "../../src/manifest/manifest.js";
import { RESULT_FORMS, type SegmentationType } from "../../src/results/forms.js";
import { attributesOf, CT, dicomFile, type Attributes } from "./dicom.js";
import { cross, plus, times, type Vector } from "./oblique.js";
import { isRoot } from "./postgres.js";
import { loadTestModel, type TestModel } from "./test-models.js";
import { LONGEST_WAIT_MS } from "./until.js";

export interface StackOptions {
  /** Direction cosines of a row and of a column; axial, where absent. */
  across?: Vector;
  down?: Vector;
  /** Files in the order from the last slice to the first. */
  reversed?: boolean;
  slices?: number;
  /** How far the slices go aside, mm along a column for each: a tilted gantry. */
  aside?: number;
  /** Added to the place of the slice in the middle, mm. */
  shifted?: number;
  attributes?: Attributes;
}

const [ROWS, COLUMNS, APART] = [10, 14, 2.5];
const ORIGIN: Vector = [-31.5, 12.25, 140.5];
const text = (values: readonly number[]) => values.map((value) => value.toFixed(9)).join("\\");

/** Values from -160 to 240, all different along each axis, as stored with an intercept of -1024. */
export function stackFiles(options: StackOptions = {}): Buffer[] {
  const { across = [1, 0, 0], down = [0, 1, 0], slices = 7, aside = 0, shifted = 0 } = options;
  const normal = cross(across, down);
  const raw = { rows: ROWS, columns: COLUMNS, samples: 1, bitsAllocated: 16, bitsStored: 12 };
  const files = Array.from({ length: slices }, (_, z) => {
    const values = Uint16Array.from({ length: ROWS * COLUMNS }, (_, i) => {
      const [row, column] = [Math.floor(i / COLUMNS), i % COLUMNS];
      return 1024 - 160 + ((z * 61 + row * 29 + column * 17) % 400);
    });
    const pixels = new Uint8Array(values.buffer);
    const along = z * APART + (z === slices >> 1 ? shifted : 0);
    const position = plus(ORIGIN, times(normal, along), times(down, z * aside));
    return dicomFile({
      attributes: attributesOf(
        { ...raw, signed: false, data: pixels },
        {
          SOPClassUID: CT,
          SOPInstanceUID: `1.2.3.9.${z + 1}`,
          StudyInstanceUID: "1.2.3",
          SeriesInstanceUID: "1.2.3.9",
          FrameOfReferenceUID: "1.2.5",
          PatientID: "Nobody",
          PatientName: "Nobody",
          Modality: "CT",
          ImageType: "ORIGINAL\\PRIMARY\\AXIAL",
          ImagePositionPatient: text(position),
          ImageOrientationPatient: text([...across, ...down]),
          PixelSpacing: "1.3\\0.9",
          SliceThickness: "2",
          RescaleSlope: "1",
          RescaleIntercept: "-1024",
          ...options.attributes,
        },
      ),
      pixels,
    });
  });
  return options.reversed === true ? files.reverse() : files;
}

export function writeFiles(folder: string, files: readonly Uint8Array[]): string {
  mkdirSync(folder, { recursive: true });
  files.forEach((file, i) => {
    writeFileSync(join(folder, `${String(i).padStart(3, "0")}.dcm`), file);
  });
  return folder;
}

export interface ResultOptions {
  model?: TestModel;
  form?: SegmentationType;
  change?: (manifest: Manifest) => unknown;
  /** The slices one by one, as one result. */
  group?: "series";
}

/** A result of an image in a folder of its own, and the path of its receipt. */
export async function resultOf(
  engine: Engine,
  input: string,
  outputFolder: string,
  { model = "volume", form = "binary", change, group }: ResultOptions = {},
): Promise<{ receipt: string; seg: string }> {
  mkdirSync(outputFolder, { recursive: true });
  const models = join(outputFolder, "models");
  mkdirSync(models);
  const entry = await loadTestModel(engine, models, model, change);
  const answer = await infer(
    {
      requestId: "r",
      priority: "routine",
      cancelId: 1,
      inputPath: input,
      outputFolder,
      outputs: ["seg"],
      roots: { input: undefined, output: undefined },
      ...(group === undefined ? {} : { group }),
    },
    { engine, models: [entry], forms: { ...RESULT_FORMS, segmentationType: form } },
  );
  const seg = answer.models[0]!.outputs.find(({ path }) => path.endsWith(".seg.dcm"))!.path;
  return { receipt: answer.receipt_path, seg };
}

/**
 * Runs `radserve export` with a state directory of its own; as root, without the right to write
 * where root's mode bits say no.
 */
export function runExport(state: string, ...words: string[]) {
  const env = { ...process.env, RADSERVE_STATE_DIR: state };
  const main = join(process.cwd(), "dist/src/main.js");
  const lessened = isRoot ? ["--bounding-set=-all"] : [];
  const all = [...lessened, process.execPath, main, "export", ...words];
  const { status, stdout, stderr } = spawnSync("setpriv", all, {
    encoding: "utf8",
    env,
    timeout: LONGEST_WAIT_MS,
  });
  return { status, stdout, text: stdout + stderr };
}
