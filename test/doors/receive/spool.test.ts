/** Objects that come in: whole under their UIDs, once, or refused by name. */
import { readFileSync, readdirSync, rmSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { RadserveError } from "../../../src/base/errors.js";
import { Spool, isUid, type Arriving } from "../../../src/features/gateway/receive/spool.js";
import { readDicom } from "../../../src/images/dicom/dicom-image.js";
import {
  CT,
  CT_SLICE,
  dicomFile,
  EXPLICIT,
  imageAttributes,
  IMPLICIT,
  type Attributes,
} from "../../support/dicom.js";

const SOP = "1.2.826.0.1.3680043.8.498.1";
const STUDY = "1.2.826.0.1.3680043.8.498.2";
const SERIES = "1.2.826.0.1.3680043.8.498.3";
const NAMES = {
  SOPClassUID: CT,
  SOPInstanceUID: SOP,
  StudyInstanceUID: STUDY,
  SeriesInstanceUID: SERIES,
};
const LIMITS = { mostBytes: 50_000_000, minimumFreeBytes: 0 };

function* cut(bytes: Buffer, each: number): Generator<Buffer> {
  for (let at = 0; at < bytes.length; at += each) yield bytes.subarray(at, at + each);
}

function arriving(
  attributes: Attributes = {},
  more: Partial<Arriving> = {},
  each = 1_000,
): Arriving {
  const transferSyntax = more.transferSyntax ?? EXPLICIT;
  const bytes = dicomFile({
    transferSyntax,
    preamble: false,
    meta: false,
    pixels: Buffer.alloc(32, 5),
    attributes: imageAttributes({
      ...CT_SLICE,
      ...NAMES,
      BitsAllocated: 16,
      BitsStored: 16,
      HighBit: 15,
      ...attributes,
    }),
  });
  // As over an association, a piece is in the memory of the one before
  const memory = Buffer.alloc(each);
  async function* dataSet() {
    for (const piece of cut(bytes, each))
      yield await Promise.resolve(memory.subarray(0, piece.copy(memory)));
  }
  return { sopClassUid: CT, sopInstanceUid: SOP, transferSyntax, dataSet: dataSet(), ...more };
}

const spoolIn = (test: { testdir(): string }, limits = LIMITS) => {
  const folder = test.testdir();
  return { folder, spool: new Spool(folder, limits) };
};

/** All files below a folder, by their paths in it. */
function filesIn(folder: string): string[] {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => path.relative(folder, path.join(entry.parentPath, entry.name)))
    .sort();
}

await t.test(
  "an object lies under both names, as one file, and reads as it was sent",
  async (t) => {
    for (const transferSyntax of [EXPLICIT, IMPLICIT]) {
      const { folder, spool } = spoolIn(t);
      const kept = await spool.keep("ct1", arriving({}, { transferSyntax }));
      t.match(kept, { studyInstanceUid: STUDY, seriesInstanceUid: SERIES, fresh: true });
      const [object, ofSeries, ...others] = filesIn(folder);
      t.same(others, []);
      t.match(object, /^objects\/[0-9a-f]{2}\/1\.2\.826\.0\.1\.3680043\.8\.498\.1\.dcm$/);
      t.equal(ofSeries, `series/ct1/${STUDY}/${SERIES}/${SOP}.dcm`);
      const file = path.join(folder, ofSeries ?? "");
      t.equal(statSync(file).nlink, 2);
      const image = readDicom(readFileSync(file));
      t.same(image.warnings, []);
      t.equal(image.source.sopInstanceUid, SOP);
      t.equal(image.source.transferSyntaxUid, transferSyntax);
    }
  },
);

await t.test(
  "the same object again is the same file; from another peer it has a name there too",
  async (t) => {
    const { folder, spool } = spoolIn(t);
    const first = await spool.keep("ct1", arriving());
    t.match(await spool.keep("ct1", arriving({}, {}, 77)), { fresh: false, sha256: first.sha256 });
    t.match(await spool.keep("ct2", arriving()), { fresh: false, sha256: first.sha256 });
    t.equal(filesIn(folder).length, 3);
    t.equal(statSync(path.join(first.folder, `${SOP}.dcm`)).nlink, 3);
  },
);

await t.test(
  "another object of the same UID is refused, in another series too, and nothing of it stays",
  async (t) => {
    const { folder, spool } = spoolIn(t);
    await spool.keep("ct1", arriving());
    const before = filesIn(folder);
    for (const attributes of [{ PatientID: "other" }, { SeriesInstanceUID: `${SERIES}.9` }])
      await t.rejects(spool.keep("ct1", arriving(attributes)), { code: "file_exists" });
    t.same(filesIn(folder), before);
  },
);

await t.test("objects that come side by side are each whole, and one of a UID wins", async (t) => {
  const { folder, spool } = spoolIn(t);
  const results = await Promise.allSettled(
    Array.from({ length: 20 }, (_, i) =>
      spool.keep("ct1", arriving({ PatientID: `p${i % 2}` }, {}, 50 + i)),
    ),
  );
  const kept = results.filter(({ status }) => status === "fulfilled");
  t.equal(kept.length, 10, "those with the bytes of the first");
  for (const result of results)
    if (result.status === "rejected") t.match(result.reason, { code: "file_exists" });
  t.equal(filesIn(folder).length, 2);
});

await t.test(
  "names that are missing, malformed or not those announced are refused, and make no file",
  async (t) => {
    const { folder, spool } = spoolIn(t);
    const cases: [string, Attributes, Partial<Arriving>, string][] = [
      ["a path as UID", {}, { sopInstanceUid: "../../etc/passwd" }, "SOPInstanceUID"],
      ["an empty UID", {}, { sopInstanceUid: "" }, "SOPInstanceUID"],
      ["another instance", { SOPInstanceUID: `${SOP}.1` }, {}, "SOPInstanceUID"],
      ["another class", { SOPClassUID: "1.2.840.10008.5.1.4.1.1.4" }, {}, "SOPClassUID"],
      ["no study", { StudyInstanceUID: "" }, {}, "StudyInstanceUID"],
      ["a study of letters", { StudyInstanceUID: "../1.2" }, {}, "StudyInstanceUID"],
      ["a series with zeros before", { SeriesInstanceUID: "1.02" }, {}, "SeriesInstanceUID"],
    ];
    for (const [name, attributes, more, keyword] of cases)
      await t.rejects(
        spool.keep("ct1", arriving(attributes, more)),
        { code: "bad_request", message: new RegExp(keyword) },
        name,
      );
    t.same(filesIn(folder), []);
    t.ok(isUid("1.2.0.3"));
    for (const wrong of ["1..2", ".1", "1.", "01.2", "1.2\n", "1".repeat(65)])
      t.notOk(isUid(wrong), wrong);
  },
);

await t.test("an object that breaks off, is too large or is none leaves nothing", async (t) => {
  const { folder, spool } = spoolIn(t, { ...LIMITS, mostBytes: 300 });
  await t.rejects(spool.keep("ct1", arriving()), { code: "body_too_large" });
  const { spool: roomy } = spoolIn(t);
  async function* breaks() {
    for await (const piece of arriving().dataSet) {
      yield piece.subarray(0, 100);
      break;
    }
    throw new Error("the peer went away");
  }
  await t.rejects(roomy.keep("ct1", arriving({}, { dataSet: breaks() })), {
    message: "the peer went away",
  });
  async function* nothing() {
    yield await Promise.resolve(
      Buffer.from("this is not a data set, whatever the peer says of it"),
    );
  }
  const error: unknown = await roomy
    .keep("ct1", arriving({}, { dataSet: nothing() }))
    .catch((e: unknown) => e);
  t.ok(error instanceof RadserveError);
  t.same(filesIn(folder), []);
});

await t.test(
  "an object that could not be given its second name does not keep its UID taken",
  async (t) => {
    const { folder, spool } = spoolIn(t);
    await spool.keep("ct1", arriving({ SOPInstanceUID: "1.2.3" }, { sopInstanceUid: "1.2.3" }));
    const there = filesIn(folder);
    // As where the disk is full: the file is there, and the folder of its series cannot be made
    const other = { StudyInstanceUID: "1.2.4" };
    writeFileSync(path.join(folder, "series/ct1/1.2.4"), "");
    await t.rejects(spool.keep("ct1", arriving(other)));
    rmSync(path.join(folder, "series/ct1/1.2.4"));
    t.same(filesIn(folder), there);
    const kept = await spool.keep("ct1", arriving({ ...other, ImageComments: "corrected" }));
    t.equal(kept.fresh, true);
  },
);

await t.test(
  "a head behind large private groups is found, in fragments of any length",
  async (t) => {
    const { spool } = spoolIn(t);
    const large = Buffer.from(Array.from({ length: 300_000 }, (_, i) => (i * i) % 251));
    for (const each of [1, 1_000, 60_000, 1_000_000])
      t.match(
        await spool.keep("ct1", arriving({ "00090010": "TEST", "00091010": large }, {}, each)),
        {
          seriesInstanceUid: SERIES,
        },
      );
  },
);

await t.test("what was put in the way of a folder or a name is refused", async (t) => {
  const { folder, spool } = spoolIn(t);
  symlinkSync("/tmp", path.join(folder, "series"));
  await t.rejects(spool.keep("ct1", arriving()), { code: "path_not_allowed" });
  const other = spoolIn(t);
  const kept = await other.spool.keep("ct1", arriving());
  writeFileSync(path.join(kept.folder, `${SOP}.1.dcm`), "something else");
  await t.rejects(
    other.spool.keep(
      "ct1",
      arriving({ SOPInstanceUID: `${SOP}.1` }, { sopInstanceUid: `${SOP}.1` }),
    ),
    { code: "file_exists" },
  );
});
