/** Which side of the body an image says that it shows. */
import { isQuadruped } from "../../images/dicom/species.js";
import type { Attributes, Image } from "../../images/image.js";
import type { Label } from "../../manifest/outputs/fields.js";
import type { Code } from "../../manifest/texts.js";

export type BodySide = "L" | "R";

/** SNOMED CT, and the SNOMED-RT values of older objects (PS3.16 CID 244). */
const CODES: Readonly<Record<string, BodySide>> = {
  "SCT 7771000": "L",
  "SCT 24028007": "R",
  "SRT G-A101": "L",
  "SRT G-A100": "R",
  "SNM3 G-A101": "L",
  "SNM3 G-A100": "R",
};

export const sideOfCode = (value: string, scheme: string): BodySide | undefined =>
  CODES[`${scheme} ${value}`];

/**
 * What the whole of an image states, or the file of a slice: findings ask for it on each of very
 * many frames.
 */
const statedByAll = new WeakMap<Image | Attributes, ReadonlySet<BodySide>>();

/**
 * Every side that an image states: Laterality and Image Laterality (PS3.3 C.7.3.1, C.8.7.1.1.3),
 * Frame Laterality (C.7.6.16.2.8), and the modifiers of its anatomic regions (table 10-5). "Both"
 * and "unpaired" are no side, and a quadruped has none of a human's. View positions are not read: a
 * left lateral view shows both lungs.
 * @param frame from 1: what is said of other frames of the object does not count; all frames if
 * undefined
 */
export function statedSides(image: Image, frame: number | undefined): ReadonlySet<BodySide> {
  const slice = frame === undefined ? undefined : image.series?.slices[frame - 1];
  const file = slice && image.series?.attributes[slice.file];
  const one = slice === undefined ? frame : slice.frame;
  const known = one === undefined ? statedByAll.get(file ?? image) : undefined;
  if (known !== undefined) return known;
  const all = (image.case?.members ?? [image]).flatMap(
    ({ series, attributes }) =>
      series?.attributes ?? (attributes === undefined ? [] : [attributes]),
  );
  const sets = file === undefined ? all : [file];
  const sides = new Set(sets.flatMap((set) => statedIn(set, one)));
  if (one === undefined) statedByAll.set(file ?? image, sides);
  return sides;
}

function statedIn(attributes: Attributes, frame: number | undefined): BodySide[] {
  if (isQuadruped(attributes)) return [];
  const perFrame = attributes.sequence("PerFrameFunctionalGroupsSequence") ?? [];
  const frames = frame === undefined ? perFrame : perFrame.slice(frame - 1, frame);
  const groups = [...(attributes.sequence("SharedFunctionalGroupsSequence") ?? []), ...frames];
  const anatomy = groups.flatMap((group) => group.sequence("FrameAnatomySequence") ?? []);
  const letters = [
    attributes.string("ImageLaterality"),
    attributes.string("Laterality"),
    ...anatomy.map((item) => item.string("FrameLaterality")),
  ];
  return [
    ...letters.filter((letter) => letter === "L" || letter === "R"),
    ...[attributes, ...anatomy].flatMap(modifiers),
  ];
}

function modifiers(holder: Attributes): BodySide[] {
  const regions = holder.sequence("AnatomicRegionSequence") ?? [];
  return regions
    .flatMap((region) => region.sequence("AnatomicRegionModifierSequence") ?? [])
    .flatMap((code) => {
      const side = sideOfCode(
        code.string("CodeValue") ?? "",
        code.string("CodingSchemeDesignator") ?? "",
      );
      return side ?? [];
    });
}

const SIDES: Readonly<Record<BodySide, Code>> = {
  L: { value: "7771000", scheme: "SCT", meaning: "Left" },
  R: { value: "24028007", scheme: "SCT", meaning: "Right" },
};

/**
 * The side of a label, or of its finding site: as the manifest says, or else the side that the
 * source shows, if it states exactly one. @param slice number in the series, from 1; only the file
 * of this slice is read
 */
export function sideOf(image: Image, label: Label, slice?: number): Code | undefined {
  if (label.laterality !== undefined) return label.laterality;
  const [shown, ...others] = statedSides(image, image.series && slice);
  return shown === undefined || others.length > 0 ? undefined : SIDES[shown];
}
