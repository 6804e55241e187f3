/**
 * Frames that show the same place: cine, 4D, echoes, b-values. What is read by geometry alone must
 * not hold two of them at once, because readers unite or subtract what lies in one plane; so they
 * are parted by what the file says that they differ in.
 */
import { attributesOfFrame, type Attributes, type Image, type PlanePosition } from "../image.js";
import { cross, dot, length, unit, type Vector } from "../vectors.js";

/** Frames of which no two show the same place. */
export interface Phase {
  /** What they have in common, for names: "TemporalPositionIndex 2"; empty for all frames. */
  name: string;
  /** From 0, in the image's order. */
  frames: readonly number[];
}

/** Positions are decimal text that is rounded; less than this is no distance, in mm. */
const ROUNDING_MM = 0.01;
/** Planes that are nearer than this part of a pixel, or this many mm, are one for readers. */
const SAME_PLANE_PIXELS = 0.1;
const SAME_PLANE_MM = 0.1;
/** Centres further apart than this along their normals, which may differ a little, are no pair. */
const NEAR_MM = 1;
/** The cross product of normals up to which planes are parallel. */
const PARALLEL = 1e-3;

/** How near two planes are to be taken for one, in mm. @param pixel the smaller spacing */
export const samePlaneMm = (pixel: number): number =>
  Math.max(ROUNDING_MM, Math.min(SAME_PLANE_MM, SAME_PLANE_PIXELS * pixel));

interface FramePlace {
  frame: number;
  centre: Vector;
  normal: Vector;
  /** Half of the way from one corner to the opposite one, in mm. */
  reach: Vector[];
  pixel: number;
}

/**
 * The phases of an image whose frames lie in the patient: one of all frames where no two show the
 * same place. A word instead where some do, and nothing says what they differ in.
 */
export function phasesOf(image: Image, attributes: Attributes): readonly Phase[] | string {
  const found = known.get(image) ?? phasesFound(image, attributes);
  known.set(image, found);
  return found;
}

/** Each object of each model asks. */
const known = new WeakMap<Image, readonly Phase[] | string>();

function phasesFound(image: Image, attributes: Attributes): readonly Phase[] | string {
  const all = Array.from({ length: image.frameCount }, (_, frame) => frame);
  const whole = [{ name: "", frames: all }];
  if (all.length === 1) return whole;
  const places = all.flatMap((frame) => placeOf(image, frame) ?? []);
  if (places.length < all.length || !isShared(places)) return whole;
  const values = DIFFERENCES.flatMap((difference) => {
    const read = all.map((frame) => difference.read(image, attributes, frame));
    const varies = read.some((value) => value !== read[0]);
    return varies && read.every((value) => value !== undefined)
      ? [{ keyword: difference.keyword, read: read }]
      : [];
  });
  for (const one of values) {
    const found = partedBy([one], places);
    if (found !== undefined) return found;
  }
  const together = values.length > 1 ? partedBy(values, places) : undefined;
  if (together !== undefined) return together;
  // Frames that all show one place follow each other
  if (
    all.length <= MOST_PHASES &&
    all.every((frame) => frame === 0 || isPair(places[0], places[frame]))
  )
    return all.map((frame) => ({ name: `frame ${frame + 1}`, frames: [frame] }));
  return `some of its frames show the same place, as those of several times or echoes do, and nothing parts them into at most ${MOST_PHASES} groups that belong together`;
}

function placeOf({ format, ...image }: Image, frame: number): FramePlace | undefined {
  const [plane, spacing] = [image.plane(frame), image.spacing(frame)];
  if (plane === undefined || spacing === undefined) return undefined;
  const [along, down] = directions(plane);
  const half: [number, number] = [
    ((format.columns - 1) / 2) * spacing.column,
    ((format.rows - 1) / 2) * spacing.row,
  ];
  const normal = unit(cross(along, down));
  const toCentre = moved(plane.position, along, half[0]);
  return {
    frame,
    centre: moved(toCentre, down, half[1]),
    normal: isUp(normal) ? normal : [-normal[0], -normal[1], -normal[2]],
    reach: [scaled(along, half[0] + spacing.column / 2), scaled(down, half[1] + spacing.row / 2)],
    pixel: Math.min(spacing.row, spacing.column),
  };
}

function directions({ orientation: [a, b, c, d, e, f] }: PlanePosition): [Vector, Vector] {
  return [
    [a, b, c],
    [d, e, f],
  ];
}

const scaled = ([x, y, z]: Vector, by: number): Vector => [x * by, y * by, z * by];
const moved = ([x, y, z]: Readonly<Vector>, [a, b, c]: Vector, by: number): Vector => [
  x + a * by,
  y + b * by,
  z + c * by,
];

/** A plane seen from its other side is the same plane. */
const isUp = (normal: Vector): boolean =>
  (normal.find((cosine) => Math.abs(cosine) > PARALLEL) ?? 1) > 0;

/** Whether two frames show the same place: they lie in one plane, and overlap there. */
function isPair(a: FramePlace | undefined, b: FramePlace | undefined): boolean {
  if (a === undefined || b === undefined) return false;
  if (length(cross(a.normal, b.normal)) > PARALLEL) return false;
  const away: Vector = [
    b.centre[0] - a.centre[0],
    b.centre[1] - a.centre[1],
    b.centre[2] - a.centre[2],
  ];
  const within = samePlaneMm(Math.min(a.pixel, b.pixel));
  if (Math.abs(dot(away, a.normal)) > within) return false;
  // Two rectangles lie apart if they do along a side of one of them
  return [...a.reach, ...b.reach].every((side) => {
    const axis = unit(side);
    const reach = [...a.reach, ...b.reach].reduce((sum, one) => sum + Math.abs(dot(one, axis)), 0);
    return Math.abs(dot(away, axis)) < reach - within;
  });
}

/** Whether any two show the same place. They are sorted, so that only near ones are compared. */
function isShared(places: readonly FramePlace[]): boolean {
  const along = ({ centre, normal }: FramePlace) => dot(centre, normal);
  const sorted = [...places].sort((a, b) => along(a) - along(b));
  return sorted.some((place, i) => {
    for (let next = i + 1; next < sorted.length; next++) {
      const other = sorted[next];
      if (other === undefined || along(other) - along(place) > NEAR_MM) return false;
      if (isPair(place, other)) return true;
    }
    return false;
  });
}

/** More phases than these are no phases, but frames that differ in some number. */
const MOST_PHASES = 100;

/** The frames by equal values; undefined where frames of one value show the same place. */
function partedBy(
  values: readonly { keyword: string; read: readonly string[] }[],
  places: readonly FramePlace[],
): Phase[] | undefined {
  const byValue = new Map<string, { texts: string[]; places: FramePlace[] }>();
  for (const place of places) {
    const texts = values.map(({ read }) => read[place.frame] ?? "");
    const key = texts.join("\n");
    const known = byValue.get(key) ?? { texts, places: [] };
    known.places.push(place);
    byValue.set(key, known);
    if (byValue.size > MOST_PHASES) return undefined;
  }
  const groups = [...byValue.values()];
  // Phases that each have a place of their own would be one volume that was torn apart
  const most = Math.max(...groups.map((group) => group.places.length));
  const isOneEach = most === 1 && !places.every((place, i) => i === 0 || isPair(places[0], place));
  if (isOneEach || groups.some((group) => isShared(group.places))) return undefined;
  groups.sort((a, b) => compared(a.texts, b.texts));
  return groups.map(({ texts, places: found }) => ({
    name: values.map(({ keyword }, i) => `${keyword} ${texts[i] ?? ""}`).join(", "),
    frames: found.map(({ frame }) => frame),
  }));
}

/** By numbers where both are, else as texts. */
function compared(a: readonly string[], b: readonly string[]): number {
  for (const [i, text] of a.entries()) {
    const other = b[i] ?? "";
    const [x, y] = [Number(text), Number(other)];
    const order = Number.isNaN(x - y) ? (text < other ? -1 : text > other ? 1 : 0) : x - y;
    if (order !== 0) return order;
  }
  return 0;
}

/** What frames of one place differ in. */
interface FrameDifference {
  keyword: string;
  /** The value of a frame (from 0) as text. */
  read(image: Image, attributes: Attributes, frame: number): string | undefined;
}

/** An attribute of a functional group, or of the file where it has none. */
function grouped(keyword: string, ...macros: readonly string[]): FrameDifference {
  const read = (image: Image, attributes: Attributes, frame: number) => {
    const { series } = image;
    const own = attributesOfFrame(image, frame) ?? attributes;
    const inFile = series === undefined ? frame : (series.slices[frame]?.frame ?? 1) - 1;
    const groups = [
      own.sequence("PerFrameFunctionalGroupsSequence")?.[inFile],
      own.sequence("SharedFunctionalGroupsSequence")?.[0],
    ];
    const holders = groups.map((group) =>
      macros.reduce<Attributes | undefined>((at, macro) => at?.sequence(macro)?.[0], group),
    );
    const holder = [...holders, own].find((each) => each?.has(keyword) === true);
    const values = holder?.strings(keyword) ?? [];
    return values.length === 0 ? undefined : values.join("\\");
  };
  return { keyword, read };
}

/** A number for each frame of an object of nuclear medicine (PS3.3 C.8.4.8). */
function vector(keyword: string): FrameDifference {
  const read = (image: Image, attributes: Attributes, frame: number) =>
    image.series === undefined ? attributes.strings(keyword)?.[frame] : undefined;
  return { keyword, read };
}

/** In the order in which they are asked: times first, then what was set, then how it was made. */
const DIFFERENCES: readonly FrameDifference[] = [
  grouped("TemporalPositionIndex", "FrameContentSequence"),
  grouped("TemporalPositionIdentifier"),
  grouped("NominalPercentageOfCardiacPhase", "CardiacSynchronizationSequence"),
  grouped("NominalCardiacTriggerDelayTime", "CardiacSynchronizationSequence"),
  grouped("TriggerTime"),
  grouped("NominalPercentageOfRespiratoryPhase", "RespiratorySynchronizationSequence"),
  grouped("TemporalPositionTimeOffset", "TemporalPositionSequence"),
  grouped("FrameReferenceTime"),
  vector("TimeSlotVector"),
  vector("PhaseVector"),
  vector("TimeSliceVector"),
  vector("RRIntervalVector"),
  vector("EnergyWindowVector"),
  grouped("EffectiveEchoTime", "MREchoSequence"),
  grouped("EchoTime"),
  grouped("EchoNumbers"),
  grouped("InversionTime"),
  grouped("DiffusionBValue", "MRDiffusionSequence"),
  grouped(
    "DiffusionGradientOrientation",
    "MRDiffusionSequence",
    "DiffusionGradientDirectionSequence",
  ),
  grouped("FlipAngle", "MRTimingAndRelatedParametersSequence"),
  grouped("ComplexImageComponent", "MRImageFrameTypeSequence"),
  grouped("ConvolutionKernel", "CTReconstructionSequence"),
  grouped("KVP", "CTXRayDetailsSequence"),
  grouped("AcquisitionNumber"),
  grouped("FrameAcquisitionNumber", "FrameContentSequence"),
  grouped("ContrastBolusAgentPhase", "ContrastBolusUsageSequence"),
  grouped("FrameType", "MRImageFrameTypeSequence"),
  grouped("FrameType", "CTImageFrameTypeSequence"),
  grouped("ImageType"),
];
