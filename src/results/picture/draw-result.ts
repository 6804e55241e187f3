/** The picture of one model's results over one image: chosen frames, rendered, and all that is said about them. */
import type { Engine, EngineOutput, Plane } from "../../engine/types.js";
import { release } from "../../addon/bytes.js";
import type { Image, PlanePosition, Spacing, VoiTransform } from "../../images/image.js";
import type { Manifest } from "../../manifest/manifest.js";
import type { Highlight } from "./highlights.js";
import { edgesOf } from "./layout.js";
import { markedPanels, renderOverlay, renderSize, type OverlaySource, type Shot } from "./overlay.js";
import { checkPicture } from "./picture-check.js";
import { pixelsOf, type Pixels } from "./pixels.js";
import type { Finding, ReceiptModel } from "../receipt/receipt.js";
import { VERSION } from "../../base/version.js";

/** What a model said about one frame, as far as it is drawn. */
export interface Shown {
  outputs: () => EngineOutput[];
  findings: readonly Finding[];
  /** Stored values, where they are kept: of an image's only frame. */
  data?: Uint8Array;
  /** From 1: which it is of the slices of a volume. */
  slice?: number;
}

interface Request {
  image: Image;
  engine: Engine;
  manifest: Manifest;
  /** In their order; at least one. */
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
  pixels: () => Promise<Pixels>;
  /** Frees what was read back; nobody may read it from then on. */
  release: () => Promise<void>;
}

/**
 * PNG, read back and held against the masks. Of several frames each is decoded once more: they are not kept in memory.
 * @throws RadserveError output_invalid where what was drawn is not what the model marked
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
  const input = { shots, source, model: manifest, ...result, radserveVersion: VERSION };
  const png = await renderOverlay(input);
  let decoded: Promise<Pixels> | undefined;
  const pixels = () => (decoded ??= pixelsOf(png));
  await checkPicture(pixels, markedPanels(input), manifest.outputs);
  for (const { picture } of shots) release(picture.rgb);
  return { png, pixels, release: async () => decoded && release((await decoded).rgb) };
}

/** What is said of all frames that are shown has to be true of each. */
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
    spacing: shown.every((each) => isAlike(image.spacing(each.frame), spacing)) ? spacing : "differs",
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

/** Where a reader finds a slice again: along the normal of its plane, and by its number in the series. */
function placeOf(image: Image, frame: number): string | undefined {
  if (image.frameCount === 1) return undefined;
  const [plane, ...ends] = [frame, 0, image.frameCount - 1].map((each) => image.plane(each));
  const { attributes = [] } = image.series ?? {};
  // Only where each file is one slice do files stand for slices
  const number =
    attributes.length === image.frameCount ? attributes[frame]?.string("InstanceNumber") : undefined;
  // One position for all frames is that of the first: where the others lie, another attribute says, or none
  const [first, last] = ends.map((end) => (end === undefined ? undefined : along(end)));
  const facts = [
    plane === undefined || first === last ? undefined : `${signed(Number(along(plane).toFixed(1)))} mm`,
    number === undefined ? undefined : `image ${number}`,
  ].filter((fact) => fact !== undefined);
  return facts.length === 0 ? undefined : facts.join("  ·  ");
}

/** Of ImagePositionPatient on the normal (PS3.3 C.7.6.2.1.1), mm. */
function along({ position: [x, y, z], orientation: [a, b, c, d, e, f] }: PlanePosition): number {
  return x * (b * f - c * e) + y * (c * d - a * f) + z * (a * e - b * d);
}
