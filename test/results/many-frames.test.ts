/**
 * What is made of an image of very many frames costs each frame the same, however many there are.
 */
import t from "tap";
import { volumeOf } from "../../src/images/dicom/volume.js";
import { readImage } from "../../src/images/read-image.js";
import { statedSides } from "../../src/results/findings/sides.js";
import { measurementGroups } from "../../src/results/dicom/groups.js";
import { sourceIds } from "../../src/results/dicom/source.js";
import type { Finding, Measurement } from "../../src/results/receipt/receipt.js";
import {
  CT_SLICE,
  dicomFile,
  encodeAttributes,
  encodeElement,
  imageAttributes,
  Typed,
  type Attributes,
} from "../support/dicom.js";
import { engineWithFolder } from "../support/real-engine.js";
import { loadTestModel } from "../support/test-models.js";
import { ADDON, needs } from "../support/needs.js";

const explicit = { explicit: true, little: true };

/** An image whose frames are one pixel each, one behind the other. */
function stack(frames: number): Buffer {
  const shared: Attributes = {
    FrameAnatomySequence: [{ FrameLaterality: "L" }],
    PlaneOrientationSequence: [{ ImageOrientationPatient: "1\\0\\0\\0\\1\\0" }],
    PixelMeasuresSequence: [{ PixelSpacing: "1\\1", SliceThickness: "1" }],
  };
  // One item's bytes for each frame, with its own number
  const own = encodeAttributes(
    { PlanePositionSequence: [{ ImagePositionPatient: "0\\0\\######" }] },
    explicit,
  );
  const head = encodeElement(
    0xfffee000,
    "",
    Buffer.alloc(0),
    { explicit: false, little: true },
    own.length,
  );
  const item = Buffer.concat([head, own]);
  const items = Buffer.alloc(frames * item.length, item);
  for (let frame = 0; frame < frames; frame++)
    items.write(
      String(frame).padStart(6, "0"),
      frame * item.length + item.indexOf("######"),
      "ascii",
    );
  return dicomFile({
    attributes: {
      ...imageAttributes({ ...CT_SLICE, Rows: 1, Columns: 1, NumberOfFrames: String(frames) }),
      SOPClassUID: "1.2.840.10008.5.1.4.1.1.2.1",
      SharedFunctionalGroupsSequence: new Typed("SQ", [shared]),
    },
    trailing: Buffer.concat([
      encodeElement(0x52009230, "SQ", items, explicit),
      encodeElement(0x7fe00010, "OW", Buffer.alloc(2 * frames), explicit),
    ]),
  });
}

/** The same object, which counts in `reads` how often something of it is asked for. */
function counted<T extends object>(object: T, reads: { count: number }, within: string[] = []): T {
  return new Proxy(object, {
    get(target, key) {
      reads.count += 1;
      const value: unknown = Reflect.get(target, key, target);
      if (typeof value === "function") return value.bind(target) as unknown;
      return within.includes(String(key)) ? counted(value as object, reads) : value;
    },
  });
}

t.test("the sides that an image states are looked for once", async (t) => {
  const reads = { count: 0 };
  const image = counted(await readImage(stack(3_000)), reads, ["attributes"]);
  t.strictSame([...statedSides(image, 1)], ["L"]);
  statedSides(image, undefined);
  const once = (work: () => void) => {
    reads.count = 0;
    work();
    return reads.count;
  };
  const again = once(() => statedSides(image, undefined));
  const asked = once(() => {
    for (let finding = 0; finding < 3_000; finding++) statedSides(image, undefined);
  });
  t.equal(asked, 3_000 * again);
  t.ok(again < 5, `${again} reads of the image, however many frames it has`);
});

t.test("more planes than a function takes arguments are one volume", async (t) => {
  const { frames, geometry } = volumeOf(await readImage(stack(130_000)));
  t.equal(frames.length, 130_000);
  t.match(geometry, { sliceSpacing: 1 });
});

t.test("measurements are found by their finding", { skip: needs(ADDON) }, async (t) => {
  const { engine, folder } = engineWithFolder(t, "many-frames");
  const model = await loadTestModel(engine, folder, "segmenter");
  const image = await readImage(stack(1));
  const { attributes } = image;
  const ids = sourceIds(image);
  if (attributes === undefined || "missing" in ids) throw new Error("The image has identifiers");
  const when = { startedAt: new Date(0), utcOffset: "+0000" };
  const subject = { image, attributes, ids, others: [], model, ...when };
  const code = { value: "42798000", scheme: "SCT", meaning: "Area" };
  const unit = { value: "cm2", scheme: "UCUM", meaning: "square centimeter" };
  /** How often something of a finding or a measurement is asked for in a report of so many. */
  const report = (count: number) => {
    const reads = { count: 0 };
    const each = Array.from({ length: count }, (_, i) => ({ label: "grey", frame: i + 1 }));
    const findings = each.map((place) => counted<Finding>({ ...place, present: true }, reads));
    const measurements = each.map((place) =>
      counted<Measurement>({ ...place, name: "area", code, value: 1, unit }, reads),
    );
    measurementGroups(subject, { findings, measurements, warnings: [] }, undefined);
    return reads.count;
  };
  const [some, more] = [report(500), report(1_000)];
  t.ok(some >= 1_000, "each is looked at");
  t.ok(more <= 2.1 * some, `${(more / some).toFixed(2)} for twice as many`);
});
