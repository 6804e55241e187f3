/**
 * Tilted and incomplete stacks for models that take them: what the network sees, and where its
 * masks lie.
 */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import t, { type Test } from "tap";
import { sha256 } from "../../src/files/durable-files.js";
import { infer } from "../../src/inference/infer-image.js";
import {
  inSourceSlices,
  mapsInSourceSlices,
  straightened,
  straightOf,
} from "../../src/models/straighten.js";
import { assemble } from "../../src/images/dicom/volume.js";
import { readImage } from "../../src/images/read-image.js";
import { valueReader } from "../../src/images/stored-values.js";
import { modelsCanary } from "../../src/commands/models/canary.js";
import type { Manifest } from "../../src/manifest/manifest.js";
import type { Plane } from "../../src/engine/types.js";
import { encodeNpy } from "../../src/engine/npy.js";
import { receiptSchema } from "../../src/results/receipt/receipt.js";
import { failure } from "../support/expect.js";
import { ADDON, needs } from "../support/needs.js";
import { engine, modelsOf } from "../support/real-engine.js";
import { makePlace, radserve } from "../support/server.js";
import { folderOf, readFolder, slice } from "../support/series.js";
import { writeTestModel } from "../support/test-models.js";
import { plane } from "../support/tiny-models.js";
import { writeVolumeModel } from "../support/volume-model.js";

const ANY = { tiltDegrees: 45, missing: 9 };

/** Facts of slices 2 mm apart that go `aside` mm along the rows' index from one to the next. */
const facts = (places: readonly number[], aside: number) =>
  places.map((place) => ({
    format: plane(4, 6).format,
    plane: {
      position: [-10, -20 + place * aside, place * 2] as [number, number, number],
      orientation: [1, 0, 0, 0, 1, 0] as [number, number, number, number, number, number],
    },
    spacing: { row: 0.5, column: 0.8, patient: true } as never,
  }));

t.test("a tilted stack becomes straight by whole pixels, and goes back to the pixel", (t) => {
  for (const sign of [1, -1]) {
    const volume = assemble(facts([0, 1, 2, 3], sign), ANY);
    t.ok(Math.abs((volume.flaws?.tiltDegrees ?? 0) - 26.565) < 0.001);
    const planes = [0, 1, 2, 3].map((k) => {
      const made = plane(4, 6);
      const values = new Int16Array(24).fill(5);
      // A rod along the normal: at one place of the patient, 2 rows off from slice to slice.
      const row = sign > 0 ? 3 - 2 * k : 2 * k;
      if (row >= 0 && row < 4) values[row * 6 + 2] = 100 + k;
      made.data = new Uint8Array(values.buffer);
      return made;
    });
    const { format } = planes[0]!;
    const straight = straightOf(volume, format)!;
    t.match(straight, { slices: 4, rows: 10, columns: 6 });
    t.equal(straight.geometry.origin[1], sign > 0 ? -20 : -23);
    const wide = straightened(planes, straight);
    const rod = wide.map(({ data }, k) => {
      const values = new Int16Array(Uint8Array.from(data).buffer);
      return values.indexOf(100 + k);
    });
    t.strictSame(
      rod.slice(0, 2),
      sign > 0 ? [20, 20] : [38, 38],
      "one row and column in all slices",
    );
    t.strictSame(wide[0]!.interpretation.padding, { from: -32768, to: -32768 });
    const beside = new Int16Array(Uint8Array.from(wide[0]!.data).buffer).filter(
      (v) => v === -32768,
    );
    t.equal(beside.length, 6 * 6, "the rest is padding");
    // A mask of what is 100 or more, and one of everything: each voxel goes back to its pixel.
    const mask = Uint8Array.from(
      wide.flatMap(({ data }) =>
        Array.from(new Int16Array(Uint8Array.from(data).buffer), (v) =>
          v >= 100 ? 1 : v === -32768 ? 2 : 0,
        ),
      ),
    );
    const [back] = inSourceSlices(
      [
        {
          kind: "segmentation",
          tensor: "y",
          slices: 4,
          rows: 10,
          columns: 6,
          overlapping: false,
          mask,
          counts: [2, 144],
        },
      ],
      straight,
      format,
    );
    t.ok(back?.kind === "segmentation");
    if (back?.kind !== "segmentation") return;
    t.strictSame(back.counts, [2, 0], "nothing of what lies beside the slices comes back");
    t.strictSame(
      Array.from(back.mask),
      planes.flatMap(({ data }) =>
        Array.from(new Int16Array(data.buffer), (v) => (v >= 100 ? 1 : 0)),
      ),
    );
  }
  t.end();
});

t.test("missing slices are the nearest that is there, and count for nothing", (t) => {
  const volume = assemble(facts([0, 1, 4, 5], 0), ANY);
  t.match(volume.flaws, { missing: 2, places: [0, 1, 4, 5], tiltDegrees: 0 });
  t.equal(volume.geometry.sliceSpacing, 2);
  const planes = [1, 2, 3, 4].map((value) => {
    const made = plane(4, 6);
    made.data = new Uint8Array(new Int16Array(24).fill(value).buffer);
    return made;
  });
  const straight = straightOf(volume, planes[0]!.format)!;
  const seen = straightened(planes, straight).map(({ data }) => Buffer.from(data).readInt16LE(0));
  t.strictSame(seen, [1, 2, 2, 3, 3, 4]);
  const mask = Uint8Array.from({ length: 6 * 24 * 2 }, (_, i) => (i < 6 * 24 ? 1 : 0));
  const [back] = inSourceSlices(
    [
      {
        kind: "segmentation",
        tensor: "y",
        slices: 6,
        rows: 4,
        columns: 6,
        overlapping: true,
        mask,
        counts: [144, 0],
        fractions: mask.map((v) => v * 9),
      },
    ],
    straight,
    planes[0]!.format,
  );
  t.match(back, { counts: [96, 0], slices: 4 });
  t.ok(
    back?.kind === "segmentation" && back.fractions?.length === 2 * 96 && back.fractions[95] === 9,
  );
  t.end();
});

t.test("a stack that is bent, too tilted or lacks too much is refused as ever", (t) => {
  const reason = (work: () => unknown) => {
    try {
      work();
    } catch (error) {
      return (error as { details?: { reason?: string } }).details?.reason;
    }
    return undefined;
  };
  t.equal(
    reason(() => assemble(facts([0, 1, 2], 1))),
    "tilt",
  );
  t.equal(
    reason(() => assemble(facts([0, 1, 2], 1), { tiltDegrees: 26, missing: 0 })),
    "tilt",
  );
  t.equal(
    reason(() => assemble(facts([0, 1, 2], 1), { tiltDegrees: 27, missing: 0 })),
    undefined,
  );
  const bent = facts([0, 1, 2, 3], 1);
  bent[1]!.plane.position[1] += 0.3;
  t.equal(
    reason(() => assemble(bent, ANY)),
    "tilt",
  );
  t.equal(
    reason(() => assemble(facts([0, 1, 4, 5], 0), { tiltDegrees: 45, missing: 1 })),
    "gap",
  );
  const odd = facts([0, 1, 2, 4], 0);
  odd[3]!.plane.position[2] = 7.5;
  t.equal(
    reason(() => assemble(odd, ANY)),
    "uneven_spacing",
    "a gap that is no whole number of slices",
  );
  t.end();
});

t.test("every stored value in use leaves none to fill with", (t) => {
  const planes = [0, 1].map(() => {
    const made = plane(4, 6);
    made.data = new Uint8Array(
      Int16Array.from({ length: 24 }, (_, i) => (i === 0 ? -32768 : 32767)).buffer,
    );
    return made;
  });
  const straight = straightOf(assemble(facts([0, 1], 1), ANY), planes[0]!.format)!;
  t.throws(() => straightened(planes, straight), { code: "series_invalid" });
  const padded = planes.map((p) => ({
    ...p,
    interpretation: { ...p.interpretation, padding: { from: -32768, to: -32768 } },
  }));
  t.equal(Buffer.from(straightened(padded, straight)[0]!.data).readInt16LE(5 * 6 * 2), -32768);
  t.end();
});

t.test("padding that no pixel can hold is not what is filled in", (t) => {
  const stored12 = { bitsStored: 12, highBit: 11 };
  const filled = (
    padding: { from: number; to: number },
    format: Partial<Plane["format"]>,
    values: (i: number) => number = (i) => i,
  ) => {
    const planes = [0, 1].map(() => {
      const made = plane(4, 6);
      const data = new Uint8Array(Int16Array.from({ length: 24 }, (_, i) => values(i)).buffer);
      const interpretation = { ...made.interpretation, padding };
      return { ...made, data, interpretation, format: { ...made.format, ...format } };
    });
    const straight = straightOf(assemble(facts([0, 1], 1), ANY), planes[0]!.format)!;
    const [first] = straightened(planes, straight);
    return [valueReader(first!.data, first!.format)(5 * 6), first!.interpretation.padding];
  };
  const unsigned12 = { ...stored12, signed: false };
  const marked = (value: number) => [value, { from: value, to: value }];
  const beyond = { from: 63_536, to: 63_536 };
  t.strictSame(filled(beyond, unsigned12), marked(4095), "the value that is free");
  t.strictSame(
    filled(beyond, unsigned12, (i) => i + 1),
    marked(0),
  );
  t.strictSame(filled({ from: -32_768, to: -32_768 }, stored12), marked(-2048));
  t.strictSame(
    filled({ from: -32_768, to: -2000 }, stored12),
    [-2048, { from: -2048, to: -2000 }],
    "as much of a range as there is",
  );
  t.strictSame(filled({ from: 7, to: 3 }, unsigned12), [3, { from: 3, to: 7 }]);
  t.end();
});

t.test("padding of real numbers is one", (t) => {
  for (const [bits, values] of [
    [32, Float32Array],
    [64, Float64Array],
  ] as const)
    for (const value of [-1000.5, NaN]) {
      const planes = [0, 1].map(() => {
        const made = plane(4, 6);
        const padding = { from: value, to: value };
        const stored = { bitsAllocated: bits, bitsStored: bits, highBit: bits - 1, float: true };
        return {
          ...made,
          data: new Uint8Array(new values(24).fill(1).buffer),
          interpretation: { ...made.interpretation, padding },
          format: { ...made.format, ...stored },
        };
      });
      const straight = straightOf(assemble(facts([0, 1], 1), ANY), planes[0]!.format)!;
      const [first] = straightened(planes, straight);
      const read = valueReader(first!.data, first!.format);
      t.strictSame([read(0), read(5 * 6)], [1, value]);
    }
  t.end();
});

t.test("through the whole use-case", { skip: needs(ADDON) }, async (t) => {
  t.teardown(() => engine().close());
  const taking =
    (change: (m: Manifest) => void = () => undefined) =>
    (m: Manifest) => {
      m.accepts.slices = { max_tilt_degrees: 30, max_missing: 1 };
      change(m);
    };
  const models = async (t: Test, ...changes: ((m: Manifest) => void)[]) => {
    const directory = t.testdir({});
    changes.forEach((change, i) => {
      writeVolumeModel(directory, `model-${i}`, change);
    });
    const set = await modelsOf(directory);
    t.teardown(() => set.close());
    return set;
  };
  const run = async (t: Test, set: Awaited<ReturnType<typeof models>>, files: Buffer[]) => {
    const outputFolder = mkdtempSync(join(tmpdir(), "radserve-tilted-"));
    t.teardown(() => {
      rmSync(outputFolder, { recursive: true });
    });
    const task = { requestId: "r", priority: "routine" as const, cancelId: 1, outputFolder };
    const roots = { input: undefined, output: undefined };
    const answer = await infer(
      { ...task, roots, inputPath: folderOf(t, files) },
      { engine: engine(), models: set.entries },
    );
    return {
      outputFolder,
      receipt: receiptSchema.parse(JSON.parse(readFileSync(answer.receipt_path, "utf8"))),
    };
  };
  const tilted = (places = [0, 1, 2, 3]) =>
    places.map((k) =>
      slice({
        z: 2 * k,
        fill: k % 2 === 0 ? 150 : 7,
        attributes: { ImagePositionPatient: `-10\\${-20 + k}\\${2 * k}` },
      }),
    );

  await t.test("masks, volumes and the object lie in the source's slices", async (t) => {
    const set = await models(t, taking(), () => undefined);
    const { receipt, outputFolder } = await run(t, set, tilted());
    const [took, refused] = receipt.models;
    t.equal(refused?.status, "not_accepted");
    t.match(
      refused?.reasons,
      [{ code: "series_tilt" }],
      "a model without the field refuses as ever",
    );
    t.match(took?.warnings, [{ code: "tilt_straightened" }]);
    t.match(took?.transforms[0], {
      step: "straighten",
      missing_slices: 0,
      slices: 4,
      rows: 10,
      columns: 6,
    });
    // Two slices of 24 voxels of 0.5 x 0.8 x 2 mm.
    t.match(took?.measurements, [{ value: (2 * 24 * 0.5 * 0.8 * 2) / 1000 }]);
    t.ok(took?.outputs.some(({ path }) => readFileSync(join(outputFolder, path)).length > 0));
  });

  await t.test("commands for models take what the server takes, and see the same", async (t) => {
    const place = makePlace();
    t.teardown(() => place.remove());
    const command = async (...words: string[]) => {
      const told = await radserve(place, ...words, "--json");
      t.equal(told.status, 0, told.stderr);
      return JSON.parse(told.stdout) as unknown;
    };
    const directory = place.environment["RADSERVE_MODELS_DIR"]!;
    writeVolumeModel(directory, "tolerant", taking());
    const model = join(directory, "tolerant");
    writeVolumeModel(directory, "strict", () => undefined);
    const set = await modelsOf(directory);
    t.teardown(() => set.close());
    const series = folderOf(t, tilted());
    const { receipt } = await run(t, set, tilted());
    const took = receipt.models.find(({ name }) => name === "tolerant");
    // The mask of the source's slices: those with a value of 100 or more, and nothing of what was
    // moved.
    const expected = join(place.input, "labels.npy");
    const labels = Uint8Array.from({ length: 4 * 24 }, (_, i) =>
      Math.floor(i / 24) % 2 === 0 ? 1 : 0,
    );
    writeFileSync(expected, encodeNpy({ dtype: "uint8", shape: [4, 4, 6], data: labels }));
    const tried = await command("models", "try", model, series, "--expect", expected);
    t.match(tried, {
      reasons: { length: 0 },
      comparison: { what: "labels", equal: true },
    });
    // A receipt's is over those of all runs of the model; here there was one.
    const { raw_sha256 } = tried as { raw_sha256: string };
    t.equal(sha256(Buffer.from(raw_sha256)), took?.raw_sha256);
    const told = await command("inspect", series);
    t.match(told, {
      models: [
        { name: "strict", accepted: false, reasons: [{ code: "series_tilt" }] },
        {
          name: "tolerant",
          accepted: true,
          transforms: [{ step: "straighten", slices: 4, rows: 10 }],
        },
      ],
    });
    t.match(await command("models", "canary", model, series), { name: "tolerant", canary: Object });
    const refused = await radserve(place, "models", "try", join(directory, "strict"), series);
    t.match(refused, { status: 1, stderr: /tilt/ });
  });

  await t.test("each frame of the segmentation lies where its slice does", async (t) => {
    const directory = mkdtempSync(join(tmpdir(), "radserve-tilted-"));
    t.teardown(() => {
      rmSync(directory, { recursive: true });
    });
    const folder = writeTestModel(directory, "volume");
    const file = join(folder, "model.json");
    const manifest = JSON.parse(readFileSync(file, "utf8")) as Manifest;
    Object.assign(manifest.accepts, { modality: ["CT"], slices: { max_tilt_degrees: 30 } });
    writeFileSync(file, JSON.stringify(manifest));
    const even = [0, 1, 2, 3].map((k) => slice({ z: 2 * k, fill: 150 }));
    await modelsCanary(folder, await readFolder(t, folderOf(t, even)), {
      engine: engine(),
      providers: ["cpu"],
    });
    const set = await modelsOf(directory);
    t.teardown(() => set.close());
    const { receipt, outputFolder } = await run(t, set, tilted());
    const seg = receipt.models[0]?.outputs.find(({ path }) => path.endsWith(".seg.dcm"));
    const image = await readImage(readFileSync(join(outputFolder, seg?.path ?? "none")));
    t.ok(image.frameCount >= 4);
    const positions = Array.from({ length: image.frameCount }, (_, f) =>
      String(image.plane(f)?.position),
    );
    t.strictSame(
      [...new Set(positions)],
      [0, 1, 2, 3].map((k) => String([-10, -20 + k, 2 * k])),
    );
  });

  await t.test("one missing slice is a caveat, two are refused", async (t) => {
    const set = await models(t, taking());
    const { receipt } = await run(t, set, tilted([0, 1, 3, 4]));
    t.match(receipt.models[0]?.warnings, [
      { code: "tilt_straightened" },
      { code: "missing_slices_filled" },
    ]);
    const refused = await failure(run(t, set, tilted([0, 1, 4, 5])));
    t.match(refused, { code: "series_invalid", details: { reason: "gap", missing: 2 } });
  });

  await t.test("without the field it is refused as a series", async (t) => {
    const set = await models(t, () => undefined);
    const refused = await failure(run(t, set, tilted()));
    t.match(refused, { code: "series_invalid", details: { reason: "tilt" } });
  });
});

t.test("maps of the straight stack go back to the source's slices", (t) => {
  // Slices at 0, 1 and 3 of four, each 2 rows further on
  const straight = straightOf(assemble(facts([0, 1, 3], 1), ANY), { rows: 4, columns: 6 })!;
  const { slices, rows, columns } = straight;
  t.same([slices, rows, columns], [4, 10, 6]);
  // Each value tells its channel, slice, row and column
  const told = Float32Array.from({ length: 2 * slices * rows * columns }, (_, at) => at);
  const maps = { name: "p", dtype: "float32" as const, shape: [2, slices, rows, columns] };
  const own = mapsInSourceSlices({ ...maps, data: new Uint8Array(told.buffer) }, straight, {
    rows: 4,
    columns: 6,
  });
  t.same([own.name, own.dtype, own.shape], ["p", "float32", [2, 3, 4, 6]]);
  const wanted = [0, 1].flatMap((channel) =>
    [0, 1, 3].flatMap((slice) =>
      Array.from({ length: 24 }, (_, at) => {
        const row = 2 * slice + Math.floor(at / 6);
        return ((channel * 4 + slice) * 10 + row) * 6 + (at % 6);
      }),
    ),
  );
  t.same([...new Float32Array(own.data.slice().buffer)], wanted);
  t.end();
});
