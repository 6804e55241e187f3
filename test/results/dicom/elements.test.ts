/** Data sets as dcmjs writes them whole: put together of elements, new ones and such as were written before. */
import dcmjs from "dcmjs";
import t from "tap";
import { EXPLICIT_VR_LITTLE_ENDIAN, RLE_LOSSLESS } from "../../../src/images/dicom/transfer-syntax.js";
import { dataSetBytes, type Dataset } from "../../../src/results/dicom/elements.js";

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
    { ValueType: "NUM", MeasuredValueSequence: [{ NumericValue: value, FloatingPointValue: value }] },
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
            { "0040A30A": { vr: "DS", Value: [String(value)] }, "0040A161": { vr: "FD", Value: [value] } },
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
