/**
 * Labels with a side, or of an image of one side, in every object: with the site that the manifest
 * names, or without one, as the labels of TotalSegmentator are.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import t from "tap";
import { openFile } from "../../../src/images/dicom/dicom-file.js";
import type { Attributes } from "../../../src/images/image.js";
import { infer } from "../../../src/inference/infer-image.js";
import type { Label } from "../../../src/manifest/outputs/fields.js";
import { labelsOf } from "../../../src/manifest/outputs/outputs.js";
import type { ModelEntry } from "../../../src/models/entry.js";
import type { Attributes as Source } from "../../support/dicom.js";
import { sct } from "../../support/model-parts.js";
import { ADDON, commandsAre, needs } from "../../support/needs.js";
import { engineWithFolder } from "../../support/real-engine.js";
import { slice } from "../../support/series.js";
import { loadTestModel } from "../../support/test-models.js";
import { objectErrors } from "../../support/validators.js";

const [LEFT, RIGHT] = [sct("7771000", "Left"), sct("24028007", "Right")];
const KIDNEY = sct("64033007", "Kidney");
const STRUCTURE = sct("123037004", "Anatomical Structure");
const LESION = sct("49755003", "Morphologically Altered Structure");

const [FINDING, SITE, SIDE] = ["121071", "363698007", "272741003"];

const children = (item: Attributes, name: string) =>
  (item.sequence("ContentSequence") ?? []).filter((child) => nameOf(child) === name);
const codeIn = (item: Attributes | undefined, sequence: string) =>
  item?.sequence(sequence)?.[0]?.string("CodeValue");
const nameOf = (item: Attributes) => codeIn(item, "ConceptNameCodeSequence");
const valueOf = (item: Attributes | undefined) => codeIn(item, "ConceptCodeSequence");
const everything = (item: Attributes): Attributes[] => [
  item,
  ...(item.sequence("ContentSequence") ?? []).flatMap(everything),
];

/** The side below an item; undefined if it has none. */
const sideBelow = (item: Attributes | undefined) =>
  item === undefined ? undefined : valueOf(children(item, SIDE)[0]);

t.test("sides of labels", { skip: needs(ADDON) }, async (t) => {
  const { engine, folder } = engineWithFolder(t, "sides");
  // Of its two labels "bright" is absent from an image of zeros, and "dark" is found
  const overlapping = await loadTestModel(engine, folder, "overlapping");

  let count = 0;
  const run = async (bright: Partial<Label>, dark: Partial<Label>, source: Source = {}) => {
    const manifest = structuredClone(overlapping.manifest);
    const labels = manifest.outputs.flatMap(labelsOf);
    for (const [i, more] of [bright, dark].entries()) {
      delete labels[i]!.finding_site;
      Object.assign(labels[i]!, more);
    }
    const model: ModelEntry = { ...overlapping, manifest };
    const inputPath = join(folder, `source-${++count}`);
    writeFileSync(inputPath, slice({ z: 0, attributes: source }));
    const answer = await infer(
      {
        requestId: "test",
        inputPath,
        outputFolder: join(folder, `out-${count}`),
        outputs: ["sr", "seg", "rtstruct"],
        priority: "routine",
        cancelId: 1,
        roots: { input: undefined, output: undefined },
      },
      { engine, models: [model] },
    );
    const paths = answer.models[0]!.outputs.map(({ path }) => path).filter((path) =>
      path.endsWith(".dcm"),
    );
    t.equal(paths.length, 3);
    if (commandsAre("dciodvfy") === false)
      for (const path of paths) t.strictSame(objectErrors(path), [], basename(path));
    const object = (kind: string) =>
      openFile(readFileSync(paths.find((path) => path.endsWith(`.${kind}.dcm`))!)).attributes;
    const [sr, seg, rtstruct] = [object("sr"), object("seg"), object("rtstruct")];
    const segments = seg.sequence("SegmentSequence")!.map((segment) => {
      const [type] = segment.sequence("SegmentedPropertyTypeCodeSequence")!;
      const [region] = segment.sequence("AnatomicRegionSequence") ?? [];
      return [
        codeIn(type, "SegmentedPropertyTypeModifierCodeSequence"),
        region?.string("CodeValue"),
        codeIn(region, "AnatomicRegionModifierSequence"),
      ];
    });
    const regions = rtstruct
      .sequence("RTROIObservationsSequence")!
      .map((region) =>
        codeIn(
          region.sequence("RTROIIdentificationCodeSequence")![0],
          "SegmentedPropertyTypeModifierCodeSequence",
        ),
      );
    const groups = everything(sr).filter((item) => nameOf(item) === "125007");
    const found = groups.map((group) => {
      const [finding] = children(group, FINDING);
      const [site] = children(group, SITE);
      return [sideBelow(finding), valueOf(site), sideBelow(site)];
    });
    const absent = everything(sr)
      .filter((item) => valueOf(item) === "272519000")
      .map((item) => {
        const [site] = children(item, SITE);
        return [sideBelow(item), valueOf(site), sideBelow(site)];
      });
    return { segments, regions, found, absent };
  };
  const none = undefined;

  await t.test("two sides of one structure differ by more than their names", async (t) => {
    const kidney = { code: KIDNEY, category: STRUCTURE };
    t.strictSame(await run({ ...kidney, laterality: LEFT }, { ...kidney, laterality: RIGHT }), {
      segments: [
        [LEFT.value, none, none],
        [RIGHT.value, none, none],
      ],
      regions: [LEFT.value, RIGHT.value],
      found: [[none, KIDNEY.value, RIGHT.value]],
      absent: [[LEFT.value, none, none]],
    });
  });

  await t.test("what is no structure of the body has its side at the finding", async (t) => {
    const cyst = { code: sct("367643001", "Cyst"), category: LESION };
    t.strictSame(await run({ ...cyst, laterality: LEFT }, { ...cyst, laterality: RIGHT }), {
      segments: [
        [LEFT.value, none, none],
        [RIGHT.value, none, none],
      ],
      regions: [LEFT.value, RIGHT.value],
      found: [[RIGHT.value, none, none]],
      absent: [[LEFT.value, none, none]],
    });
  });

  await t.test("with a site, the side is the site's", async (t) => {
    const cyst = { code: sct("367643001", "Cyst"), category: LESION, finding_site: KIDNEY };
    t.strictSame(await run({ ...cyst, laterality: LEFT }, { ...cyst, laterality: RIGHT }), {
      segments: [
        [none, KIDNEY.value, LEFT.value],
        [none, KIDNEY.value, RIGHT.value],
      ],
      regions: [LEFT.value, RIGHT.value],
      found: [[none, KIDNEY.value, RIGHT.value]],
      absent: [[none, KIDNEY.value, LEFT.value]],
    });
  });

  await t.test("the image's side is that of labels without a side", async (t) => {
    const source = { Laterality: "R" };
    t.strictSame(await run({ category: LESION }, { category: STRUCTURE }, source), {
      segments: [
        [RIGHT.value, none, none],
        [RIGHT.value, none, none],
      ],
      regions: [RIGHT.value, RIGHT.value],
      found: [[none, overlapping.manifest.outputs.flatMap(labelsOf)[1]!.code!.value, RIGHT.value]],
      absent: [[RIGHT.value, none, none]],
    });
  });
});
