/**
 * What a file of very many parts costs, in each form that parts can have: no more processor time
 * than an honest file of many frames, however few kilobytes it was deflated to.
 */
import { deflateRawSync } from "node:zlib";
import t from "tap";
import { MemoryPlaces, ProcessMemory } from "../../../src/base/process-memory.js";
import { withUnpacked } from "../../../src/inference/reading-memory.js";
import { acquisitionCaveats } from "../../../src/images/dicom/acquisition.js";
import { readImage } from "../../../src/images/read-image.js";
import {
  CT_SLICE,
  DEFLATED,
  dicomFile,
  encodeAttributes,
  encodeElement,
  imageAttributes,
  Typed,
  type Attributes,
} from "../../support/dicom.js";
import { refuses } from "../../support/expect.js";

const explicit = { explicit: true, little: true };
/** Bytes of the parts of one file. */
const SIZE = 15_000_000;
/** Whose file costs as much as others may. */
const HONEST_FRAMES = 10_000;

const head = (tag: number, length = 0) =>
  encodeElement(tag, "", Buffer.alloc(0), { explicit: false, little: true }, length);
const ITEM = head(0xfffee000);
const OPEN_ITEM = head(0xfffee000, 0xffffffff);
const ITEM_END = head(0xfffee00d);
const SEQUENCE_END = head(0xfffee0dd);
const item = (body: Buffer) => Buffer.concat([head(0xfffee000, body.length), body]);
const element = (tag: number, vr: string, body: Buffer = Buffer.alloc(0)) =>
  encodeElement(tag, vr, body, explicit);
const open = (tag: number, vr: string, body: Buffer) =>
  Buffer.concat([
    encodeElement(tag, vr, Buffer.alloc(0), explicit, 0xffffffff),
    body,
    SEQUENCE_END,
  ]);
const many = (part: Buffer, size = SIZE) =>
  Buffer.alloc(Math.floor(size / part.length) * part.length, part);

const one = element(0x00080100, "SH");
const private1 = 0x00191010;
const nested = (depth: number): Buffer =>
  depth === 0
    ? ITEM
    : open(0x00082112, "SQ", Buffer.concat([OPEN_ITEM, nested(depth - 1), ITEM_END]));

/** The elements of an image, with others behind those of group 0008 and before the pixels. */
function dataSet(early: Buffer, late: Buffer, attributes: Attributes = {}): Buffer {
  const all = Object.entries(imageAttributes({ ...CT_SLICE, ...attributes }));
  const isEarly = ([keyword]: [string, unknown]) => /UID$|Modality|ImageType/.test(keyword);
  const part = (entries: typeof all) => encodeAttributes(Object.fromEntries(entries), explicit);
  return Buffer.concat([
    part(all.filter(isEarly)),
    early,
    part(all.filter((a) => !isEarly(a))),
    late,
  ]);
}
const pixels = element(0x7fe00010, "OW", Buffer.alloc(16, 7));
const early = (parts: Buffer) => () => dataSet(parts, pixels);
const late = (parts: Buffer) => () => dataSet(Buffer.alloc(0), Buffer.concat([parts, pixels]));

const encapsulated = (fragment: Buffer) =>
  dataSet(Buffer.alloc(0), open(0x7fe00010, "OB", Buffer.concat([ITEM, item(fragment)])));
/** A DHT segment whose counts of codes are the largest, and that ends behind them. */
const tables = Buffer.concat([Buffer.from([0xff, 0xc4, 0, 19, 0]), Buffer.alloc(16, 255)]);

/** An image whose frames are one pixel each; what all share, and what each has for itself. */
function frames(count: number, shared: Buffer, own: Buffer): Buffer {
  const groups = [
    open(0x52009229, "SQ", shared),
    open(0x52009230, "SQ", many(own, own.length * count)),
  ];
  const bytes = element(0x7fe00010, "OB", Buffer.alloc(count));
  return dataSet(Buffer.alloc(0), Buffer.concat([...groups, bytes]), {
    Rows: 1,
    Columns: 1,
    NumberOfFrames: String(count),
  });
}
const transformation = (type: Buffer) =>
  item(
    element(
      0x00289145,
      "SQ",
      item(
        Buffer.concat([
          element(0x00281052, "DS", Buffer.from("1 ")),
          element(0x00281053, "DS", Buffer.from("1 ")),
          element(0x00281054, "UN", type),
        ]),
      ),
    ),
  );

const FORMS: Record<string, () => Buffer> = {
  "empty items": early(open(0x00081140, "SQ", many(ITEM))),
  "empty items in a sequence of defined length": early(element(0x00081140, "SQ", many(ITEM))),
  "empty items of undefined length": early(
    open(0x00081140, "SQ", many(Buffer.concat([OPEN_ITEM, ITEM_END]))),
  ),
  "items of one element": early(open(0x00081140, "SQ", many(item(one)))),
  "nested items": early(many(nested(30))),
  "sequences in one item": early(open(0x00081140, "SQ", item(many(element(0x00081140, "SQ"))))),
  "private items": early(open(private1, "SQ", many(ITEM))),
  "private items of unknown representation": early(open(private1, "UN", many(ITEM))),
  "private fragments": early(open(private1, "OB", many(ITEM))),
  "fragments of pixels": () => dataSet(Buffer.alloc(0), open(0x7fe00010, "OB", many(ITEM))),
  "items of frames": late(open(0x52009230, "SQ", many(ITEM))),
  "items that all frames share": late(open(0x52009229, "SQ", many(item(one)))),
  "items of a look-up table": late(open(0x00283010, "SQ", many(item(one)))),
  "items in no sequence": early(many(ITEM)),
  "ends of items": early(many(ITEM_END)),
  "one element again and again": early(many(one)),
  "Huffman tables of a JPEG": () =>
    encapsulated(Buffer.concat([Buffer.from([0xff, 0xd8]), many(tables)])),
  "frames that repeat what all share": () =>
    frames(4000, transformation(Buffer.alloc(60_000, "HU")), transformation(Buffer.from("HU"))),
};

function honest(): Buffer {
  const groups: Attributes[] = Array.from({ length: HONEST_FRAMES }, (_, i) => ({
    FrameContentSequence: [
      { StackID: "1", InStackPositionNumber: i + 1, DimensionIndexValues: [1, i + 1] },
    ],
    PlanePositionSequence: [{ ImagePositionPatient: `0\\0\\${i}` }],
    PlaneOrientationSequence: [{ ImageOrientationPatient: "1\\0\\0\\0\\1\\0" }],
    PixelMeasuresSequence: [{ PixelSpacing: "1\\1", SliceThickness: "1" }],
    FrameVOILUTSequence: [{ WindowCenter: "40", WindowWidth: "400" }],
    PixelValueTransformationSequence: [
      { RescaleIntercept: "-1024", RescaleSlope: "1", RescaleType: "HU" },
    ],
  }));
  const PerFrameFunctionalGroupsSequence = new Typed("SQ", groups, true);
  const attributes = imageAttributes({ ...CT_SLICE, NumberOfFrames: String(HONEST_FRAMES) });
  return dicomFile({
    attributes: { ...attributes, PerFrameFunctionalGroupsSequence },
    pixels: Buffer.alloc(16 * HONEST_FRAMES),
    pixelVr: "OB",
  });
}

function deflatedFile(content: Buffer): Buffer {
  // An empty deflate stream is two bytes long
  const start = dicomFile({ transferSyntax: DEFLATED, attributes: {} }).subarray(0, -2);
  return Buffer.concat([start, deflateRawSync(content, { level: 1 })]);
}

const memory = new ProcessMemory(new MemoryPlaces(1, 8 * 2 ** 30).take());

/** Seconds of processors that reading takes, with what counts before; it may be refused. */
async function cost(bytes: Buffer): Promise<number> {
  const before = process.cpuUsage();
  await withUnpacked(memory, bytes, { patient: true, check: () => undefined }, (most) =>
    readImage(bytes, undefined, most),
  ).catch(() => undefined);
  const { user, system } = process.cpuUsage(before);
  return (user + system) / 1e6;
}

t.test("no form of very many parts costs more than an honest file of many frames", async (t) => {
  const most = await cost(honest());
  for (const [name, form] of Object.entries(FORMS)) {
    const found = await cost(deflatedFile(form()));
    t.ok(found <= most, `${name}: ${(found / most).toFixed(2)} of an honest file`);
  }
});

/** A table of 65,536 entries. */
const table: Attributes = {
  LUTDescriptor: new Typed("US", [0, 0, 16]),
  LUTData: new Typed("OW", Buffer.alloc(1 << 17, 1)),
};
const MANY = 5000;
const list = (value: string) => Array.from({ length: MANY }, () => value).join("\\");
const items = (one: Attributes) => Array.from({ length: MANY }, () => one);
const windows: Attributes = { WindowCenter: list("40"), WindowWidth: list("400") };
const mapping: Attributes = {
  RealWorldValueFirstValueMapped: new Typed("SS", 0),
  RealWorldValueLastValueMapped: new Typed("SS", 9),
  RealWorldValueSlope: new Typed("FD", 1),
  RealWorldValueIntercept: new Typed("FD", 0),
};
const region: Attributes = {
  RegionSpatialFormat: 1,
  PhysicalUnitsXDirection: 3,
  PhysicalUnitsYDirection: 3,
  PhysicalDeltaX: new Typed("FD", 0.1),
  PhysicalDeltaY: new Typed("FD", 0.1),
  RegionLocationMinX0: 0,
  RegionLocationMinY0: 0,
  RegionLocationMaxX1: 0,
  RegionLocationMaxY1: 0,
};

/** What all frames share, at the top or in a functional group. */
const SHARED: Record<string, Attributes> = {
  "a Modality LUT": { ModalityLUTSequence: [{ ...table, ModalityLUTType: "US" }] },
  "a VOI LUT": { VOILUTSequence: [table] },
  windows,
  "windows in a functional group too": {
    ...windows,
    SharedFunctionalGroupsSequence: [{ FrameVOILUTSequence: [windows] }],
  },
  "Real World Value Mappings": { RealWorldValueMappingSequence: items(mapping) },
  "regions of ultrasound": { SequenceOfUltrasoundRegions: items(region), PixelSpacing: "2\\2" },
  "words of ImageType": { ImageType: `ORIGINAL\\PRIMARY\\${list("AXIAL")}` },
};

/** Each frame with an item of its own, in which nothing is. */
const sharing = (attributes: Attributes): Buffer =>
  dicomFile({
    attributes: imageAttributes({
      ...CT_SLICE,
      Rows: 1,
      Columns: 1,
      NumberOfFrames: String(HONEST_FRAMES),
      ...attributes,
      PerFrameFunctionalGroupsSequence: Array.from({ length: HONEST_FRAMES }, () => ({})),
    }),
    pixels: Buffer.alloc(2 * HONEST_FRAMES),
  });

/** Seconds of processors that reading takes together with what the image says of all its frames. */
async function costOfFrames(bytes: Buffer): Promise<number> {
  const before = process.cpuUsage();
  const image = await readImage(bytes);
  for (let frame = 0; frame < image.frameCount; frame++) {
    image.interpretation(frame);
    image.spacing(frame);
  }
  const { user, system } = process.cpuUsage(before);
  return (user + system) / 1e6;
}

t.test("what all frames share is interpreted once for them", async (t) => {
  const most = await costOfFrames(honest());
  for (const [name, attributes] of Object.entries(SHARED)) {
    const file = sharing(attributes);
    const found = await costOfFrames(file);
    t.ok(found <= most, `${name}: ${(found / most).toFixed(2)} of an honest file`);
    const image = await readImage(file);
    const [one, other] = [image.interpretation(0), image.interpretation(1)];
    t.equal(one.voi, other.voi, `${name}: one list of windows and tables`);
    t.equal(one.realWorld, other.realWorld, `${name}: one list of mappings`);
    t.equal(image.regions?.(0), image.regions?.(1), `${name}: one list of regions`);
    if (one.modality.kind === "lut" && other.modality.kind === "lut")
      t.equal(one.modality.lut, other.modality.lut, `${name}: one table`);
  }
});

t.test("what all frames share is read once for them", async (t) => {
  const count = 20_000;
  const attributes = imageAttributes({
    ...CT_SLICE,
    Rows: 1,
    Columns: 1,
    NumberOfFrames: String(count),
    ImageType: "A\\".repeat(30_000),
  });
  const image = await readImage(dicomFile({ attributes, pixels: Buffer.alloc(2 * count) }));
  const slices = Array.from({ length: count }, (_, frame) => {
    return { attributes: image.attributes!, frame, plane: undefined };
  });
  const before = process.cpuUsage();
  t.strictSame(acquisitionCaveats(slices, "frames"), []);
  const { user, system } = process.cpuUsage(before);
  // For each frame anew it would take a minute of the processor
  t.ok(user + system < 10e6, `${(user + system) / 1e6} s of the processor`);
});

t.test("each budget refuses by name, wherever its parts lie", async (t) => {
  const plain = (content: Buffer) => Buffer.concat([dicomFile({ attributes: {} }), content]);
  const refused: [string, Buffer, RegExp][] = [
    [
      "elements",
      dataSet(many(one, 8 * 70_000), pixels),
      /at most 65536 elements in one data set or item/,
    ],
    [
      "items that are asked for",
      dataSet(
        Buffer.alloc(0),
        Buffer.concat([open(0x52009229, "SQ", many(ITEM, 8 * 270_000)), pixels]),
      ),
      /at most 262144 items in SharedFunctionalGroupsSequence/,
    ],
    ["ends of items", dataSet(many(ITEM_END, 8 * 2_100_000), pixels), /2000000 elements and items/],
    [
      "items of a sequence of defined length",
      dataSet(element(0x00081140, "SQ", many(ITEM, 8 * 2_100_000)), pixels),
      /2000000 elements and items/,
    ],
  ];
  for (const [name, content, message] of refused)
    await refuses(t, plain(content), "unsupported_format", message, name);
  let deep = ITEM;
  for (let depth = 0; depth < 40; depth++) deep = item(element(0x00082112, "SQ", deep));
  const file = plain(dataSet(element(0x00081140, "SQ", deep), pixels));
  await refuses(t, file, "corrupt_image", /deeper than 32/, "depth of sequences of defined length");
});
