/**
 * What is made of an image of very many frames costs each frame the same, however many there are.
 */
import t from "tap";
import { readImage } from "../../src/images/read-image.js";
import { statedSides } from "../../src/results/findings/sides.js";
import { measurementGroups } from "../../src/results/dicom/groups.js";
import { sourceIds } from "../../src/results/dicom/source.js";
import type { Finding, Measurement } from "../../src/results/receipt/receipt.js";
import { stack } from "../support/stack.js";
import { engineWithFolder } from "../support/real-engine.js";
import { loadTestModel } from "../support/test-models.js";
import { ADDON, needs } from "../support/needs.js";

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
