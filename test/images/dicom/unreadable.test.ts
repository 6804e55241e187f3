/** Folders of slices some of which cannot be read, or that lie there twice. */
import { mkdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { gzipSync } from "node:zlib";
import t, { type Test } from "tap";
import type { RadserveError } from "../../../src/base/errors.js";
import { openInput } from "../../../src/files/guarded-paths.js";
import type { Image } from "../../../src/images/image.js";
import { withoutCopies } from "../../../src/images/dicom/copies.js";
import { seriesFile, type SeriesFile } from "../../../src/images/dicom/series.js";
import { attributed, NameRow } from "../../../src/images/dicom/unreadable.js";
import { readInput, type FolderChoice } from "../../../src/inference/read-input.js";
import {
  attributesOf,
  compress,
  dicomFile,
  imageAttributes,
  picture,
  SYNTAXES,
  type Attributes,
} from "../../support/dicom.js";
import { failure } from "../../support/expect.js";
import { needs } from "../../support/needs.js";
import { folderOf, multiFrame, slice } from "../../support/series.js";

const CASES = resolve("../shared/cases/2026-11-28/inputs");

type Files = Record<string, Uint8Array>;

const stack = (count = 5, more: Attributes = {}): Files =>
  Object.fromEntries(
    Array.from({ length: count }, (_, i) => [
      `IM${i + 1}.dcm`,
      slice({ z: i * 2, attributes: more }),
    ]),
  );

/** A slice whose pixel data is left out, or has no bytes. */
const bare = (attributes: Attributes, meta = true): Buffer =>
  dicomFile({
    meta,
    attributes: attributesOf(
      {
        rows: 4,
        columns: 6,
        samples: 1,
        bitsAllocated: 16,
        bitsStored: 16,
        data: new Uint8Array(),
      },
      {
        SOPClassUID: "1.2.840.10008.5.1.4.1.1.2",
        SOPInstanceUID: "1.2.3.4.77",
        StudyInstanceUID: "1.2.3",
        SeriesInstanceUID: "1.2.3.4",
        Modality: "CT",
        ImagePositionPatient: "-10\\-20\\10",
        ...attributes,
      },
    ),
  });

async function read(t: Test, folder: string, choice: FolderChoice = {}): Promise<Image> {
  const opened = await openInput(folder, undefined);
  t.teardown(() => opened.close());
  return readInput(opened, undefined, choice);
}

const refused = async (t: Test, folder: string, choice?: FolderChoice): Promise<RadserveError> => {
  const error = await failure(read(t, folder, choice));
  t.notMatch(JSON.stringify(error.toObject()), /Nobody|IM\d/, "no names");
  return error;
};

const whole = slice({ z: 10 });
const other = { SeriesInstanceUID: "1.9" };

/** What lies beside five slices, and what of it the refusal counts, or its code. */
const broken: [string, Files, Record<string, number> | string][] = [
  ["an image without pixels", { "IM6.dcm": bare({}) }, { no_pixels: 1 }],
  ["under a name of its own", { x: bare({}) }, { no_pixels: 1 }],
  [
    "pixel data of no bytes",
    { "IM6.dcm": dicomFile({ attributes: attributesFor(), pixels: new Uint8Array() }) },
    { no_pixels: 1 },
  ],
  [
    "an image of another class in the series",
    { "IM6.dcm": bare({ SOPClassUID: "1.2.840.10008.5.1.4.1.1.7", Modality: "OT" }) },
    { no_pixels: 1 },
  ],
  [
    "of a private class, with an image's module",
    { "IM6.dcm": bare({ SOPClassUID: "1.2.840.113619.4.2" }) },
    { no_pixels: 1 },
  ],
  ["no bytes", { "IM6.dcm": new Uint8Array() }, { empty: 1 }],
  [
    "no bytes, at both ends",
    { "IM0.dcm": Buffer.alloc(0), "IM6.dcm": Buffer.alloc(0) },
    { empty: 2 },
  ],
  ["zeros", { "IM6.dcm": Buffer.alloc(whole.length) }, { blank: 1 }],
  [
    "zeros as large as a slice, under another name",
    { swap: Buffer.alloc(whole.length) },
    { blank: 1 },
  ],
  ["all ones", { "IM6.dcm": Buffer.alloc(whole.length, 0xff) }, { blank: 1 }],
  ["zeros of another length", { "IM6.dcm": Buffer.alloc(512) }, { blank: 1 }],
  ["another format", { "IM6.dcm": Buffer.from("<html>not found</html>") }, { other_format: 1 }],
  ["a packed slice", { "IM6.dcm.gz": gzipSync(whole) }, { packed: 1 }],
  ["a slice that is still on its way", { "IM6.dcm.part": Buffer.alloc(0) }, { empty: 1 }],
  ["the preamble alone", { "IM6.dcm": whole.subarray(0, 132) }, { damaged: 1 }],
  ["the preamble alone, under another name", { x: whole.subarray(0, 132) }, { damaged: 1 }],
  ["cut in its meta information", { x: whole.subarray(0, 150) }, "truncated_image"],
  ["cut in group 0008", { x: whole.subarray(0, 260) }, "truncated_image"],
  ["cut in its pixels", { x: whole.subarray(0, -7) }, "truncated_image"],
  [
    "frames that are missing",
    { x: slice({ z: 10, attributes: { NumberOfFrames: "2", SOPInstanceUID: "1.7" } }) },
    "truncated_image",
  ],
];

function attributesFor(): Attributes {
  return imageAttributes({
    SOPClassUID: "1.2.840.10008.5.1.4.1.1.2",
    SeriesInstanceUID: "1.2.3.4",
    Modality: "CT",
  });
}

for (const [name, files, found] of broken)
  t.test(`refused: ${name}`, async (t) => {
    const folder = folderOf(t, { ...stack(), ...files });
    for (const choice of [{}, { uid: "1.2.3.4" }, { grouped: true }]) {
      const error = await refused(t, folder, choice);
      if (typeof found === "string") {
        t.equal(error.code, found);
        t.match(error.message, /It is entry 6 of 6 of the folder/);
        continue;
      }
      const entries = Object.keys({ ...stack(), ...files })
        .sort()
        .flatMap((one, i) => (one in files ? [i + 1] : []));
      t.equal(error.code, "series_invalid");
      t.strictSame(error.details, {
        reason: "unreadable_slices",
        files: entries.length,
        entries,
        found,
      });
    }
    // Beside another series, which is not concerned
    for (const [i, z] of [0, 2, 4].entries())
      writeFileSync(
        join(folder, `other-${"abc"[i]}`),
        slice({ z, attributes: { ...other, SOPInstanceUID: `1.9.${i}` } }),
      );
    t.equal(
      (await refused(t, folder, { uid: "1.2.3.4" })).status,
      422,
      "the series that is chosen",
    );
  });

t.test("an ending that says DICOM, whatever the slices are called", async (t) => {
  const slices = () => ({ a: slice({ z: 0 }), b: slice({ z: 2 }), c: slice({ z: 4 }) });
  for (const name of ["next.dcm", "next.IMA", "next.dicom.part"]) {
    const folder = folderOf(t, { ...slices(), [name]: Buffer.alloc(0) });
    t.match((await refused(t, folder)).details, { found: { empty: 1 } }, name);
    rmSync(folder, { recursive: true });
  }
  const beside = {
    ".next.dcm": Buffer.alloc(0),
    dcm: Buffer.alloc(0),
    "next.dcm.txt": Buffer.alloc(0),
  };
  t.equal((await read(t, folderOf(t, { ...slices(), ...beside }))).frameCount, 3);
});

t.test("a link among slices is none", async (t) => {
  const folder = folderOf(t, stack());
  symlinkSync("nowhere", join(folder, "IM6.dcm"));
  t.match((await refused(t, folder)).details, { reason: "unreadable_slices", found: { link: 1 } });
  rmSync(join(folder, "IM6.dcm"));
  symlinkSync("IM1.dcm", join(folder, "latest.dcm"));
  mkdirSync(join(folder, "IM7.dcm"));
  t.match((await read(t, folder)).warnings, [{ code: "left_out_not_a_file" }]);
});

t.test("what lies beside slices refuses nothing", async (t) => {
  const ofSeries = (SOPClassUID: string, Modality: string, more: Attributes = {}) =>
    dicomFile({
      attributes: {
        SOPClassUID,
        SOPInstanceUID: "1.2.3.4.88",
        Modality,
        SeriesInstanceUID: "1.2.3.4",
        ...more,
      },
    });
  const report = ofSeries("1.2.840.10008.5.1.4.1.1.88.33", "SR");
  const folder = folderOf(t, {
    ...stack(),
    "IM91.dcm": report,
    "IM92.dcm": ofSeries("1.2.840.10008.5.1.4.1.1.11.1", "PR"),
    "IM93.dcm": ofSeries("1.2.840.10008.5.1.4.1.1.481.3", "RTSTRUCT"),
    "IM94.dcm": ofSeries("1.2.840.10008.5.1.4.1.1.4.2", "MR", { Rows: 4, Columns: 4 }),
    "IM95.dcm": ofSeries("1.2.840.10008.5.1.4.1.1.66", "OT"),
    "IM96.dcm": ofSeries("1.3.12.2.1107.5.9.1", "MR"),
    "IM97.dcm": report.subarray(0, -3),
    DICOMDIR: dicomFile({ attributes: { SOPClassUID: "1.2.840.10008.1.3.10" } }),
    "Thumbs.db": Buffer.concat([Buffer.from("d0cf11e0a1b11ae1", "hex"), Buffer.alloc(600)]),
    ".DS_Store": Buffer.alloc(whole.length),
    "._IM6.dcm": Buffer.from([0, 5, 0x16, 7]),
    "desktop.ini": Buffer.from("[x]"),
    README: Buffer.from("read me"),
    empty: Buffer.alloc(0),
    "IM1.dcm.gz": gzipSync(whole),
    "IM1.png": Buffer.from("no picture"),
    LOCKFILE: Buffer.alloc(0),
  });
  const image = await read(t, folder);
  t.equal(image.frameCount, 5);
  t.strictSame(
    image.warnings.map(({ code, message }) => [code, /\((\d+)\)\.$/.exec(message)?.[1]]),
    [
      ["left_out_no_image", "8"],
      ["left_out_not_dicom", "9"],
    ],
  );
});

t.test("what is of another series refuses that one", async (t) => {
  const others = Object.fromEntries(
    [0, 2, 4].map((z) => [
      `B${z}`,
      slice({ z, attributes: { ...other, SOPInstanceUID: `1.9.${z}` } }),
    ]),
  );
  const cases: Files[] = [
    { x: bare(other) },
    { x: slice({ z: 6, attributes: other }).subarray(0, -7) },
    { B6: Buffer.alloc(0) },
  ];
  for (const files of cases) {
    const folder = folderOf(t, { ...stack(), ...others, ...files });
    const image = await read(t, folder, { uid: "1.2.3.4" });
    t.match(image.warnings, [{ code: "left_out_other_series" }, { code: "left_out_unreadable" }]);
    t.equal(image.frameCount, 5);
    t.equal((await refused(t, folder, { uid: "1.9" })).status, 422);
    rmSync(folder, { recursive: true });
  }
  const unknown = folderOf(t, { ...stack(), ...others, x: whole.subarray(0, 132) });
  for (const uid of ["1.2.3.4", "1.9"])
    t.match((await refused(t, unknown, { uid })).details, { reason: "unreadable_slices" });
});

t.test("a series of which nothing can be read says so", async (t) => {
  const folder = folderOf(t, { a: bare({}), b: bare({}) });
  t.match((await refused(t, folder)).details, { reason: "unreadable_slices", files: 2 });
  t.match((await refused(t, folder, { uid: "1.2.3.4" })).details, { files: 2 });
  t.match((await refused(t, folder, { uid: "1.9" })).details, { reason: "no_images" });
  const beside = folderOf(t, { ...stack(), x: bare(other), y: bare(other) });
  t.match((await refused(t, beside, { uid: "1.9" })).details, { entries: [6, 7] });
  t.match((await refused(t, beside, { uid: "1.8" })).details, { reason: "no_such_series" });
  t.equal((await read(t, beside)).frameCount, 5);
});

t.test("a multi-frame file of a series without pixels", async (t) => {
  const part = multiFrame([6, 8], { SOPInstanceUID: "1.2" });
  const files = { a: multiFrame([0, 2, 4], { SOPInstanceUID: "1.1" }), b: part };
  t.equal((await read(t, folderOf(t, files))).frameCount, 5);
  const cut = folderOf(t, { ...files, b: part.subarray(0, -(12 + 2 * 48)) });
  t.match((await refused(t, cut)).details, { found: { no_pixels: 1 } });
});

t.test("names that follow others", (t) => {
  const uids = ["1.2.840.113619.2.55.3.1", "1.2.840.113619.2.55.3.12"];
  const cases: [string, readonly string[], boolean][] = [
    ["IM10", ["IM9", "IM8"], true],
    ["im10", ["IM9"], true],
    ["1.2.840.113619.2.55.3.7", uids, true],
    ["1.2.840.113619.2.55.3.7.1", uids, true],
    ["00f3a19c", ["7b21ee40", "0012ab34"], true],
    ["slice_d", ["slice_a", "slice_b"], true],
    ["d", ["a", "b"], true],
    ["whatever.DCM", ["a.dcm"], true],
    ["IM10.gz", ["IM9"], true],
    ["IM10.bak", ["IM9"], true],
    ["IM10.dcm.old", ["IM9.dcm"], true],
    ["IM10.dcm~", ["IM9.dcm"], true],
    ["IM10", ["IM9.dcm"], true],
    ["IM10.dcm", ["IM9"], true],
    ["IM9.gz", ["IM9"], false],
    ["IM9.dcm.bak", ["IM9.dcm"], false],
    ["IM9", ["IM9.dcm"], false],
    ["IM9.json", ["IM9"], false],
    ["._IM10", ["IM9"], false],
    ["README", ["IM9"], false],
    ["Thumbs.db", ["IM9.dcm"], false],
    ["1.png", ["1.dcm"], false],
    ["empty", ["slice 1"], false],
  ];
  for (const [name, others, expected] of cases) {
    const row = new NameRow(others);
    const follows = row.followedByForm([name]).has(name) || row.hasEndingOf(name);
    t.equal(follows, expected, `${name} beside ${others.join(", ")}`);
  }
  t.end();
});

t.test("ten thousand files beside ten thousand slices", async (t) => {
  const count = 10_000;
  const named = (i: number, ending: string) => ({
    name: `IM${String(i).padStart(5, "0")}.${ending}`,
    entry: i + 1,
    of: 2 * count,
    bytes: 1000,
  });
  const slices = Array.from({ length: count }, (_, i) => {
    return { place: named(i, "dcm"), source: { seriesInstanceUid: "1.2" } };
  });
  const notes = Array.from({ length: count }, (_, i) => {
    return { ...named(i, "txt"), unread: "other_format" as const, isDicom: false };
  });
  const before = process.cpuUsage();
  const { unreadable, beside } = await attributed(notes, slices);
  const { user, system } = process.cpuUsage(before);
  t.strictSame([unreadable.length, beside.length], [0, count]);
  // Held against each other pair by pair it would take two minutes of the processor
  t.ok(user + system < 10e6, `${(user + system) / 1e6} s of the processor`);
  const stopped = attributed(notes, slices, () => {
    throw new Error("cancelled");
  });
  await t.rejects(stopped, { message: "cancelled" });
});

t.test("copies of slices are left out", async (t) => {
  const files = stack();
  const again = (more: Attributes, name = "IM2 (1).dcm") => ({
    ...files,
    [name]: slice({ z: 2, attributes: more }),
  });
  const same = await read(t, folderOf(t, again({})));
  t.equal(same.frameCount, 5);
  t.match(same.warnings, [
    {
      code: "left_out_copy",
      message: /same SOPInstanceUID, place and pixels as another file \(1; entry 2 of the folder/,
    },
  ]);
  const plain = await read(t, folderOf(t, files));
  t.strictSame(same.source, plain.source, "the same analysis as without the copy");
  const written = await read(t, folderOf(t, again({ StationName: "B" }, "IM3 copy.dcm")));
  t.match(written.warnings, [{ code: "left_out_copy" }]);
  t.strictSame(written.source, plain.source, "the shortest name stays");
  for (const more of [
    { RescaleSlope: "2" },
    { PatientID: "Nobody else" },
    { Rows: 6, Columns: 4 },
  ]) {
    const error = await refused(t, folderOf(t, again(more)));
    t.match(error.details, { reason: "duplicate_instance", duplicates: 1 }, JSON.stringify(more));
    t.match(error.message, /with other content \(entry \d of the folder, by name\)/);
  }
  const values = await refused(t, folderOf(t, { ...files, x: slice({ z: 2, fill: 9 }) }));
  t.match(values.details, { reason: "duplicate_instance" });
  const grouped = await refused(t, folderOf(t, { ...files, x: slice({ z: 2, fill: 9 }) }), {
    grouped: true,
  });
  t.match(grouped.details, { reason: "duplicate_instance" });
  const own = { SOPInstanceUID: "1.2.3.4.9" };
  t.match((await refused(t, folderOf(t, again(own)))).details, { reason: "duplicate_position" });
});

t.test("many files of one SOPInstanceUID are compared once each", async (t) => {
  const opened: number[] = [];
  const fileOf = async (i: number, fill: number, more: Attributes = {}): Promise<SeriesFile> => {
    const bytes = slice({
      z: 0,
      fill,
      attributes: { ImagePositionPatient: undefined, StationName: `${i}`, ...more },
    });
    const place = { name: `IM${i}`, entry: i + 1, of: 40, bytes: bytes.length };
    const again = {
      place,
      filesAhead: () => 0,
      keepWhole: () => false,
      read: () => {
        opened.push(i);
        return Promise.resolve(bytes);
      },
    };
    return (await seriesFile(bytes, again)) as SeriesFile;
  };
  const numbers = Array.from({ length: 40 }, (_, i) => i);
  const differing = await Promise.all(numbers.map((i) => fileOf(i, i)));
  t.equal((await withoutCopies(differing)).files.length, 40);
  t.strictSame(opened, [0, 1], "the second refuses the series");
  opened.length = 0;
  const alike = await Promise.all(numbers.map((i) => fileOf(i, 7)));
  t.equal((await withoutCopies(alike)).files.length, 1);
  t.equal(opened.length, 2 * 39);
  opened.length = 0;
  const stopped = withoutCopies(alike, () => {
    if (opened.length > 4) throw new Error("cancelled");
  });
  await t.rejects(stopped, { message: "cancelled" });
  t.equal(opened.length, 6);
});

t.test("a copy in another transfer syntax", async (t) => {
  const size = { rows: 8, columns: 8, samples: 1, bitsAllocated: 16, bitsStored: 16, signed: true };
  const raws = [0, 1, 2].map((i) => picture(size, i + 1));
  const of = (i: number): Attributes =>
    attributesOf(raws[i]!, {
      SOPInstanceUID: `1.2.${i}`,
      SeriesInstanceUID: "1.2",
      FrameOfReferenceUID: "1.3",
      PixelSpacing: "1\\1",
      ImagePositionPatient: `0\\0\\${i}`,
      ImageOrientationPatient: "1\\0\\0\\0\\1\\0",
    });
  const coded = (i: number, data: Uint8Array) =>
    dicomFile({
      transferSyntax: SYNTAXES["jpeg-ls"],
      attributes: of(i),
      pixels: { fragments: [data] },
    });
  const files = Object.fromEntries(
    raws.map((raw, i) => [`${i}`, dicomFile({ attributes: of(i), pixels: raw.data })]),
  );
  const copy = coded(1, await compress("jpeg-ls", raws[1]!));
  const image = await read(t, folderOf(t, { ...files, "1 copy": copy }));
  t.match(image.warnings, [{ code: "left_out_copy" }]);
  t.equal(image.frameCount, 3);
  const another = coded(1, await compress("jpeg-ls", raws[2]!));
  const error = await refused(t, folderOf(t, { ...files, "1 copy": another }));
  t.match(error.details, { reason: "duplicate_instance" });
});

t.test("the cases", { skip: needs(CASES) }, async (t) => {
  const at = (name: string) => join(CASES, name);
  const ends = await failure(read(t, at("series-slices-without-pixels/nopix_ends")));
  t.match(ends.details, {
    reason: "unreadable_slices",
    entries: [1, 2, 9, 10],
    found: { no_pixels: 4 },
  });
  const zeros = await failure(read(t, at("series-slices-without-pixels/zero_filled_ends")));
  t.match(zeros.details, { reason: "unreadable_slices", entries: [9, 10], found: { blank: 2 } });
  const copies = await read(t, at("exact-duplicates-in-folder/s37_dup"));
  t.equal(copies.frameCount, 6);
  t.match(copies.warnings, [{ code: "left_out_copy", message: /entry 3/ }]);
});
