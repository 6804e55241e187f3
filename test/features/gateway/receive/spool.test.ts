/** Objects that come in: whole under their UIDs, once, or refused by name. */
import { EventEmitter, once } from "node:events";
import {
  linkSync,
  mkdirSync,
  readFileSync,
  readdirSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import path from "node:path";
import t from "tap";
import { RadserveError } from "../../../../src/base/errors.js";
import {
  Spool,
  isOddUid,
  objectPath,
  type Arriving,
} from "../../../../src/features/gateway/receive/spool.js";
import { readDicom } from "../../../../src/images/dicom/dicom-image.js";
import { isUid } from "../../../../src/images/dicom/value-forms.js";
import { fileHead } from "../../../../src/results/dicom/elements.js";
import { arrivingOf } from "../../../support/arriving.js";
import {
  CT,
  compress,
  CT_SLICE,
  dicomFile,
  EXPLICIT,
  imageAttributes,
  IMPLICIT,
  random,
  SYNTAXES,
  type Attributes,
} from "../../../support/dicom.js";

const SOP = "1.2.826.0.1.3680043.8.498.1";
const STUDY = "1.2.826.0.1.3680043.8.498.2";
const SERIES = "1.2.826.0.1.3680043.8.498.3";
const NAMES = {
  SOPClassUID: CT,
  SOPInstanceUID: SOP,
  StudyInstanceUID: STUDY,
  SeriesInstanceUID: SERIES,
};
const LIMITS = { mostBytes: 50_000_000, minimumFreeBytes: 0, peerShare: 1 };

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

/** Something to wait for. */
function gate() {
  const emitter = new EventEmitter();
  return { opened: once(emitter, "open"), open: () => void emitter.emit("open") };
}

/** The file of an object. */
async function bytesOf({ dataSet }: Arriving): Promise<Buffer> {
  const pieces: Buffer[] = [];
  for await (const piece of dataSet) pieces.push(Buffer.from(piece));
  return Buffer.concat([fileHead(CT, SOP, EXPLICIT), ...pieces]);
}

const spoolIn = (test: { testdir(): string }, limits = LIMITS) => {
  const folder = test.testdir();
  return { folder, spool: new Spool(folder, limits) };
};

/** All files of objects below a folder, by their paths in it. */
function filesIn(folder: string): string[] {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => path.relative(folder, path.join(entry.parentPath, entry.name)))
    .filter((file) => !/^(?:patients|conflicts)\//.test(file))
    .sort();
}

await t.test("an object lies under its names, and reads as it was sent", async (t) => {
  for (const transferSyntax of [EXPLICIT, IMPLICIT]) {
    const { folder, spool } = spoolIn(t);
    const kept = await spool.keep("ct1", arriving({}, { transferSyntax }));
    t.match(kept, { studyInstanceUid: STUDY, seriesInstanceUid: SERIES, fresh: true });
    t.same(filesIn(folder), [`series/ct1/${STUDY}/${SERIES}/${SOP}.dcm`]);
    const image = readDicom(readFileSync(path.join(kept.folder, `${SOP}.dcm`)));
    t.same(image.warnings, []);
    t.equal(image.source.sopInstanceUid, SOP);
    t.equal(image.source.transferSyntaxUid, transferSyntax);
  }
});

await t.test("the same object again is the same file", async (t) => {
  const { folder, spool } = spoolIn(t);
  const first = await spool.keep("ct1", arriving());
  t.match(await spool.keep("ct1", arriving({}, {}, 77)), {
    fresh: false,
    changed: false,
    sha256: first.sha256,
  });
  t.equal(filesIn(folder).length, 1);
});

await t.test("a folder that is removed while it looks empty is made again", async (t) => {
  const { folder, spool } = spoolIn(t);
  const series = path.join(folder, "series", "ct1", STUDY, SERIES);
  const appears = () => {
    rmSync(path.dirname(series), { recursive: true });
    return Promise.resolve();
  };
  t.match(await spool.keep("ct1", arriving({}, { appears })), { fresh: true, folder: series });
  t.same(readdirSync(series), [`${SOP}.dcm`]);
});

await t.test("nobody keeps a UID from another peer, study or series", async (t) => {
  const { folder, spool } = spoolIn(t);
  await spool.keep("ct1", arriving());
  t.match(await spool.keep("ct2", arriving({ PatientID: "squatter" })), { fresh: true });
  for (const attributes of [
    { StudyInstanceUID: `${STUDY}.9` },
    { SeriesInstanceUID: `${SERIES}.9` },
  ])
    t.match(await spool.keep("ct1", arriving(attributes)), { fresh: true });
  const before = filesIn(folder);
  t.equal(before.length, 4);
  await t.rejects(spool.keep("ct1", arriving({ Manufacturer: "other" })), {
    code: "file_exists",
    details: { attribute: "SOPInstanceUID" },
  });
  t.same(filesIn(folder), before, "nothing of it stays");
  t.match(spool.conflicts.troubles(), [
    { condition: "received_conflict", where: /^ct1: study [0-9a-f]{16}$/, message: /1 object,/ },
  ]);
});

await t.test("two patients in a study keep each other from nothing, and are told", async (t) => {
  const { folder, spool } = spoolIn(t);
  const first = await spool.keep("ct1", arriving({ PatientID: "A" }));
  t.equal(first.study, STUDY);
  const second = await spool.keep("ct1", arriving({ PatientID: "B" }));
  t.match(second, { fresh: true, studyInstanceUid: STUDY, study: /^[0-9.]+=[0-9a-f]{16}$/ });
  const third = await spool.keep("ct1", arriving({ PatientID: "" }));
  t.equal(new Set([first, second, third].map(({ study }) => study)).size, 3);
  t.equal(filesIn(folder).length, 3);
  const told = [
    { condition: "received_conflict", message: /^Kept apart: 1 object, .*PatientIDs\.$/ },
    { message: /^Kept apart: 1 object/ },
  ];
  t.match(spool.conflicts.troubles(), told);
  t.notMatch(JSON.stringify(spool.conflicts.troubles()), STUDY);

  const next = new Spool(folder, LIMITS);
  await next.conflicts.look();
  t.match(next.conflicts.troubles(), told, "over a restart");
  for (const [PatientID, { study }] of [
    ["A", first],
    ["B", second],
  ] as const)
    t.match(await next.keep("ct1", arriving({ PatientID })), { fresh: false, study });
  t.match(
    await next
      .keep("ct1", arriving({ PatientID: "A", IssuerOfPatientID: "X", SOPInstanceUID: SOP }))
      .catch((error: unknown) => error instanceof RadserveError && error.code),
    "file_exists",
    "an issuer that only one of them names says nothing",
  );

  for (const { study } of [second, third])
    rmSync(path.join(folder, "series/ct1", study), { recursive: true });
  await next.conflicts.look();
  t.match(next.conflicts.troubles(), [{ message: /^Refused: 1 object, .*SOPInstanceUID/ }]);
  rmSync(path.join(folder, "series/ct1", STUDY), { recursive: true });
  await next.conflicts.look();
  t.same(next.conflicts.troubles(), []);
  const last = new Spool(folder, LIMITS);
  await last.conflicts.look();
  t.same(last.conflicts.troubles(), []);
});

await t.test("two issuers of one PatientID are two patients, whoever comes between", async (t) => {
  const { folder, spool } = spoolIn(t);
  const of = (IssuerOfPatientID: string, n: number) =>
    arriving({
      PatientID: "A",
      SeriesInstanceUID: `${SERIES}.${n}`,
      ...(IssuerOfPatientID === "" ? {} : { IssuerOfPatientID }),
    });
  t.equal((await spool.keep("ct1", of("", 1))).study, STUDY);
  t.equal((await spool.keep("ct1", of("X", 2))).study, STUDY, "the first issuer says whose it is");
  const apart = await spool.keep("ct1", of("Y", 3));
  t.match(apart.study, /=/);
  for (const one of [spool, new Spool(folder, LIMITS)]) {
    t.match(await one.keep("ct1", of("", 4)), { study: STUDY });
    t.match(await one.keep("ct1", of("X", 5)), { study: STUDY });
    t.match(await one.keep("ct1", of("Y", 6)), { study: apart.study });
  }
  // As a version before has left it, which knew the first object's issuer alone
  const claims = path.join(folder, "patients/ct1");
  for (const name of readdirSync(claims).filter((one) => one.includes(".issuer.")))
    rmSync(path.join(claims, name));
  t.match(await new Spool(folder, LIMITS).keep("ct1", of("Y", 7)), { study: apart.study });
  // Of a study that is gone nothing is left
  rmSync(path.join(folder, "series"), { recursive: true });
  await spool.patients.forget("ct1", STUDY);
  t.same(readdirSync(claims), []);
  t.equal((await spool.keep("ct1", of("Y", 8))).study, STUDY);
});

await t.test("of two issuers at two nodes at one moment, one has the study", async (t) => {
  for (let round = 0; round < 10; round++) {
    const { folder, spool } = spoolIn(t);
    const nodes = [spool, new Spool(folder, LIMITS)];
    await spool.keep("ct1", arriving({ PatientID: "A" }));
    const kept = await Promise.all(
      nodes.map((one, at) =>
        one.keep(
          "ct1",
          arriving({
            PatientID: "A",
            IssuerOfPatientID: `I${at}`,
            SeriesInstanceUID: `${SERIES}.${at}`,
          }),
        ),
      ),
    );
    t.equal(kept.filter(({ study }) => study === STUDY).length, 1);
  }
});

await t.test("of first objects at two nodes at one moment, one has the study", async (t) => {
  for (let round = 0; round < 10; round++) {
    const { folder, spool } = spoolIn(t);
    const other = new Spool(folder, LIMITS);
    const kept = await Promise.all(
      [spool, other].map((one, at) =>
        one.keep("ct1", arriving({ PatientID: `P${at}`, SeriesInstanceUID: `${SERIES}.${at}` })),
      ),
    );
    t.equal(kept.filter(({ study }) => study === STUDY).length, 1);
    t.equal(filesIn(folder).length, 2);
    const later = new Spool(folder, LIMITS);
    for (const [at, { study }] of kept.entries())
      t.match(
        await later.keep(
          "ct1",
          arriving({ PatientID: `P${at}`, SeriesInstanceUID: `${SERIES}.${at}` }),
        ),
        { study, fresh: false },
      );
  }
});

await t.test("a study that a person has removed is whoever's comes next", async (t) => {
  const { folder, spool } = spoolIn(t);
  const other = new Spool(folder, LIMITS);
  await spool.keep("ct1", arriving({ PatientID: "wrong" }));
  rmSync(path.join(folder, "series/ct1", STUDY), { recursive: true });
  for (const one of [other, spool, new Spool(folder, LIMITS)])
    t.match(await one.keep("ct1", arriving({ PatientID: "right" })), { study: STUDY });
  t.same(spool.conflicts.troubles(), []);
  const apart = await spool.keep("ct1", arriving({ PatientID: "wrong" }));
  t.match(apart.study, /=/);

  const series = `${SERIES}.1`;
  rmSync(path.join(folder, "series/ct1", STUDY), { recursive: true });
  const again = arriving({ PatientID: "wrong", SeriesInstanceUID: series });
  t.equal((await spool.keep("ct1", again)).study, apart.study, "what came before it stays its");
  await spool.conflicts.look();
  t.same(spool.conflicts.troubles(), [], "one patient is left");
});

await t.test(
  "a study is removed while objects of two patients come: they never meet",
  async (t) => {
    const pixels = 400_000;
    for (const wins of ["the one that comes meanwhile", "the one that began"]) {
      const folder = t.testdir();
      const [node, other] = [new Spool(folder, LIMITS), new Spool(folder, LIMITS)];
      const [began, goesOn] = [gate(), gate()];
      const first = arrivingOf(1, pixels, { attributes: { PatientID: "A" } });
      async function* slowly() {
        let bytes = 0;
        for await (const piece of first.dataSet) {
          if (bytes > pixels / 2) began.open();
          if (bytes > pixels / 2) await goesOn.opened;
          bytes += piece.length;
          yield piece;
        }
      }
      const keeping = node.keep("ct1", { ...first, dataSet: slowly() });
      await began.opened;
      const study = readdirSync(path.join(folder, "series/ct1"))[0]!;
      // As a removal does, of the last series that lay there
      await other.patients.forget("ct1", study);
      const second = arrivingOf(2, pixels, { attributes: { PatientID: "B" } });
      if (wins === "the one that began") goesOn.open();
      if (wins === "the one that began") await keeping;
      const came = await other.keep("ct1", second);
      goesOn.open();
      const kept = await keeping;
      t.not(kept.study, came.study, wins);
      t.equal((wins === "the one that began" ? kept : came).study, study, wins);
      for (const [PatientID, { study }, n] of [
        ["A", kept, 1],
        ["B", came, 2],
      ] as const)
        for (const spool of [node, other, new Spool(folder, LIMITS)])
          t.match(await spool.keep("ct1", arrivingOf(n, pixels, { attributes: { PatientID } })), {
            study,
            fresh: false,
          });
      t.equal(filesIn(folder).length, 2);
    }
  },
);

await t.test("a whole object takes the place of a damaged one", async (t) => {
  const whole = await bytesOf(arriving());
  const damages: [string, Buffer][] = [
    ["cut in its pixels", whole.subarray(0, -10)],
    ["cut in its head", whole.subarray(0, 300)],
    ["empty", Buffer.alloc(0)],
    ["no DICOM", Buffer.from("something else")],
  ];
  for (const [name, bytes] of damages) {
    const { folder, spool } = spoolIn(t);
    // As version 0.6 kept it, under two names
    const series = path.join(folder, "series/ct1", STUDY, SERIES);
    const drawer = path.dirname(path.join(folder, ...objectPath(SOP)));
    for (const one of [series, drawer]) mkdirSync(one, { recursive: true });
    writeFileSync(path.join(series, `${SOP}.dcm`), bytes);
    linkSync(path.join(series, `${SOP}.dcm`), path.join(folder, ...objectPath(SOP)));
    const kept = await spool.keep("ct1", arriving());
    t.match(kept, { fresh: false, changed: true }, name);
    t.same(readFileSync(path.join(series, `${SOP}.dcm`)).subarray(-32), Buffer.alloc(32, 5), name);
    t.match(filesIn(folder), [
      new RegExp(`^again/ct1/${STUDY}/${SERIES}/${SOP}\\.[0-9a-f]{16}$`),
      `series/ct1/${STUDY}/${SERIES}/${SOP}.dcm`,
    ]);
    await t.rejects(spool.keep("ct1", arriving({ Manufacturer: "other" })), {
      code: "file_exists",
    });
  }
});

await t.test("a frame that was cut gives way to a whole one, and not the other way", async (t) => {
  const next = random(7);
  const data = Uint8Array.from({ length: 32 * 32 }, () => next() * 256);
  const size = { rows: 32, columns: 32, samples: 1, bitsAllocated: 8, bitsStored: 8 };
  for (const coder of ["jpeg", "jpeg-lossless", "jpeg-ls", "jpeg2000", "rle"] as const) {
    const frame = await compress(coder, { ...size, data });
    const transferSyntax = SYNTAXES[coder];
    const coded = (last: Uint8Array, more: Attributes = {}) => {
      const bytes = dicomFile({
        transferSyntax,
        preamble: false,
        meta: false,
        pixels: { fragments: [frame, last] },
        attributes: imageAttributes({
          ...CT_SLICE,
          ...NAMES,
          ...more,
          Rows: 32,
          Columns: 32,
          NumberOfFrames: "2",
        }),
      });
      async function* dataSet() {
        yield await Promise.resolve(bytes);
      }
      return arriving({}, { transferSyntax, dataSet: dataSet() });
    };
    const half = frame.subarray(0, frame.length / 2);
    const { spool } = spoolIn(t);
    t.match(await spool.keep("ct1", coded(half)), { fresh: true }, coder);
    await t.rejects(spool.keep("ct1", coded(half, { Manufacturer: "other" })), {
      code: "file_exists",
    });
    t.match(await spool.keep("ct1", coded(frame)), { changed: true }, coder);
    for (const other of [coded(half), coded(frame, { Manufacturer: "other" })])
      await t.rejects(spool.keep("ct1", other), { code: "file_exists" });
  }
});

await t.test("each object that takes another's place is another one, in turns too", async (t) => {
  const { folder, spool } = spoolIn(t);
  await spool.keep("ct1", arriving());
  await spool.replaceable({ peer: "ct1", study: STUDY, series: SERIES });
  const again = path.join(folder, "again/ct1", STUDY, SERIES);
  for (const [i, Manufacturer] of ["one", "two", "one", "two"].entries()) {
    t.match(await spool.keep("ct1", arriving({ Manufacturer })), { changed: true });
    t.equal(readdirSync(again).length, i + 1, "another job is made");
    t.match(await spool.keep("ct1", arriving({ Manufacturer })), { changed: false });
    t.equal(readdirSync(again).length, i + 1, "and none of the same bytes");
  }
});

await t.test("what the audit does not take does not appear", async (t) => {
  const { folder, spool } = spoolIn(t);
  const appears = () => Promise.reject(new Error("no room for the line"));
  await t.rejects(spool.keep("ct1", arriving({}, { appears })), {
    message: "no room for the line",
  });
  t.same(filesIn(folder), []);
});

await t.test("objects that come side by side are each whole, and one of a UID wins", async (t) => {
  const { folder, spool } = spoolIn(t);
  const results = await Promise.allSettled(
    Array.from({ length: 20 }, (_, i) =>
      spool.keep("ct1", arriving({ Manufacturer: `m${i % 2}` }, {}, 50 + i)),
    ),
  );
  const kept = results.filter(({ status }) => status === "fulfilled");
  t.equal(kept.length, 10, "those with the bytes of the first");
  for (const result of results)
    if (result.status === "rejected") t.match(result.reason, { code: "file_exists" });
  t.equal(filesIn(folder).length, 1);
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
      ["a study of 65 digits", { StudyInstanceUID: "1".repeat(65) }, {}, "StudyInstanceUID"],
      ["a series that is a path", { SeriesInstanceUID: ".." }, {}, "SeriesInstanceUID"],
    ];
    for (const [name, attributes, more, keyword] of cases)
      await t.rejects(
        spool.keep("ct1", arriving(attributes, more)),
        { code: "bad_request", message: new RegExp(keyword), details: { attribute: keyword } },
        name,
      );
    t.same(filesIn(folder), []);
    for (const right of ["1.2.0.3", "01.2", "1.2.078"]) t.ok(isUid(right), right);
    for (const wrong of ["..", ".1", "1.2\n", "1.2/3", "1.2a", "", "1".repeat(65)])
      t.notOk(isUid(wrong), wrong);
    for (const odd of ["01.2", "1.2.078", "1..2", "1.2."]) t.ok(isOddUid(odd), odd);
    t.notOk(isOddUid("1.2.0.30"));
  },
);

await t.test("UIDs with leading zeros are accepted, as other toolkits do", async (t) => {
  const { folder, spool } = spoolIn(t);
  const [study, series, sop] = ["1.2.03", "1.2.3.23.078", "1.2.3.23.001"];
  const attributes = { StudyInstanceUID: study, SeriesInstanceUID: series, SOPInstanceUID: sop };
  const kept = await spool.keep("ct1", arriving(attributes, { sopInstanceUid: sop }));
  t.match(kept, { studyInstanceUid: study, seriesInstanceUid: series, fresh: true });
  t.same(filesIn(folder), [`series/ct1/${study}/${series}/${sop}.dcm`]);
});

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
  symlinkSync("/etc/passwd", path.join(kept.folder, `${SOP}.1.dcm`));
  await t.rejects(
    other.spool.keep(
      "ct1",
      arriving({ SOPInstanceUID: `${SOP}.1` }, { sopInstanceUid: `${SOP}.1` }),
    ),
    { code: "file_exists" },
  );
});
