/** The picture of one model's results over one image: chosen frames, rendered, and all that is said about them. */
import type { Engine } from "../../engine/engine.js";
import type { EngineOutput, Plane } from "../../engine/types.js";
import { release } from "../../addon/bytes.js";
import type { Image, Spacing, VoiTransform } from "../../images/image.js";
import { alongNormal } from "../../images/vectors.js";
import type { Manifest } from "../../manifest/manifest.js";
import type { Finding, ReceiptModel } from "../receipt/receipt.js";
import { markedPanels, renderSize, type OverlaySource, type Shot } from "./arrangement.js";
import type { Highlight } from "./highlights.js";
import { edgesOf } from "./layout.js";
import { renderOverlay } from "./overlay.js";
import { checkPicture } from "./picture-check.js";
import { pixelsOf, type Picture } from "./pixels.js";

/** What a model said about one frame, as far as it is drawn. */
export interface Shown {
  outputs: () => EngineOutput[];
  findings: readonly Finding[];
  /** Stored values, kept for an image's only frame. */
  data?: Uint8Array;
  /** Number among the slices of a volume, from 1. */
  slice?: number;
}

interface Request {
  image: Image;
  engine: Engine;
  manifest: Manifest;
  /** At least one, in the order of the image's frames. */
  shown: readonly Highlight<Shown>[];
  result: Pick<ReceiptModel, "findings" | "measurements" | "warnings">;
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
  png: Uint8Array;
  /** Read back from the PNG, once. */
  pixels: () => Promise<Picture>;
  /** Frees what was read back; nobody may read it from then on. */
  release: () => Promise<void>;
}

/**
 * The PNG, read back and compared with the masks. Several frames are each decoded once more: they are not kept in memory.
 * @throws RadserveError output_invalid if what was drawn is not what the model marked
 */
export async function drawPicture({ image, engine, manifest, shown, result }: Request): Promise<Drawn> {
  const [first] = shown;
  if (first === undefined) throw new Error("A model that succeeded has a frame to show");
  const source = sourceOf(image, first, shown);
  const size = renderSize(shown.length, source);
  const shots: Shot[] = [];
  for (const { frame, value } of shown) {
    const plane = planeOf(image, frame, value.data ?? (await image.frame(frame)));
    const rgb = await engine.render(plane, { voiIndex: 0, ...size });
    shots.push({
      picture: { ...size, rgb },
      frame: value.slice ?? frame + 1,
      place: placeOf(image, frame),
      edges: edgesOf(image.plane(frame), image.attributes?.strings("PatientOrientation")),
      results: value.outputs(),
      findings: value.findings,
    });
  }
  const input = { shots, source, model: manifest, ...result };
  const png = await renderOverlay(input);
  let decoded: Promise<Picture> | undefined;
  const pixels = () => (decoded ??= pixelsOf(png));
  await checkPicture(pixels, markedPanels(input), manifest.outputs);
  for (const { picture } of shots) release(picture.rgb);
  return { png, pixels, release: async () => decoded && release((await decoded).rgb) };
}

/** What the picture says of all frames that it shows has to be true of each. */
function sourceOf(
  image: Image,
  { frame, value }: Highlight<Shown>,
  shown: readonly Highlight<Shown>[],
): OverlaySource {
  const { rows, columns, samplesPerPixel, photometricInterpretation } = image.format;
  const grey = samplesPerPixel === 1 && photometricInterpretation.startsWith("MONOCHROME");
  const called = value.slice !== undefined || image.series !== undefined ? "slice" : "frame";
  const windows = new Set(shown.map((each) => windowText(image.interpretation(each.frame).voi[0])));
  const spacing = image.spacing(frame);
  return {
    rows,
    columns,
    pixelAspect: image.pixelAspect(frame),
    modality: image.source.modality,
    frames: image.frameCount,
    called,
    window: grey ? (windows.size === 1 ? [...windows][0] : `each ${called} in its own window`) : undefined,
    spacing: shown.every((each) => isAlike(image.spacing(each.frame), spacing))
      ? (spacing ?? (image.regions?.(frame) === undefined ? undefined : "by region"))
      : "differs",
  };
}

/** Scanners write the same spacing with other last digits; a thousandth is below what a scale bar shows. */
const ALIKE = 1e-3;

function isAlike(a: Spacing | undefined, b: Spacing | undefined): boolean {
  if (a === undefined || b === undefined) return a === b;
  const near = (x: number, y: number) => Math.abs(x - y) <= ALIKE * y;
  return a.patient === b.patient && near(a.row, b.row) && near(a.column, b.column);
}

/** Width before level, as readers say it. */
function windowText(voi: VoiTransform | undefined): string {
  if (voi === undefined) return "no window: full range";
  return voi.kind === "window" ? `W ${signed(voi.width)}  L ${signed(voi.center)}` : "VOI LUT";
}

const signed = (value: number): string => String(value).replace("-", "\u2212");

/** How a reader finds a slice again: its position along the normal of its plane, and its number in the series. */
function placeOf(image: Image, frame: number): string | undefined {
  if (image.frameCount === 1) return undefined;
  const [plane, ...ends] = [frame, 0, image.frameCount - 1].map((each) => image.plane(each));
  const { attributes = [] } = image.series ?? {};
  // Files stand for slices only if each file is one slice
  const number =
    attributes.length === image.frameCount ? attributes[frame]?.string("InstanceNumber") : undefined;
  // One position for all frames is that of the first: another attribute says where the others lie, or none does
  const [first, last] = ends.map((end) => (end === undefined ? undefined : alongNormal(end)));
  const facts = [
    plane === undefined || first === last ? undefined : `${signed(Number(alongNormal(plane).toFixed(1)))} mm`,
    number === undefined ? undefined : `image ${number}`,
  ].filter((fact) => fact !== undefined);
  return facts.length === 0 ? undefined : facts.join("  ·  ");
}
