/**
 * The picture of one model's results over one image: chosen frames, rendered, and all that is said
 * about them.
 */
import type { Engine } from "../../engine/engine.js";
import type { EngineOutput, Plane } from "../../engine/types.js";
import { release } from "../../addon/bytes.js";
import { packPng, type Picture } from "../../addon/picture.js";
import {
  attributesOfFrame,
  type Image,
  type Interpretation,
  type PlanePosition,
  type Spacing,
} from "../../images/image.js";
import { alongNormal } from "../../images/vectors.js";
import type { Manifest } from "../../manifest/manifest.js";
import { meantBy } from "../../models/input-values.js";
import type { Finding, Measurement, ReceiptModel } from "../receipt/receipt.js";
import {
  sectionSizes,
  renderSize,
  type SectionView,
  type OverlayInput,
  type OverlaySource,
  type Shot,
  type VoxelGrid,
} from "./arrangement.js";
import type { Highlight } from "./highlights.js";
import { sidesOf } from "../findings/edges.js";
import type { PanelSize } from "./layout.js";
import { renderOverlay } from "./overlay.js";
import { checkPicture } from "./picture-check.js";
import { reslices, whyNoSections, type MarkedVolume } from "./reslice.js";

/** The part of a model's result for one frame that is drawn. */
export interface ShownOutputs {
  outputs: () => EngineOutput[];
  findings: readonly Finding[];
  measurements?: readonly Measurement[] | undefined;
  /**
   * Stored values, where they are still in memory: of an image's only frame, and of the slices of a
   * volume.
   */
  data?: Uint8Array;
  /** Number among the slices of a volume, from 1. */
  slice?: number;
}

export interface DrawRequest {
  image: Image;
  engine: Engine;
  manifest: Manifest;
  /** At least one, in the order of the image's frames. */
  shown: readonly Highlight<ShownOutputs>[];
  /**
   * The volume that the shown slices are of, if the model took them as one and marked something.
   */
  marked?: MarkedVolume | undefined;
  result: Pick<ReceiptModel, "findings" | "measurements" | "warnings">;
  /** Opacity of the tint of masks, 0 to 1. */
  opacity: number;
}

export function planeOf(image: Image, frame: number, data: Uint8Array): Plane {
  return {
    format: image.format,
    data,
    interpretation: image.interpretation(frame),
    pixelAspect: image.pixelAspect(frame),
  };
}

export interface Drawn {
  /** The drawn pixels, RGB. */
  picture: Picture;
  png: () => Promise<Uint8Array>;
  /** The frames (from 0) whose pixels it shows. */
  frames: readonly number[];
}

/**
 * The picture, compared with the masks.
 * @throws RadserveError output_invalid if what was drawn is not what the model marked
 */
export async function drawPicture(request: DrawRequest): Promise<Drawn> {
  const input = await overlayInput(request);
  const { picture, masked } = renderOverlay(input);
  checkPicture(picture, masked);
  for (const view of [...input.shots, ...(input.sections ?? [])]) release(view.picture.rgb);
  let png: Promise<Uint8Array> | undefined;
  const { shown, marked } = request;
  const frames =
    input.sections === undefined ? shown.map(({ frame }) => frame) : marked?.volume.frames;
  return { picture, png: () => (png ??= packPng(picture)), frames: frames ?? [] };
}

/**
 * Everything that the picture shows. Several frames are each decoded once more: they are not kept
 * in memory.
 */
export async function overlayInput(request: DrawRequest): Promise<OverlayInput> {
  const { image, engine, manifest, shown, result, opacity } = request;
  const [first] = shown;
  if (first === undefined) throw new Error("A model that succeeded has a frame to show");
  const source = sourceOf(image, first, shown);
  const size = renderSize(shown.length, source);
  const shots: Shot[] = [];
  for (const { frame, value } of shown) {
    const plane = displayed(planeOf(image, frame, value.data ?? (await image.frame(frame))));
    const rgb = await engine.render(plane, { voiIndex: 0, ...size });
    shots.push({
      picture: { ...size, rgb },
      frame: value.slice ?? frame + 1,
      place: placeOf(image, frame),
      edges: sidesOf(image.plane(frame), attributesOfFrame(image, frame)),
      results: value.outputs(),
      findings: value.findings,
      measurements: value.measurements,
    });
  }
  return {
    shots,
    ...(await sectionsOf(request, source)),
    source,
    model: manifest,
    opacity,
    ...result,
  };
}

/**
 * The planes across the slices of a volume, through what is marked, in the window of the fullest
 * slice.
 */
async function sectionsOf(
  { image, engine, shown, marked }: DrawRequest,
  source: OverlaySource,
): Promise<Pick<OverlayInput, "sections" | "withoutSections">> {
  if (marked === undefined) return {};
  const withoutSections = whyNoSections(marked.volume, image.format);
  if (withoutSections !== undefined) return { withoutSections };
  const [first, ...others] = shown;
  const fullest = others.reduce(
    (best, each) => (best && each.weight > best.weight ? each : best),
    first,
  );
  const slice = marked.volume.frames.indexOf(fullest?.frame ?? 0);
  const made = reslices({ ...marked, planes: marked.planes.map(displayed) }, slice);
  const grids = made.map(({ section: { across, down } }) => ({
    rows: down.count,
    columns: across.count,
    rowSpacing: down.spacing,
    columnSpacing: across.spacing,
  }));
  const sizes = sectionSizes(shown.length, source, grids);
  const window = windowText(image.interpretation(fullest?.frame ?? 0));
  const sections: SectionView[] = [];
  for (const [i, { section, plane, outputs }] of made.entries()) {
    const [size, { render }] = [grids[i], sizes[i]] as [VoxelGrid, PanelSize];
    const facts = [
      `${millimetres(section.plane)} mm`,
      ...(window === source.window ? [] : [window]),
    ];
    sections.push({
      picture: { ...render, rgb: await engine.render(plane, { voiIndex: 0, ...render }) },
      name: section.name,
      size,
      place: facts.join("  ·  "),
      edges: sidesOf(section.plane, image.attributes),
      results: outputs,
      findings: [],
    });
  }
  return { sections };
}

/** Where readers look for uptake: an SUV of 0 is white, and one of 7 g/ml and more is black. */
const SUV_WINDOW = { kind: "window", center: 3.5, width: 7, function: "LINEAR_EXACT" } as const;

const hasSuv = ({ suv, modality }: Interpretation): boolean =>
  suv !== undefined && "factor" in suv && modality.kind !== "lut";

/**
 * As a frame is shown: positron emission dark on white, as it is read, and by its uptake where that
 * is known.
 */
export function displayed(plane: Plane): Plane {
  const { format, interpretation } = plane;
  if (
    interpretation.suv === undefined ||
    !format.photometricInterpretation.startsWith("MONOCHROME")
  )
    return plane;
  const inverted = {
    ...plane,
    format: { ...format, photometricInterpretation: "MONOCHROME1" as const },
  };
  if (!hasSuv(interpretation)) return inverted;
  const voi = [SUV_WINDOW];
  return { ...inverted, interpretation: { ...meantBy({ kind: "suv_bw" }, interpretation), voi } };
}

/** A text about all frames that the picture shows has to be true of each. */
function sourceOf(
  image: Image,
  { frame, value }: Highlight<ShownOutputs>,
  shown: readonly Highlight<ShownOutputs>[],
): OverlaySource {
  const { rows, columns, samplesPerPixel, photometricInterpretation } = image.format;
  const grey = samplesPerPixel === 1 && photometricInterpretation.startsWith("MONOCHROME");
  const called = value.slice !== undefined || image.series !== undefined ? "slice" : "frame";
  const windows = new Set(shown.map((each) => windowText(image.interpretation(each.frame))));
  const spacing = image.spacing(frame);
  return {
    rows,
    columns,
    pixelAspect: image.pixelAspect(frame),
    modality: image.source.modality,
    ...factsOf(image),
    frames: image.frameCount,
    called,
    window: grey
      ? windows.size === 1
        ? [...windows][0]
        : `each ${called} in its own window`
      : undefined,
    spacing: shown.every((each) => isAlike(image.spacing(each.frame), spacing))
      ? (spacing ?? (image.regions?.(frame) === undefined ? undefined : "by region"))
      : "differs",
  };
}

/**
 * Scanners write the same spacing with other last digits; a thousandth is below what a scale bar
 * shows.
 */
const ALIKE = 1e-3;

function isAlike(a: Spacing | undefined, b: Spacing | undefined): boolean {
  if (a === undefined || b === undefined) return a === b;
  const near = (x: number, y: number) => Math.abs(x - y) <= ALIKE * y;
  return a.patient === b.patient && near(a.row, b.row) && near(a.column, b.column);
}

/**
 * How a reader finds the image in the archive. Only digits are taken over: text could name
 * somebody.
 */
function factsOf({ attributes, series }: Image): Pick<OverlaySource, "date" | "series" | "image"> {
  const digits = (keyword: string, pattern: RegExp): RegExpExecArray | undefined =>
    pattern.exec(attributes?.string(keyword) ?? "") ?? undefined;
  const [year, month, day] =
    ["AcquisitionDate", "ContentDate", "SeriesDate", "StudyDate"]
      .map((keyword) => digits(keyword, /^(\d{4})(\d{2})(\d{2})$/)?.slice(1))
      .find((found) => found !== undefined) ?? [];
  const number = (keyword: string) => digits(keyword, /^\d{1,9}$/)?.[0];
  return {
    date: year === undefined ? undefined : `${year}-${month}-${day}`,
    series: number("SeriesNumber"),
    // The attributes of a series are those of its first slice
    image: series === undefined ? number("InstanceNumber") : undefined,
  };
}

/** Width before level, as readers say it. */
function windowText(interpretation: Interpretation): string {
  const text = hasSuv(interpretation) ? "SUV 0 to 7 g/ml" : voiText(interpretation);
  return interpretation.suv === undefined ? text : `${text}, inverted`;
}

function voiText({ voi: [voi] }: Interpretation): string {
  if (voi === undefined) return "no window: full range";
  return voi.kind === "window" ? `W ${signed(voi.width)}  L ${signed(voi.center)}` : "VOI LUT";
}

/** Where a plane lies along its own normal. */
const millimetres = (plane: PlanePosition): string => signed(Number(alongNormal(plane).toFixed(1)));

const signed = (value: number): string => String(value).replace("-", "\u2212");

/**
 * How a reader finds a slice again: its position along the normal of its plane, and its number in
 * the series.
 */
function placeOf(image: Image, frame: number): string | undefined {
  if (image.frameCount === 1) return undefined;
  const [plane, ...ends] = [frame, 0, image.frameCount - 1].map((each) => image.plane(each));
  const { attributes = [] } = image.series ?? {};
  // Files stand for slices only if each file is one slice
  const number =
    attributes.length === image.frameCount
      ? attributes[frame]?.string("InstanceNumber")
      : undefined;
  // One position for all frames is that of the first: another attribute says where the others lie,
  // or none does
  const [first, last] = ends.map((end) => (end === undefined ? undefined : alongNormal(end)));
  const facts = [
    plane === undefined || first === last ? undefined : `${millimetres(plane)} mm`,
    number === undefined ? undefined : `image ${number}`,
  ].filter((fact) => fact !== undefined);
  return facts.length === 0 ? undefined : facts.join("  ·  ");
}
