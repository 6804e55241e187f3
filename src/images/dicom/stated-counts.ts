/**
 * How many images a series has by what its images say. Fewer may be an export of a part, or the
 * slices that a transfer lost: at the ends, or where every second one is missing, positions show
 * nothing of it.
 */
import { groupsBy } from "../../base/groups.js";
import { rangeOf } from "../../base/range.js";
import type { Attributes, Warning } from "../image.js";
import type { DataSetAttributes, PrivateElement } from "./attributes.js";
import { valuesIn } from "./frame-values.js";

/** A file of the series. */
export interface CountedFile {
  attributes: DataSetAttributes;
  frames: readonly unknown[];
}

/**
 * Of a series, a volume (slices at one time), or what one AcquisitionNumber has (PS3.3 C.7.6.1,
 * C.8.9.1); and NumberOfSeriesRelatedInstances, which some archives write into files (PS3.4
 * C.3.4).
 */
const OF_SERIES = "NumberOfSeriesRelatedInstances";
const OF_VOLUME = "NumberOfSlices";
const OF_ACQUISITION = "ImagesInAcquisition";
const ACQUISITION = "AcquisitionNumber";

const PRIVATE_COUNTS: readonly (PrivateElement & { name: string })[] = [
  {
    name: "GE's images in series",
    creator: "GEMS_SERS_01",
    group: 0x0025,
    element: 0x07,
    vr: "SL",
  },
  {
    name: "GE's locations in acquisition",
    creator: "GEMS_RELA_01",
    group: 0x0021,
    element: 0x4f,
    vr: "SS",
  },
  {
    name: "Philips' NumberOfSlicesMR",
    creator: "Philips Imaging DD 001",
    group: 0x2001,
    element: 0x18,
    vr: "SL",
  },
];

/** Beyond it a number is no count of images. */
const MOST = 1e6;

/** One warning that names each attribute that says more images than there are. */
export function countCaveats(files: readonly CountedFile[]): Warning[] {
  const found = framesOf(files);
  // Reformats and maps keep the other counts of the series that they were made of
  const isDerived = files.some(
    ({ attributes }) => attributes.strings("ImageType")?.[0] === "DERIVED",
  );
  const fewer = [
    ...lacking(OF_SERIES, found, countsBy(files, OF_SERIES)),
    ...(isDerived ? [] : ofSource(files)),
  ];
  return fewer.length === 0
    ? []
    : [fewerImages("The series has fewer images than they say", fewer)];
}

function fewerImages(what: string, found: readonly string[]): Warning {
  const message =
    `${what}: ${found.join("; ")}. If no part of it was left out on purpose, ` +
    "images are missing; volumes and counts are of those that are there.";
  return { code: "fewer_images", message };
}

/** How far a distance may be from a whole number of the stated ones, as a part of one. */
const WHOLE = 0.02;

/**
 * A warning where slices lie two, three or more times as far apart as SpacingBetweenSlices says:
 * every second one, or two of three, are missing. Other differences say nothing of that. Nuclear
 * medicine places its slices by the attribute itself.
 * @param spacing the distance of slices by their positions
 */
export function spacingCaveats(
  slices: readonly { attributes: Attributes; frame: number }[],
  spacing: number,
): Warning[] {
  const [first] = slices;
  if (first === undefined || first.attributes.string("Modality") === "NM") return [];
  // Reformats keep what their source said
  if (first.attributes.strings("ImageType")?.[0] === "DERIVED") return [];
  const valueIn = ({ attributes, frame }: typeof first, keyword: string) =>
    Math.abs(valuesIn(attributes, keyword, frame).at(-1)?.number(keyword) ?? 0);
  /** What all slices say; 0 if nothing is said, or not the same. */
  const valueOf = (keyword: string) => {
    const value = valueIn(first, keyword);
    const isOfAll = value > 0 && slices.every((slice) => valueIn(slice, keyword) === value);
    return isOfAll ? value : 0;
  };
  const stated = valueOf("SpacingBetweenSlices");
  const times = Math.round(spacing / stated);
  const isNear = (distance: number) => Math.abs(spacing - distance) <= WHOLE * stated;
  if (stated === 0 || times < 2 || !isNear(times * stated)) return [];
  // Some devices state the gap between one slice's edge and the next. That of slices as thick as
  // the stated distance is none: it is how contiguous slices are described
  const thickness = valueOf("SliceThickness");
  if (Math.abs(thickness - stated) > WHOLE * stated && isNear(thickness + stated)) return [];
  const shown = (mm: number) => Number(mm.toPrecision(4));
  return [
    fewerImages("The slices lie further apart than they say", [
      `SpacingBetweenSlices says ${shown(stated)} mm, found ${shown(spacing)} mm, ${times} times as much`,
    ]),
  ];
}

/** By counts of what was acquired. */
function ofSource(files: readonly CountedFile[]): string[] {
  const found = framesOf(files);
  return [
    ...lacking(OF_VOLUME, found, countsBy(files, OF_VOLUME)),
    ...ofAcquisitions(files),
    ...PRIVATE_COUNTS.flatMap(({ name, ...place }) =>
      lacking(
        name,
        found,
        files.map(({ attributes }) => Number(attributes.privateValues(place)[0])),
      ),
    ),
  ];
}

/**
 * Each acquisition by itself. A number that none of several reaches is that of all together: some
 * devices number each slice, or each volume, as an acquisition.
 */
function ofAcquisitions(files: readonly CountedFile[]): string[] {
  const parts = [
    ...groupsBy(files, ({ attributes }) => attributes.string(ACQUISITION) ?? "").values(),
  ];
  const said = countsBy(files, OF_ACQUISITION);
  const [, most] = rangeOf(parts.map(framesOf));
  if (parts.length > 1 && said.every((count) => count === said[0] && count > most))
    return lacking(OF_ACQUISITION, framesOf(files), said);
  const found = parts.flatMap((part) =>
    lacking(OF_ACQUISITION, framesOf(part), countsBy(part, OF_ACQUISITION)),
  );
  return found.slice(0, 1);
}

const framesOf = (files: readonly CountedFile[]): number =>
  files.reduce((sum, { frames }) => sum + frames.length, 0);

const countsBy = (files: readonly CountedFile[], keyword: string): number[] =>
  files.map(({ attributes }) => attributes.number(keyword) ?? 0);

/** Files that say different numbers are not of one whole: nothing is known then. */
function lacking(name: string, found: number, said: readonly number[]): string[] {
  const counts = new Set(
    said.filter((count) => Number.isInteger(count) && count > 0 && count < MOST),
  );
  const [count = 0] = counts;
  return counts.size === 1 && count > found ? [`${name} says ${count}, found ${found}`] : [];
}
