/**
 * Frames that show many slices side by side, as scanners of Siemens and United Imaging store
 * functional MR and diffusion. The position that they state is that of the large frame, in which no
 * slice lies.
 */
import type { PlaneFault } from "../image.js";
import type { DataSetAttributes, PrivateElement } from "./attributes.js";
import { perFrame } from "./functional-groups.js";

/** How types of images call it; VFRAME is United Imaging's name. */
const NAMES = ["MOSAIC", "VFRAME"];

const FRAME_TYPES = [
  "MRImageFrameTypeSequence",
  "MRSpectroscopyFrameTypeSequence",
  "CTImageFrameTypeSequence",
  "PETFrameTypeSequence",
];

/** Creators of what Siemens' scanners say of an image, a series and its reconstruction. */
const SIEMENS_OWN = ["SDI", "SDS", "SDR"].flatMap((of) =>
  ["01", "02", "03"].map((version) => `SIEMENS MR ${of} ${version}`),
);
/** What some of them say in place of Image Type, at the top or in their own groups. */
const TYPE_TEXTS: readonly PrivateElement[] = SIEMENS_OWN.map((creator) => ({
  creator,
  group: 0x0021,
  element: 0x75,
  vr: "CS",
}));
const OWN_GROUPS: readonly PrivateElement[] = SIEMENS_OWN.map((creator) => ({
  creator,
  group: 0x0021,
  element: 0xfe,
}));

/** Numbers of slices in one frame. */
const COUNTS: readonly (PrivateElement & { name: string })[] = [
  {
    name: "NumberOfImagesInMosaic of Siemens",
    creator: "SIEMENS MR HEADER",
    group: 0x0019,
    element: 0x0a,
    vr: "US",
  },
  {
    name: "the number of slices in a VFRAME of United Imaging",
    creator: "Image Private Header",
    group: 0x0065,
    element: 0x50,
    vr: "DS",
  },
];
/** The times at which each slice of a mosaic was acquired, one for each. */
const SLICE_TIMES: PrivateElement = {
  creator: "SIEMENS MR HEADER",
  group: 0x0019,
  element: 0x29,
  vr: "FD",
};
/** What each slice of a VFRAME has an item of. */
const VFRAME_ITEMS: PrivateElement = {
  creator: "Image Private Header",
  group: 0x0065,
  element: 0x51,
};
const CSA_HEADER: PrivateElement = { creator: "SIEMENS CSA HEADER", group: 0x0029, element: 0x10 };

/** Why a frame (from 0) that shows many slices has no place; undefined for others. */
export function mosaicReader(
  attributes: DataSetAttributes,
): (frame: number) => PlaneFault | undefined {
  const top = saidBy(attributes);
  const shared = saidBy(attributes.sequence("SharedFunctionalGroupsSequence")?.[0]);
  const wide = top.counted === undefined ? tooWide(attributes) : undefined;
  return perFrame(attributes, (frame) => {
    const own = saidBy(attributes.sequence("PerFrameFunctionalGroupsSequence")?.[frame]);
    const counted = top.counted ?? shared.counted ?? own.counted;
    const said = counted?.name ?? top.name ?? shared.name ?? own.name ?? wide;
    if (said === undefined) return undefined;
    return {
      reason: "mosaic",
      message:
        `Expected frames of one slice, found a mosaic of ${counted?.slices ?? "many"} (${said}); ` +
        "where the frame lies in the patient is not known, and areas in it are those of several " +
        "slices. Convert it to slices first.",
    };
  });
}

/** What the data set or a group says of a mosaic: how many slices it has, and what calls it one. */
function saidBy(holder: DataSetAttributes | undefined): {
  counted?: ReturnType<typeof countedSlices>;
  name?: string | undefined;
} {
  if (holder === undefined) return {};
  const holders = withOwnGroups([holder]);
  const types = typesOf(holders).find(({ values }) => values.some(isMosaic));
  return { counted: countedSlices(holders), name: types?.name };
}

/** With what Siemens' scanners put into groups of their own. */
const withOwnGroups = (holders: readonly DataSetAttributes[]): DataSetAttributes[] => [
  ...holders,
  ...holders.flatMap((holder) => OWN_GROUPS.flatMap((place) => holder.privateItems(place))),
];

const isMosaic = (type: string): boolean =>
  type
    .toUpperCase()
    .split(/[^A-Z0-9]+/)
    .some((word) => NAMES.includes(word));

/** What the file and its groups say of the kind of a frame, and where. */
function typesOf(
  holders: readonly DataSetAttributes[],
): { name: string; values: readonly string[] }[] {
  const frameTypes = holders.flatMap((holder) =>
    FRAME_TYPES.flatMap((macro) => holder.sequence(macro) ?? []),
  );
  return [
    {
      name: `ImageType ${NAMES.join(" or ")}`,
      values: holders.flatMap((holder) => holder.strings("ImageType") ?? []),
    },
    {
      name: `FrameType ${NAMES.join(" or ")}`,
      values: [...holders, ...frameTypes].flatMap((item) => item.strings("FrameType") ?? []),
    },
    {
      name: "the private ImageTypeText of Siemens",
      values: holders.flatMap((holder) =>
        TYPE_TEXTS.flatMap((place) => holder.privateValues(place)),
      ),
    },
  ];
}

/** The number of slices in one frame, and who says it. */
function countedSlices(
  holders: readonly DataSetAttributes[],
): { name: string; slices: number } | undefined {
  for (const holder of holders) {
    const found = countsOf(holder).find(({ slices }) => slices > 1);
    if (found !== undefined) return found;
  }
  return undefined;
}

const countsOf = (holder: DataSetAttributes): { name: string; slices: number }[] => [
  ...COUNTS.map(({ name, ...place }) => ({
    name,
    slices: Number(holder.privateValues(place)[0] ?? 0),
  })),
  {
    name: "the private MosaicRefAcqTimes of Siemens",
    slices: holder.privateValues(SLICE_TIMES).length,
  },
  {
    name: "NumberOfImagesInMosaic of Siemens",
    slices: csaSlices(holder.privateBytes(CSA_HEADER)),
  },
  {
    name: "the slices in a VFRAME of United Imaging",
    slices: holder.privateItems(VFRAME_ITEMS).length,
  },
];

const CSA_NAME = Buffer.from("NumberOfImagesInMosaic\0", "latin1");
/** Bytes of a tag's head: its name, how many values, VR, type, how many items, and an end. */
const CSA_TAG = 84;
const CSA_ITEM = 16;

/**
 * NumberOfImagesInMosaic of the CSA header, a list of tags in Siemens' own form ("SV10"): each has
 * 64 bytes of name and numbers, then items of a head, whose second number is their length, and a
 * text. 0 where it is not there.
 */
function csaSlices(bytes: Uint8Array | undefined): number {
  if (bytes === undefined) return 0;
  const header = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (header.toString("latin1", 0, 4) !== "SV10") return 0;
  const at = header.indexOf(CSA_NAME);
  const item = at + CSA_TAG;
  if (at < 0 || item + CSA_ITEM > header.length) return 0;
  const length = header.readUInt32LE(item + 4);
  const text = header.toString("latin1", item + CSA_ITEM, item + CSA_ITEM + Math.min(length, 16));
  return Number.parseInt(text, 10) || 0;
}

/** No bore is so wide (mm); a plane has one side at least that lies across it. */
const BORE_MM = 700;
/** Larger pixels than any scanner's say nothing of a bore, but that their spacing is wrong (mm). */
const LARGEST_PIXEL_MM = 20;

/** Where attributes are silent: a frame of MR that is wider than a bore on both sides. */
function tooWide(attributes: DataSetAttributes): string | undefined {
  if (attributes.string("Modality") !== "MR") return undefined;
  const measures = attributes
    .sequence("SharedFunctionalGroupsSequence")?.[0]
    ?.sequence("PixelMeasuresSequence")?.[0];
  const [row = 0, column = 0] = (measures ?? attributes).numbers("PixelSpacing") ?? [];
  const [height, width] = [
    row * (attributes.number("Rows") ?? 0),
    column * (attributes.number("Columns") ?? 0),
  ];
  if (Math.max(row, column) > LARGEST_PIXEL_MM || Math.min(height, width) <= BORE_MM)
    return undefined;
  return `by its size, ${Math.round(width)} x ${Math.round(height)} mm, which no bore holds`;
}
