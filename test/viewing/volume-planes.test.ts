/**
 * Planes across the slices of a volume, against values that numpy gave: `v = 100 k + 10 r + c` in
 * slices, rows, columns.
 */
import t, { type Test } from "tap";
import { MemoryPlaces, ProcessMemory } from "../../src/base/process-memory.js";
import { openInput } from "../../src/files/guarded-paths.js";
import { ANY_STACK, type Image } from "../../src/images/image.js";
import { readInput } from "../../src/inference/read-input.js";
import type { Receipt } from "../../src/results/receipt/receipt.js";
import type { FrameFacts } from "../../src/features/viewer/messages.js";
import { sectionAt, sectionFacts, VolumePlanes } from "../../src/features/viewer/volume-planes.js";
import type { Attributes } from "../support/dicom.js";
import { failure } from "../support/expect.js";
import { folderOf, multiFrame, slice } from "../support/series.js";

const [ROWS, COLUMNS, SLICES] = [4, 6, 3];

const pixelsOf = (k: number): Uint8Array =>
  new Uint8Array(
    Int16Array.from(
      { length: ROWS * COLUMNS },
      (_, i) => 100 * k + 10 * Math.floor(i / COLUMNS) + (i % COLUMNS),
    ).buffer,
  );

/** 0.8 mm a column, 0.5 mm a row, 3 mm a slice. */
const stack = (moreOf: (k: number) => Attributes = () => ({}), slices = SLICES): Uint8Array[] =>
  Array.from({ length: slices }, (_, k) =>
    slice({
      z: 3 * k,
      frames: [pixelsOf(k)],
      attributes: { WindowCenter: "100", WindowWidth: "300", ...moreOf(k) },
    }),
  ).reverse();

const memory = (mebibytes = 64) =>
  new ProcessMemory(new MemoryPlaces(1, mebibytes * 2 ** 20).take());

/** The receipt's part that tells the image, and how it is read. */
async function sourceOf(t: Test, files: Uint8Array[]): Promise<{ receipt: Receipt; image: Image }> {
  const folder = folderOf(t, files);
  const opened = await openInput(files.length === 1 ? `${folder}/0.dcm` : folder, undefined);
  t.teardown(() => opened.close());
  const image = await readInput(opened, undefined, { tolerance: ANY_STACK });
  const slices = image.series?.slices.map(({ fileSha256 }) => ({ file_sha256: fileSha256 }));
  const source = {
    file_sha256: image.source.fileSha256,
    ...(slices === undefined ? {} : { slices }),
  };
  return { receipt: { source } as unknown as Receipt, image };
}

async function planeOf(
  t: Test,
  files: Uint8Array[],
  index: "row" | "column",
  at: number,
): Promise<FrameFacts> {
  const { receipt, image } = await sourceOf(t, files);
  const known = await new VolumePlanes(memory()).known("/in", receipt, (use) => use(image));
  return sectionFacts(known, sectionAt(known, index, at));
}

function valuesOf({ values }: FrameFacts): number[] {
  const { buffer } = Uint8Array.from(Buffer.from(values?.base64 ?? "", "base64"));
  const stored = values?.type === "float32" ? new Float32Array(buffer) : new Int16Array(buffer);
  return Array.from(stored, (value) => value * (values?.slope ?? 0) + (values?.intercept ?? 0));
}

t.test("of axial slices", async (t) => {
  const coronal = await planeOf(t, stack(), "row", 2);
  t.same(
    valuesOf(coronal),
    [210, 211, 212, 213, 214, 215, 110, 111, 112, 113, 114, 115, 10, 11, 12, 13, 14, 15],
  );
  t.match(coronal, {
    rows: 3,
    columns: 6,
    pixel_aspect: 3 / 0.8,
    spacing: [3, 0.8],
    unit: "HU",
    inverted: false,
    sides: { left: "R", right: "L", top: "H", bottom: "F" },
    position: [-10, -19.5, 6],
    window: { center: 100, width: 300, exact: false },
    instance_number: null,
    patient_id: "Nobody",
    across: {
      name: "coronal",
      right: { along: "column", reversed: false },
      down: { along: "slice", reversed: true },
    },
  });
  const sagittal = await planeOf(t, stack(), "column", 5);
  t.same(valuesOf(sagittal), [204, 214, 224, 234, 104, 114, 124, 134, 4, 14, 24, 34]);
  t.match(sagittal, {
    rows: 3,
    columns: 4,
    pixel_aspect: 6,
    spacing: [3, 0.5],
    across: { name: "sagittal" },
    sides: { left: "A", right: "P", top: "H", bottom: "F" },
  });
});

t.test("of sagittal slices, from the left to the right", async (t) => {
  const sagittal = (k: number): Attributes => ({
    ImageOrientationPatient: "0\\1\\0\\0\\0\\-1",
    ImagePositionPatient: `${20 - 3 * k}\\-5\\9`,
  });
  const axial = await planeOf(t, stack(sagittal), "row", 2);
  t.same(
    valuesOf(axial),
    [210, 110, 10, 211, 111, 11, 212, 112, 12, 213, 113, 13, 214, 114, 14, 215, 115, 15],
  );
  t.match(axial, {
    rows: 6,
    columns: 3,
    spacing: [0.8, 3],
    across: { name: "axial" },
    sides: { left: "R", right: "L", top: "A", bottom: "P" },
  });
  const coronal = await planeOf(t, stack(sagittal), "column", 5);
  t.same(valuesOf(coronal), [204, 104, 4, 214, 114, 14, 224, 124, 24, 234, 134, 34]);
  t.match(coronal, {
    across: { name: "coronal" },
    sides: { left: "R", right: "L", top: "H", bottom: "F" },
  });
});

t.test(
  "of oblique slices they are called so, with two letters where they are turned",
  async (t) => {
    // Turned by 30 degrees about the patient's long axis
    const [cos, sin] = [Math.sqrt(3) / 2, 0.5];
    const turned = { ImageOrientationPatient: `${cos}\\${sin}\\0\\${-sin}\\${cos}\\0` };
    t.match(
      await planeOf(
        t,
        stack(() => turned),
        "row",
        1,
      ),
      {
        across: { name: "oblique coronal" },
        sides: { left: "RA", right: "LP", top: "H", bottom: "F" },
      },
    );
  },
);

t.test("slices with rescales of their own give their values, and not what is stored", async (t) => {
  const pet = await planeOf(
    t,
    stack((k) => ({ RescaleSlope: String(2 ** k), Modality: "PT" })),
    "row",
    2,
  );
  t.equal(pet.values?.type, "float32");
  t.same(
    valuesOf(pet),
    [840, 844, 848, 852, 856, 860, 220, 222, 224, 226, 228, 230, 10, 11, 12, 13, 14, 15],
  );
});

t.test("frames of one file, in the order of their places", async (t) => {
  const enhanced = await planeOf(t, [multiFrame([6, 0, 3])], "row", 1);
  t.same(
    valuesOf(enhanced),
    [0, 2, 1].flatMap((frame) => new Array<number>(COLUMNS).fill(frame)),
  );
});

t.test(
  "what is no straight, whole and even volume of grey values has none, and it is said why",
  async (t) => {
    const at = (place: (k: number) => [x: number, y: number, z: number]) =>
      stack((k) => ({ ImagePositionPatient: place(k).join("\\") }), 5);
    const cases: [files: Uint8Array[], error: object][] = [
      [at((k) => [0, k, 3 * k]), { code: "series_invalid", message: /gantry was tilted/ }],
      [
        at((k) => [0, 0, k < 3 ? 3 * k : 3 * k + 3]),
        { code: "series_invalid", message: /1 is missing/ },
      ],
      [[multiFrame([0, 3, 7, 11])], { code: "series_invalid", message: /at even distances/ }],
      [[multiFrame([0])], { code: "series_invalid", message: /at least two slices/ }],
    ];
    for (const [files, error] of cases) t.match(await failure(planeOf(t, files, "row", 1)), error);
    t.match(await failure(planeOf(t, stack(), "row", 5)), {
      code: "bad_request",
      message: /from 1 to 4/,
    });
    t.match(await failure(planeOf(t, stack(), "column", 7)), {
      code: "bad_request",
      message: /from 1 to 6/,
    });
  },
);

t.test(
  "other slices than the receipt names are not shown, and a volume is read once",
  async (t) => {
    const { receipt, image } = await sourceOf(t, stack());
    const planes = new VolumePlanes(memory());
    let reads = 0;
    const open = <T>(use: (image: Image) => Promise<T>) => {
      reads += 1;
      return use(image);
    };
    const first = await planes.known("/in", receipt, open);
    t.equal(await planes.known("/in", receipt, open), first);
    t.equal(reads, 1);
    await planes.known("/elsewhere", receipt, open);
    t.equal(reads, 2, "a path that somebody else may read is another");
    const { image: other } = await sourceOf(
      t,
      stack(() => ({ WindowWidth: "20" })),
    );
    const changed = await failure(planes.known("/in", receipt, (use) => use(other)));
    t.match(changed, { code: "result_changed" });
  },
);

t.test(
  "a volume without room in memory is refused, and one that is left gives its room back",
  async (t) => {
    const slices = stack();
    const { receipt, image } = await sourceOf(t, slices);
    const tiny = new ProcessMemory(new MemoryPlaces(1, 2 ** 16).take());
    const refused = await failure(
      new VolumePlanes(tiny).known("/in", receipt, (use) => use(image)),
    );
    t.match(refused, { code: "overloaded", message: /1 MiB in memory/ });
    const places = new MemoryPlaces(1, 2 ** 20);
    const planes = new VolumePlanes(new ProcessMemory(places.take()));
    for (const path of ["/a", "/b", "/c", "/d", "/e", "/f"])
      await planes.known(path, receipt, (use) => use(image));
    t.equal(places.bytes, 2 ** 16, "one at a time");
  },
);
