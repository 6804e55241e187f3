/** Data sets as dcmjs writes them whole. */
import dcmjs from "dcmjs";
import t from "tap";
import {
  EXPLICIT_VR_LITTLE_ENDIAN,
  IMPLICIT_VR_LITTLE_ENDIAN,
  RLE_LOSSLESS,
} from "../../../src/images/dicom/transfer-syntax.js";
import { dataSetBytes, dicomObject, type Dataset } from "../../../src/results/dicom/elements.js";

type Whole = Record<string, { vr: string; Value: unknown[] }>;

function whole(elements: Whole, transferSyntaxUid: string): Buffer {
  const meta = { "00020010": { vr: "UI", Value: [transferSyntaxUid] } };
  const file = new dcmjs.data.DicomDict(meta);
  const head = file.write().byteLength;
  file.dict = elements;
  return Buffer.from(file.write({ fragmentMultiframe: false })).subarray(head);
}

const bytesOf = (dataset: Dataset, syntax = EXPLICIT_VR_LITTLE_ENDIAN) =>
  Buffer.concat(dataSetBytes(dataset, syntax));

const dataset = (name: string, value: number): Dataset => ({
  Rows: 2,
  PatientName: name,
  ImageType: ["DERIVED", "SECONDARY"],
  ImageComments: undefined,
  PatientID: "",
  ContentSequence: [
    {
      ValueType: "NUM",
      MeasuredValueSequence: [{ NumericValue: value, FloatingPointValue: value }],
    },
    { ValueType: "TEXT", TextValue: "a\\b" },
  ],
  ReferencedStudySequence: [],
  SharedFunctionalGroupsSequence: [{}],
});

const expected = (name: string, value: number): Whole => ({
  "00080008": { vr: "CS", Value: ["DERIVED", "SECONDARY"] },
  "00081110": { vr: "SQ", Value: [] },
  "00100010": { vr: "PN", Value: [name] },
  "00100020": { vr: "LO", Value: [] },
  "00280010": { vr: "US", Value: [2] },
  "0040A730": {
    vr: "SQ",
    Value: [
      {
        "0040A040": { vr: "CS", Value: ["NUM"] },
        "0040A300": {
          vr: "SQ",
          Value: [
            {
              "0040A30A": { vr: "DS", Value: [String(value)] },
              "0040A161": { vr: "FD", Value: [value] },
            },
          ],
        },
      },
      { "0040A040": { vr: "CS", Value: ["TEXT"] }, "0040A160": { vr: "UT", Value: ["a\\b"] } },
    ],
  },
  "52009229": { vr: "SQ", Value: [{}] },
});

t.test("the same bytes, the first time and every other", (t) => {
  for (const [name, value] of [
    ["Müller^Jürgen", 1.5],
    ["Yamada^Tarou=山田^太郎", 0],
    ["Müller^Jürgen", -0],
    ["Müller^Jürgen", 0],
    ["Yamada^Tarou=山田^太郎", 1.5],
  ] as const) {
    const bytes = bytesOf(dataset(name, value));
    const other = whole(expected(name, value), EXPLICIT_VR_LITTLE_ENDIAN);
    t.ok(bytes.equals(other), `${name} ${Object.is(value, -0) ? "-0" : value}`);
  }
  t.end();
});

t.test("the same bytes in Implicit VR", (t) => {
  const bytes = bytesOf(dataset("Yamada^Tarou=山田^太郎", 1.5), IMPLICIT_VR_LITTLE_ENDIAN);
  const other = whole(expected("Yamada^Tarou=山田^太郎", 1.5), IMPLICIT_VR_LITTLE_ENDIAN);
  t.ok(bytes.equals(other));
  t.end();
});

t.test("values that look alike are not taken for each other", (t) => {
  const distinct: Dataset[] = [
    { ImageComments: "1" },
    { ImageType: ["A", "B"] },
    { ImageType: ["A,B"] },
    { ImageType: ["A,1:B"] },
    { ImageType: "A" },
    { ContentLabel: "A" },
    { TextValue: "A\\B" },
    { GraphicData: [0, 1] },
    { GraphicData: [-0, 1] },
  ];
  const first = distinct.map((each) => bytesOf(each).toString("hex"));
  t.equal(new Set(first).size, distinct.length);
  const again = distinct.map((each) => bytesOf(each).toString("hex"));
  t.same(again, first);
  t.end();
});

t.test("pixel data is put in as it is, native and as one fragment, padded to even length", (t) => {
  for (const syntax of [EXPLICIT_VR_LITTLE_ENDIAN, RLE_LOSSLESS])
    for (const pixels of [new Uint8Array([1, 2, 3, 4]), new Uint8Array([5, 6, 7])]) {
      const even = new Uint8Array(4);
      even.set(pixels);
      const bytes = bytesOf({ BitsAllocated: 8, PixelData: pixels }, syntax);
      const other = whole(
        {
          "00280100": { vr: "US", Value: [8] },
          "7FE00010": { vr: "OB", Value: [even.buffer] },
        },
        syntax,
      );
      t.ok(bytes.equals(other), `${syntax}, ${pixels.length} bytes`);
    }
  t.end();
});

t.test("values of every form that our objects have, as dcmjs writes them", (t) => {
  const cases: [Dataset, Whole][] = [
    [{ DimensionIndexPointer: 0x00209165 }, { "00209165": { vr: "AT", Value: [0x00209165] } }],
    [{ PatientAge: "045Y" }, { "00101010": { vr: "AS", Value: ["045Y"] } }],
    [{ ContentDate: "20260102" }, { "00080023": { vr: "DA", Value: ["20260102"] } }],
    [{ ContentTime: "101112.5" }, { "00080033": { vr: "TM", Value: ["101112.5"] } }],
    [
      { ObservationDateTime: "20260102101112" },
      { "0040A032": { vr: "DT", Value: ["20260102101112"] } },
    ],
    [
      { PixelSpacing: [0.1, 1 / 3] },
      { "00280030": { vr: "DS", Value: ["0.1", "0.33333333333333"] } },
    ],
    [{ SeriesNumber: 9701 }, { "00200011": { vr: "IS", Value: ["9701"] } }],
    [{ CodeMeaning: "Lunge, rechts ä" }, { "00080104": { vr: "LO", Value: ["Lunge, rechts ä"] } }],
    [{ AdditionalPatientHistory: "a\\b\nc" }, { "001021B0": { vr: "LT", Value: ["a\\b\nc"] } }],
    [{ DerivationDescription: "odd" }, { "00082111": { vr: "ST", Value: ["odd"] } }],
    [{ TimezoneOffsetFromUTC: "+0100" }, { "00080201": { vr: "SH", Value: ["+0100"] } }],
    [{ SOPClassUID: "1.2.3" }, { "00080016": { vr: "UI", Value: ["1.2.3"] } }],
    [{ LongCodeValue: "odd" }, { "00080119": { vr: "UC", Value: ["odd"] } }],
    [{ GraphicData: [1.5, -2.25] }, { "00700022": { vr: "FL", Value: [1.5, -2.25] } }],
    [{ DimensionIndexValues: [1, 70_000] }, { "00209157": { vr: "UL", Value: [1, 70_000] } }],
    [
      { RecommendedDisplayCIELabValue: [1, 65_535] },
      { "0062000D": { vr: "US", Value: [1, 65_535] } },
    ],
    [{ ColumnPositionInTotalImagePixelMatrix: -7 }, { "0048021E": { vr: "SL", Value: [-7] } }],
    // Longer than two bytes of length can say
    [
      { GraphicData: Array.from({ length: 20_000 }, (_, i) => i) },
      { "00700022": { vr: "FL", Value: Array.from({ length: 20_000 }, (_, i) => i) } },
    ],
  ];
  for (const [dataset, elements] of cases)
    t.ok(
      bytesOf(dataset).equals(whole(elements, EXPLICIT_VR_LITTLE_ENDIAN)),
      Object.keys(dataset).join(),
    );
  t.end();
});

t.test("the head of a file, as dcmjs writes it", (t) => {
  for (const syntax of [EXPLICIT_VR_LITTLE_ENDIAN, RLE_LOSSLESS]) {
    const { bytes, sopInstanceUid } = dicomObject(
      { SOPClassUID: "1.2.840.10008.5.1.4.1.1.7", SeriesInstanceUID: "1.2.3" },
      [],
      syntax,
    );
    const meta = dcmjs.data.DicomMessage.readFile(Uint8Array.from(bytes).buffer).meta;
    const file = new dcmjs.data.DicomDict(meta);
    file.dict = {
      "00080016": { vr: "UI", Value: ["1.2.840.10008.5.1.4.1.1.7"] },
      "00080018": { vr: "UI", Value: [sopInstanceUid] },
      "0020000E": { vr: "UI", Value: ["1.2.3"] },
    };
    t.same(meta["00020003"]?.Value, [sopInstanceUid]);
    t.same(meta["00020010"]?.Value, [syntax]);
    t.ok(Buffer.from(file.write()).equals(bytes), syntax);
  }
  t.end();
});

t.test("what would make an element unreadable is refused", (t) => {
  t.throws(
    () => bytesOf({ Modality: "A CODE STRING OF 33 CHARACTERS..." }),
    /at most 16 characters/,
  );
  t.throws(() => bytesOf({ Rows: "many" }), /Expected numbers for US/);
  t.throws(() => bytesOf({ NoSuchKeyword: "1" }), /does not know NoSuchKeyword/);
  t.throws(() => bytesOf({ RedPaletteColorLookupTableData: 1 }), /settled VR/);
  t.end();
});
