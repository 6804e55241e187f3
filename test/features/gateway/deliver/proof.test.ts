/** What counts as the object that was sent, and what does not. */
import t from "tap";
import { mayChange } from "../../../../src/features/gateway/deliver/may-change.js";
import { compareObjects } from "../../../../src/features/gateway/deliver/proof.js";
import { inBigEndian, inImplicitVr } from "../../../../src/features/gateway/deliver/recode.js";
import { openFile } from "../../../../src/images/dicom/dicom-file.js";
import { fileHead } from "../../../../src/results/dicom/elements.js";
import {
  BIG_ENDIAN,
  CT,
  dicomFile,
  IMPLICIT,
  RLE,
  type Attributes,
  type Value,
} from "../../../support/dicom.js";

/** A value in a character set, of even length. */
const textIn = (encoding: "utf8" | "latin1", text: string) =>
  new Uint8Array(
    Buffer.from(Buffer.byteLength(text, encoding) % 2 === 0 ? text : `${text} `, encoding),
  );

const CODE = { CodeValue: "1", CodingSchemeDesignator: "99", CodeMeaning: "Lung" };
const BASE: Attributes = {
  SOPClassUID: CT,
  SOPInstanceUID: "1.2.3.4",
  StudyInstanceUID: "1.2.3",
  SeriesInstanceUID: "1.2.4",
  SpecificCharacterSet: "ISO_IR 192",
  PatientName: textIn("utf8", "Sørensen^Åse"),
  PatientID: "1",
  SeriesDescription: textIn("utf8", "Résumé"),
  SliceThickness: "1.5",
  Rows: 2,
  Columns: 2,
  BitsAllocated: 16,
  BitsStored: 16,
  HighBit: 15,
  PixelRepresentation: 0,
  SamplesPerPixel: 1,
  PhotometricInterpretation: "MONOCHROME2",
  AnatomicRegionSequence: [CODE],
  ReferencedRequestSequence: [],
};
const PIXELS = Buffer.from([1, 2, 3, 4, 5, 6, 7, 8]);
const file = (change: Record<string, Value | undefined> = {}, more: object = {}) =>
  dicomFile({ attributes: { ...BASE, ...change }, pixels: PIXELS, ...more });
const SENT = file();
const compared = (found: Buffer) => compareObjects(SENT, found);

await t.test("what says where an object lies and how it is written is not looked at", async (t) => {
  const equal: Record<string, Buffer> = {
    "the same": file(),
    "Implicit VR": file({}, { transferSyntax: IMPLICIT }),
    "Big Endian": file({}, { transferSyntax: BIG_ENDIAN, pixels: Buffer.from(PIXELS).swap16() }),
    "an empty attribute left out": file({ ReferencedRequestSequence: undefined }),
    "another way to write a number": file({ SliceThickness: "1.50" }),
    "blanks around a value": file({ SliceThickness: " 1.5" }),
    "where it can be had": file({ RetrieveAETitle: "PACS", InstanceAvailability: "ONLINE" }),
    "the headers as they are written for a peer": Buffer.concat([
      fileHead(CT, "1.2.3.4", IMPLICIT),
      ...inImplicitVr(openFile(SENT)),
    ]),
    "the same in Big Endian": Buffer.concat([
      fileHead(CT, "1.2.3.4", BIG_ENDIAN),
      ...inBigEndian(openFile(SENT)),
    ]),
  };
  for (const [name, found] of Object.entries(equal))
    t.same(await compared(found), { equal: true, coerced: [], changed_by: [] }, name);
});

await t.test("another character set is the same text", async (t) => {
  const found = file({
    SpecificCharacterSet: "ISO_IR 100",
    PatientName: textIn("latin1", "Sørensen^Åse"),
    SeriesDescription: textIn("latin1", "Résumé"),
  });
  t.same(await compared(found), { equal: true, coerced: [], changed_by: [] });
});

await t.test("what a PACS sets of the patient and the study is told", async (t) => {
  t.same(await compared(file({ PatientID: "2", AccessionNumber: "7" })), {
    equal: true,
    coerced: ["AccessionNumber", "PatientID"],
    changed_by: [],
  });
});

const noted = (more: Attributes = {}) => ({
  SeriesDescription: "Other",
  PatientID: "2",
  OriginalAttributesSequence: [
    {
      ModifiedAttributesSequence: [{ SeriesDescription: textIn("utf8", "Résumé") }],
      AttributeModificationDateTime: "20261128120000",
      ModifyingSystem: "ROUTER\u0007",
      ReasonForTheAttributeModification: "COERCE",
      ...more,
    },
    // It was so before it was sent
    { ModifiedAttributesSequence: [{ SliceThickness: "2" }], ModifyingSystem: "SCANNER" },
  ],
});

await t.test("what the settings let it change is told, and who changed it", async (t) => {
  const found = file(noted());
  t.same(await compareObjects(SENT, found, { mayChange: ["SeriesDescription", "SeriesNumber"] }), {
    equal: true,
    coerced: ["SeriesDescription", "PatientID"],
    changed_by: [
      { attributes: ["SeriesDescription"], system: "ROUTER?", why: "COERCE", at: "20261128120000" },
    ],
  });
  t.match(await compared(found), {
    equal: false,
    attributes: true,
    reason: "Other values in SeriesDescription (0008,103e), changed by ROUTER? (COERCE).",
  });
  const unnamed = file({ SeriesDescription: "Other" });
  const reason = "Other values in SeriesDescription (0008,103e).";
  t.match(await compared(unnamed), { equal: false, attributes: true, reason });
});

await t.test("pixels and identity are never a change of attributes", async (t) => {
  for (const found of [
    file(noted(), { pixels: Buffer.from([1, 2, 3, 4, 5, 6, 7, 9]) }),
    file({ SOPInstanceUID: "1.2.3.5" }),
    file({ SOPClassUID: "1.2.840.10008.5.1.4.1.1.7" }),
  ])
    t.equal("attributes" in (await compared(found)), false);
});

await t.test("what the settings may not let it change", (t) => {
  for (const name of ["SOPInstanceUID", "Rows", "PixelData", "ContentSequence", "NoSuchThing"])
    t.match(mayChange.safeParse([name]).error?.message, new RegExp(`found ${name}`), name);
  t.ok(mayChange.safeParse(["SeriesDescription", "TimezoneOffsetFromUTC"]).success);
  t.end();
});

await t.test("anything else is another object, and its reason quotes no value", async (t) => {
  const different: [RegExp, Buffer][] = [
    [/SOPInstanceUID/, file({ SOPInstanceUID: "1.2.3.5" })],
    [/StudyInstanceUID/, file({ StudyInstanceUID: "1.2.9" })],
    [/SeriesDescription/, file({ SeriesDescription: "Resume" })],
    [/SeriesDescription/, file({ SeriesDescription: undefined })],
    [/SliceThickness/, file({ SliceThickness: "1.6" })],
    [/SeriesNumber/, file({ SeriesNumber: "3" })],
    [
      /AnatomicRegionSequence/,
      file({ AnatomicRegionSequence: [{ ...CODE, CodeMeaning: "Liver" }] }),
    ],
    [/AnatomicRegionSequence/, file({ AnatomicRegionSequence: [CODE, CODE] })],
    [/AnatomicRegionSequence/, file({ AnatomicRegionSequence: [] })],
    [/HighBit/, file({ HighBit: 14 })],
    [/^Other pixels/, file({}, { pixels: Buffer.from([1, 2, 3, 4, 5, 6, 7, 9]) })],
    [/^Other pixels/, file({}, { pixels: PIXELS.subarray(0, 6) })],
    [/^Pixels are on one side alone/, file({}, { pixels: undefined })],
    [/not a whole DICOM object/, SENT.subarray(0, 300)],
    [/not a whole DICOM object/, Buffer.from("<html>404</html>")],
  ];
  for (const [reason, found] of different) {
    const comparison = await compared(found);
    t.match(comparison, { equal: false, reason }, String(reason));
    if (!comparison.equal) t.notMatch(comparison.reason, /Sørensen|Åse|Liver|Resume/);
  }
});

await t.test("pixels that are compressed without loss are decoded", async (t) => {
  // Segments: the high bytes and the low bytes, each as literal runs
  const segments = [Buffer.from([3, 2, 4, 6, 8, 0]), Buffer.from([3, 1, 3, 5, 7, 0])];
  const header = Buffer.alloc(64);
  [2, 64, 70].forEach((value, i) => header.writeUInt32LE(value, 4 * i));
  const frame = Buffer.concat([header, ...segments]);
  const coded = (bytes: Buffer) =>
    file({}, { transferSyntax: RLE, pixels: { fragments: [bytes] } });
  t.same(await compared(coded(frame)), { equal: true, coerced: [], changed_by: [] });
  t.same(await compareObjects(coded(frame), coded(frame)), {
    equal: true,
    coerced: [],
    changed_by: [],
  });
  t.match(await compareObjects(SENT, coded(frame), { decodes: false }), {
    equal: false,
    reason: /^Pixels are coded otherwise/,
  });
  t.match(await compareObjects(coded(frame), coded(frame), { decodes: false }), { equal: true });
  const other = Buffer.from(frame);
  other[66] = 9;
  t.match(await compared(coded(other)), { equal: false, reason: /^Other pixels/ });
  t.match(await compareObjects(coded(frame), coded(other)), {
    equal: false,
    reason: /^Other pixels/,
  });
});

await t.test("what comes back damaged is told of, wherever it is damaged", async (t) => {
  const other = file({ PatientID: "2" });
  for (let at = 0; at < other.length; at += 7) {
    const found = Buffer.from(other);
    found[at] = (found[at] ?? 0) ^ 0xff;
    const result = await compareObjects(SENT, found);
    t.type(result.equal, "boolean");
  }
});
