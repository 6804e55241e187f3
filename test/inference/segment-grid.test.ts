/**
 * Segments in the grid of the network, through the whole use-case, over an oblique series whose
 * spacings, order of axes and directions are none of the network's. What the objects hold is read
 * by dcmjs and computed anew here: the places from the manifest's spacing and the volume's middle,
 * the labels from the tensor that the graph gave.
 */
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import dcmjs, { type DictElement } from "dcmjs";
import t, { type Test } from "tap";
import type { Tensor } from "../../src/base/tensor.js";
import { openInput } from "../../src/files/guarded-paths.js";
import { volumeOf } from "../../src/images/dicom/volume.js";
import type { Image } from "../../src/images/image.js";
import { infer } from "../../src/inference/infer-image.js";
import { readInput } from "../../src/inference/read-input.js";
import { replay } from "../../src/inference/replay.js";
import type { Manifest, OutputKind } from "../../src/manifest/manifest.js";
import type { ModelEntry } from "../../src/models/entry.js";
import { RESULT_FORMS, type SegmentationType } from "../../src/results/forms.js";
import { receiptSchema, type Receipt } from "../../src/results/receipt/receipt.js";
import { checkFiles } from "../../src/results/commit/verify.js";
import { planeOf } from "../../src/results/picture/draw-result.js";
import { ADDON, needs } from "../support/needs.js";
import {
  cross,
  dot,
  GRID_INPUT,
  NETWORK,
  NORMAL,
  obliqueSeries,
  plus,
  SOURCE,
  times,
  voxelAt,
  type Vector,
} from "../support/oblique.js";
import { engineWithFolder } from "../support/real-engine.js";
import { multiFrame } from "../support/series.js";
import { loadTestModel, type TestModel } from "../support/test-models.js";

type Item = Record<string, DictElement>;
const itemsOf = (item: Item, tag: string) => (item[tag]?.Value ?? []) as Item[];
const numbersOf = (item: Item | undefined, tag: string) => (item?.[tag]?.Value ?? []) as number[];
const textOf = (item: Item | undefined, tag: string) => item?.[tag]?.Value[0] as string | undefined;

/** A segmentation as dcmjs reads it. */
function read(path: string) {
  const { dict } = dcmjs.data.DicomMessage.readFile(Uint8Array.from(readFileSync(path)).buffer);
  const [rows = 0] = numbersOf(dict, "00280010");
  const [columns = 0] = numbersOf(dict, "00280011");
  const [bits = 0] = numbersOf(dict, "00280100");
  const [shared] = itemsOf(dict, "52009229");
  const [measures] = itemsOf(shared!, "00289110");
  const [row = 0, column = 0] = numbersOf(measures, "00280030");
  const cosines = numbersOf(itemsOf(shared!, "00209116")[0], "00200037");
  const data = new Uint8Array(dict["7FE00010"]!.Value[0] as ArrayBuffer);
  const value = (at: number) => (bits === 8 ? data[at]! : (data[at >> 3]! >> (at & 7)) & 1);
  const frames = itemsOf(dict, "52009230").map((groups, frame) => ({
    segment: numbersOf(itemsOf(groups, "0062000A")[0], "0062000B")[0],
    first: numbersOf(itemsOf(groups, "00209113")[0], "00200032") as Vector,
    derivation: groups["00089124"],
    value: (y: number, x: number) => value((frame * rows + y) * columns + x),
  }));
  const across = cosines.slice(0, 3) as Vector;
  const down = cosines.slice(3) as Vector;
  const place = (first: Vector, y: number, x: number) =>
    plus(first, times(across, x * column), times(down, y * row));
  return { dict, rows, columns, frames, across, down, row, column, measures, place };
}

type Seg = ReturnType<typeof read>;

/**
 * Calls `check` with each voxel of an object: its segment (undefined in a label map), value, and
 * voxel of the tensor.
 */
function forVoxels(
  t: Test,
  seg: Seg,
  check: (segment: number | undefined, value: number, index: number) => boolean,
): void {
  let [wrong, off, seen] = [0, 0, 0];
  const once = new Set<string>();
  for (const { segment, first, value } of seg.frames)
    for (let y = 0; y < seg.rows; y++)
      for (let x = 0; x < seg.columns; x++) {
        const at = voxelAt(seg.place(first, y, x));
        off = Math.max(off, at.off);
        once.add(`${segment} ${at.index}`);
        if (!check(segment, value(y, x), at.index)) wrong++;
        seen++;
      }
  t.ok(off < 1e-6, `each voxel has the centre of one of the network's (${off})`);
  t.equal(once.size, seen, "each voxel is there once");
  t.equal(wrong, 0, "each is what the network decided there");
  const segments = new Set(seg.frames.map(({ segment }) => segment)).size;
  const inside = NETWORK.reduce((product, { content }) => product * content, 1);
  t.equal(seen, segments * inside, "all of the network's voxels within the source, and no other");
}

t.test("segments in the grid of the network", { skip: needs(ADDON) }, async (t) => {
  const { engine, folder } = engineWithFolder(t, "segment-grid");
  const model = (name: TestModel, change: (manifest: Manifest) => void = () => undefined) => {
    const own = join(folder, String(Math.random()).slice(2));
    mkdirSync(own);
    return loadTestModel(engine, own, name, (manifest) => {
      Object.assign(manifest.inputs[0]!, GRID_INPUT);
      for (const output of manifest.outputs)
        if (output.kind === "segmentation") output.segment_grid = "model";
      change(manifest);
    });
  };
  const written = (t: Test, files: readonly Buffer[]) => {
    const input = mkdtempSync(join(tmpdir(), "radserve-oblique-"));
    t.teardown(() => {
      rmSync(input, { recursive: true });
    });
    files.forEach((file, i) => {
      writeFileSync(join(input, `${files.length - i}.dcm`), file);
    });
    return input;
  };
  const imageIn = async (t: Test, input: string) => {
    const opened = await openInput(input, undefined);
    t.teardown(() => opened.close());
    return readInput(opened);
  };
  const run = async (
    t: Test,
    input: string,
    entry: ModelEntry,
    segmentationType: SegmentationType = "binary",
    outputs: OutputKind[] | undefined = ["png", "sr", "seg", "rtstruct"],
  ) => {
    const outputFolder = mkdtempSync(join(tmpdir(), "radserve-grid-out-"));
    t.teardown(() => {
      rmSync(outputFolder, { recursive: true });
    });
    const task = {
      requestId: "r",
      name: "s",
      priority: "routine" as const,
      cancelId: 1,
      inputPath: input,
    };
    const roots = { input: undefined, output: undefined };
    const answer = await infer(
      { ...task, roots, outputFolder, startedAt: "2026-11-25T10:00:00.000Z", outputs },
      { engine, models: [entry], forms: { ...RESULT_FORMS, segmentationType } },
    );
    const receipt = receiptSchema.parse(JSON.parse(readFileSync(answer.receipt_path, "utf8")));
    const own = receipt.models[0]!;
    t.equal(own.status, "succeeded", JSON.stringify(own.error));
    const seg = answer.models[0]!.outputs.find(({ path }) => path.endsWith(".seg.dcm"))?.path;
    return { receipt, own, outputFolder, seg };
  };
  /** What the graph gives over the series. */
  const rawOf = async (entry: ModelEntry, image: Image): Promise<Tensor> => {
    const { frames, geometry } = volumeOf(image);
    const planes = [];
    for (const frame of frames) planes.push(planeOf(image, frame, await image.frame(frame)));
    const { tensors } = await engine.infer(entry.nativeId!, planes, { geometry, dump: true });
    return tensors!.outputs[0]!;
  };
  const verdicts = async (receipt: Receipt, outputFolder: string) =>
    (await checkFiles(outputFolder, receipt)).filter(({ verdict }) => verdict !== "ok");

  await t.test("bit planes of labels that exclude each other, and a label map", async (t) => {
    const input = written(t, obliqueSeries());
    const entry = await model("volume");
    const image = await imageIn(t, input);
    const raw = await rawOf(entry, image);
    t.strictSame(raw.shape, [1, 1, ...NETWORK.map(({ side }) => side)]);
    for (const form of ["binary", "labelmap"] as const) {
      const { receipt, own, outputFolder, seg: path } = await run(t, input, entry, form);
      const seg = read(path!);
      const wanted = (index: number, segment: number | undefined) =>
        segment === undefined ? raw.data[index]! : Number(raw.data[index] === segment);
      forVoxels(t, seg, (segment, value, index) => value === wanted(index, segment));
      const counts = [0, 0, 0];
      const inside = new Set<number>();
      const slices = form === "binary" ? seg.frames.length / 2 : seg.frames.length;
      for (const { first } of seg.frames.slice(0, slices))
        for (let y = 0; y < seg.rows; y++)
          for (let x = 0; x < seg.columns; x++) inside.add(voxelAt(seg.place(first, y, x)).index);
      for (const index of inside) counts[raw.data[index]!]!++;
      t.ok(
        counts.every((count) => count > 100),
        `enough of each label: ${counts.join(", ")}`,
      );

      t.equal(textOf(seg.dict, "00200052"), "1.2.5", "the source's frame of reference");
      t.ok(
        seg.frames.every(({ derivation }) => derivation === undefined),
        "no frame of the source is its",
      );
      const [referenced] = itemsOf(seg.dict, "00081115");
      t.equal(textOf(referenced, "0020000E"), "1.2.3.9");
      t.equal(itemsOf(referenced!, "0008114A").length, SOURCE.slices);
      const sources = itemsOf(seg.dict, "00082112");
      t.equal(new Set(sources.map((item) => textOf(item, "00081155"))).size, SOURCE.slices);
      t.ok(
        sources.every((item) => textOf(item, "0028135A") === "NO"),
        "not pixel by pixel",
      );
      t.ok(
        Math.abs(dot(cross(seg.across, seg.down), NORMAL) - 1) < 1e-9,
        "frames are parallel to slices",
      );
      t.ok(Math.abs(numbersOf(seg.measures, "00180050")[0]! - 1.7) < 1e-9, "SliceThickness");
      t.ok(Math.abs(numbersOf(seg.measures, "00180088")[0]! - 1.7) < 1e-9, "SpacingBetweenSlices");

      const grid = own.segmentation_grid!;
      t.match(grid, { slices: slices, rows: seg.rows, columns: seg.columns, slice_spacing: 1.7 });
      t.strictSame(
        grid.segments.map(({ voxels }) => voxels),
        counts.slice(1),
      );
      for (const { voxels, ml } of grid.segments)
        t.ok(Math.abs(ml - (voxels * 1.2 * 1.7 * 1.1) / 1000) < 1e-9);
      t.strictSame(await verdicts(receipt, outputFolder), []);
      const again = await replay({ receipt, image, models: [entry], engine });
      t.ok(
        again.every(({ verdict }) => verdict === "ok"),
        JSON.stringify(again),
      );
      t.match(
        readFileSync(
          join(outputFolder, own.outputs.find(({ path }) => path.endsWith("sr.dcm"))!.path),
        ).toString("latin1"),
        /Segments lie in the grid of the network/,
      );
    }
  });

  await t.test("labels that may overlap, and probabilities", async (t) => {
    const input = written(t, obliqueSeries());
    const image = await imageIn(t, input);
    const [bright, dark] = [0.6, 0.55];
    for (const type of ["binary", "fractional"] as const) {
      const entry = await model("volume-fractional", ({ outputs }) => {
        for (const output of outputs)
          if (output.kind === "segmentation") output.segment_type = type;
      });
      const raw = await rawOf(entry, image);
      const values = new Float32Array(raw.data.slice().buffer);
      const voxels = values.length / 2;
      const { receipt, own, outputFolder, seg: path } = await run(t, input, entry);
      const seg = read(path!);
      let near = 0;
      forVoxels(t, seg, (segment, value, index) => {
        const probability = values[(segment! - 1) * voxels + index]!;
        if (type === "binary")
          return value === Number(probability >= Math.fround([bright, dark][segment! - 1]!));
        if (value > 0 && value < 255) near++;
        return Math.abs(value - 255 * probability) <= 0.5 + 1e-4;
      });
      if (type === "fractional") t.ok(near > 1000, "most are neither 0 nor 1");
      const reached = (label: number, threshold: number) => {
        const inside = NETWORK.map(({ begin, content, side }) => ({
          begin,
          end: begin + content,
          side,
        }));
        const [d, h, w] = inside;
        let count = 0;
        for (let i = d!.begin; i < d!.end; i++)
          for (let j = h!.begin; j < h!.end; j++)
            for (let k = w!.begin; k < w!.end; k++)
              if (
                values[label * voxels + (i * h!.side + j) * w!.side + k]! >= Math.fround(threshold)
              )
                count++;
        return count;
      };
      t.strictSame(
        own.segmentation_grid!.segments.map(({ label, voxels }) => [label, voxels]),
        [
          ["bright", reached(0, bright)],
          ["dark", reached(1, dark)],
        ],
      );
      t.strictSame(await verdicts(receipt, outputFolder), []);
    }
  });

  await t.test("what is said of the source's grid does not change", async (t) => {
    const input = written(t, obliqueSeries());
    const there = await run(t, input, await model("volume"));
    const plain = await model("volume", ({ outputs }) => {
      for (const output of outputs) if (output.kind === "segmentation") delete output.segment_grid;
    });
    const here = await run(t, input, plain);
    t.strictSame(there.own.findings, here.own.findings);
    t.strictSame(there.own.measurements, here.own.measurements);
    t.equal(there.own.raw_sha256, here.own.raw_sha256);
    t.equal(here.own.segmentation_grid, undefined);
    const picture = ({ own }: typeof here) =>
      own.outputs.find(({ path }) => path.endsWith(".png"))?.sha256;
    t.equal(picture(there), picture(here));
    const own = read(here.seg!);
    t.strictSame([own.frames.length, own.rows, own.columns], [18, SOURCE.rows, SOURCE.columns]);
    const [finding] = here.own.findings;
    t.not(
      there.own.segmentation_grid!.segments[0]!.voxels,
      finding!.volume!.voxels,
      "another grid",
    );
  });

  await t.test("verify sees another grid, another count, and a shifted object", async (t) => {
    const input = written(t, obliqueSeries());
    const { receipt, own, outputFolder, seg } = await run(t, input, await model("volume"));
    const grid = own.segmentation_grid!;
    const details = async (changed: Partial<typeof grid>) => {
      const models = [{ ...own, segmentation_grid: { ...grid, ...changed } }];
      return (await verdicts({ ...receipt, models }, outputFolder)).map(({ detail }) => detail);
    };
    const [first, ...others] = grid.segments;
    const counted = { segments: [{ ...first!, voxels: first!.voxels + 1 }, ...others] };
    t.match(await details(counted), [/its segment grey has not the receipt's \d+ voxels/]);
    const [x, y, z] = grid.image_position_patient as Vector;
    t.match(await details({ image_position_patient: [x + 0.6, y, z] }), [
      "its grid is not the receipt's",
    ]);
    t.match(await details({ slice_spacing: 1.8 }), ["its grid is not the receipt's"]);
    t.match(await details({ rows: grid.rows + 1 }), ["its grid is not the receipt's"]);
    t.ok(seg);
  });

  await t.test("a multi-frame source is named as a whole", async (t) => {
    const input = join(written(t, [multiFrame([40, 44, 48, 52])]), "1.dcm");
    const entry = await model("volume", ({ inputs: [first] }) => {
      Object.assign(first!, {
        values: { kind: "window", center: 1, width: 4, function: "LINEAR" },
      });
    });
    const { own, seg: path, receipt, outputFolder } = await run(t, input, entry);
    const seg = read(path!);
    // 16 mm by 1.7 mm are 10 voxels, of which all have their centres within.
    t.match(own.segmentation_grid, { slices: 10, slice_spacing: 1.7 });
    t.equal(seg.frames.length, 2 * 10);
    const sources = itemsOf(seg.dict, "00082112");
    t.equal(sources.length, 1);
    t.equal(sources[0]!["00081160"], undefined, "no frames of its own");
    t.strictSame(await verdicts(receipt, outputFolder), []);
    const again = await replay({
      receipt,
      image: await imageIn(t, input),
      models: [entry],
      engine,
    });
    t.ok(
      again.every(({ verdict }) => verdict === "ok"),
      JSON.stringify(again),
    );
  });

  await t.test("without a frame of reference there is no such SEG, and a warning", async (t) => {
    const input = written(t, obliqueSeries({ FrameOfReferenceUID: undefined }));
    const { own, seg } = await run(t, input, await model("volume"), "binary", undefined);
    t.equal(seg, undefined);
    t.match(own.warnings, [{ code: "output_not_written", message: /no FrameOfReferenceUID/ }]);
    t.ok(
      own.findings.some(({ present }) => present),
      "findings are the source's",
    );
  });
});
