/** Every file of ../shared/dicom behaves as its row in MANIFEST.tsv says; prints the table. */
import { execFile } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import t from "tap";
import { RadserveError, type ErrorCode } from "../../src/base/errors.js";
import type { Image } from "../../src/images/image.js";
import { sha256 } from "../../src/files/durable-files.js";
import { inspectImage, type Inspection } from "../../src/inference/inspection.js";
import { checkHounsfield } from "../../src/models/hounsfield.js";
import { readImage } from "../../src/images/read-image.js";

const folder = resolve("../shared/dicom");
const run = promisify(execFile);

type Row = Record<string, string>;

/** What a file that may be refused has to be refused with. */
const REFUSALS: Record<string, ErrorCode[]> = {
  "no-pixels": ["no_pixel_data"],
  "refuse-or-zero-fill": ["truncated_image"],
  refuse: ["truncated_image", "corrupt_image", "unsupported_transfer_syntax", "unsupported_format"],
  "decode-or-refuse": ["truncated_image", "corrupt_image", "unsupported_transfer_syntax"],
};

function manifest(): Row[] {
  const [head, ...lines] = readFileSync(join(folder, "MANIFEST.tsv"), "utf8").trimEnd().split("\n");
  const names = head!.split("\t");
  return lines.map((line) =>
    Object.fromEntries(line.split("\t").map((value, i) => [names[i]!, value])),
  );
}

interface Outcome {
  /** What was found, for the table. */
  how: string;
  /** Why that is wrong; undefined where it is right. */
  problem?: string;
}

async function judge(row: Row): Promise<Outcome> {
  try {
    const file = join(folder, row.file!);
    const image = await readImage(readFileSync(file));
    const inspection = await inspectImage(image);
    // It is taken when it is asked for, here after all frames were decoded
    if (image.source.fileSha256 !== sha256(readFileSync(file)))
      return { how: "decoded", problem: "the bytes of the file were changed by decoding" };
    if (!row.expect!.startsWith("decode"))
      return { how: "decoded", problem: `should be ${row.expect!}` };
    const problem = differences(row, inspection);
    const exact =
      inspection.first_frame.sha256 === row.ref_frame1_sha256 &&
      [inspection.last_frame.sha256, ""].includes(row.ref_last_frame_sha256 ?? "");
    return { how: exact ? "exact" : "within tolerance", ...(problem === "" ? {} : { problem }) };
  } catch (error) {
    if (!(error instanceof RadserveError)) throw error;
    const allowed = REFUSALS[row.expect!]?.includes(error.code) ?? false;
    return {
      how: error.code,
      ...(allowed ? {} : { problem: `${error.message} (${row.expect!})` }),
    };
  }
}

function differences(row: Row, found: Inspection): string {
  const wrong: string[] = [];
  const same = (name: string, value: number | null, expected: string, tolerance: number) => {
    if (expected !== "" && !(Math.abs((value ?? NaN) - Number(expected)) <= tolerance))
      wrong.push(`${name} is ${value}, not ${expected}`);
  };
  const lossy = row.tolerance !== "exact";
  same("rows", found.rows, row.rows!, 0);
  same("columns", found.columns, row.cols!, 0);
  same("frames", found.frames, row.frames!, 0);
  same("samples", found.samples, row.samples!, 0);
  same("min", found.first_frame.min, row.ref_min!, lossy ? 2 : 1e-6);
  same("max", found.first_frame.max, row.ref_max!, lossy ? 2 : 1e-6);
  same("mean", found.first_frame.mean, row.ref_mean!, lossy ? 0.5 : 1e-5);
  if (!lossy && found.first_frame.sha256 !== row.ref_frame1_sha256)
    wrong.push("first frame differs");
  if (
    !lossy &&
    row.ref_last_frame_sha256 !== "" &&
    found.last_frame.sha256 !== row.ref_last_frame_sha256
  )
    wrong.push("last frame differs");
  return wrong.join("; ");
}

t.test(
  "files of the manifest",
  { skip: existsSync(folder) ? false : `${folder} is absent` },
  async (t) => {
    const counts = new Map<string, number>();
    const table: string[] = [];
    for (const row of manifest()) {
      const { how, problem } = await judge(row);
      t.equal(problem, undefined, row.file!);
      counts.set(how, (counts.get(how) ?? 0) + 1);
      table.push(
        `${row.file!.padEnd(48)}${row.expect!.padEnd(20)}${how}${problem === undefined ? "" : ` WRONG: ${problem}`}`,
      );
    }
    t.comment(table.join("\n"));
    t.comment([...counts].map(([how, count]) => `${how}: ${count}`).join(", "));
  },
);

async function haveDcmtk(): Promise<boolean> {
  try {
    await run("dcmdjpeg", ["--version"]);
    return true;
  } catch {
    return false;
  }
}

/** Largest difference of two frames of equal length, over all samples. */
function largestDifference(a: Uint8Array, b: Uint8Array, bytes: number): number {
  let largest = 0;
  for (let i = 0; i < a.length; i += bytes) {
    const x = bytes === 1 ? a[i]! : a[i]! + a[i + 1]! * 256;
    const y = bytes === 1 ? b[i]! : b[i]! + b[i + 1]! * 256;
    largest = Math.max(largest, Math.abs(x - y));
  }
  return largest;
}

/** Decompressed by DCMTK, colour as coded, and read back by its own plain decoder here. */
async function byDcmtk(file: string, work: string): Promise<Image> {
  const out = join(work, "plain.dcm");
  await run("dcmdjpeg", ["+cn", "+px", file, out]);
  return readImage(readFileSync(out));
}

t.test("no file that holds HU is taken for one that cannot", async (t) => {
  if (!existsSync(folder)) {
    t.comment(`skipped: ${folder} is absent`);
    return;
  }
  let checked = 0;
  for (const { file, expect } of manifest().filter((row) => row.expect!.startsWith("decode"))) {
    const image = await readImage(readFileSync(join(folder, file!))).catch(() => undefined);
    if (image === undefined && expect !== "decode") continue;
    for (let frame = 0; frame < (image?.frameCount ?? 0); frame++) {
      if (image?.interpretation(frame).units !== "HU") continue;
      t.strictSame(checkHounsfield(image, frame, await image.frame(frame)), [], file!);
      checked++;
    }
  }
  t.ok(checked >= 6, `${checked} frames of HU`);
});

t.test("lossy JPEG against DCMTK, every frame within 2", async (t) => {
  const missing = !existsSync(folder)
    ? `${folder} is absent`
    : (await haveDcmtk())
      ? undefined
      : "DCMTK is not installed (apt-get install dcmtk)";
  if (missing !== undefined) {
    t.comment(`skipped: ${missing}`);
    return;
  }
  const work = mkdtempSync(join(tmpdir(), "radserve-decode-"));
  t.teardown(() => rmSync(work, { recursive: true, force: true }));
  const files = manifest()
    .filter((row) => row.tolerance!.startsWith("lossy JPEG:") || row.file!.startsWith("jpeg5"))
    .map((row) => join(folder, row.file!));
  // Spectral selection and full progression, of which the manifest has no sound file
  const slices = join(folder, "ct-series-chest");
  for (const how of ["--encode-spectral", "--encode-progressive"]) {
    const coded = join(work, `${how.slice(9)}.dcm`);
    await run("dcmcjpeg", [how, join(slices, readdirSync(slices)[0]!), coded]);
    files.push(coded);
  }
  for (const file of files) {
    const ours = await readImage(readFileSync(file));
    const theirs = await byDcmtk(file, work);
    let largest = 0;
    for (let frame = 0; frame < ours.frameCount; frame++)
      largest = Math.max(
        largest,
        largestDifference(
          await ours.frame(frame),
          await theirs.frame(frame),
          ours.format.bitsAllocated / 8,
        ),
      );
    t.ok(largest <= 2, `${file}: largest difference ${largest}`);
  }
});
