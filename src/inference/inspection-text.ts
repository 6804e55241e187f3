/** An inspection in words, for people. */
import type { PlanePosition, TransformStep } from "../images/image.js";
import type { FrameSummary, Inspection } from "./inspection.js";

/** One fact a line. */
export function formatInspection(inspection: Inspection): string {
  const i = inspection;
  const sign = i.float ? "floating point" : i.signed ? "signed" : "unsigned";
  const size = `${i.columns} x ${i.rows}, ${i.frames} frame${i.frames === 1 ? "" : "s"}`;
  const lines: [string, string | null][] = [
    [
      "Format",
      i.transfer_syntax === null
        ? i.format
        : `${i.format}, ${i.transfer_syntax_name ?? ""} (${i.transfer_syntax})`,
    ],
    ["Modality", i.modality],
    ["SOP class", i.sop_class_uid === null ? null : (i.sop_class_name ?? "") + uidBehind(i)],
    ["SOP instance", i.sop_instance_uid],
    ["Series", i.slice_order === null ? null : i.series_instance_uid],
    [
      i.slice_order === null ? "File" : "Slices",
      `${i.bytes} bytes, sha256 ${i.file_sha256}${i.slice_order === null ? "" : " over those of the slices in their order"}`,
    ],
    ["Size", size],
    [
      "Pixels",
      `${i.photometric_interpretation}, ${i.samples} x ${i.bits_stored} of ${i.bits_allocated} bits, ${sign}`,
    ],
    [
      "Spacing",
      i.spacing_mm === null
        ? null
        : `${rounded(i.spacing_mm.row)} x ${rounded(i.spacing_mm.column)} mm (between rows x columns; ${i.spacing_mm.source}${i.spacing_mm.patient ? "" : ", not in the patient"})`,
    ],
    ["Pixel aspect", i.pixel_aspect === 1 ? null : `${rounded(i.pixel_aspect)} times as high as wide`],
    ["Position", i.plane === null || i.volume !== null ? null : planeText(i.plane)],
    ["Volume", i.volume === null ? null : volumeText(i.volume)],
    [
      "Padding",
      i.padding === null ? null : `stored values ${i.padding.from} to ${i.padding.to} are no image`,
    ],
    ["First frame", frameText(i.first_frame)],
    ["Last frame", i.frames === 1 ? null : frameText(i.last_frame)],
    ["Values", valuesText(i)],
    ...displayLines(i),
    ...i.warnings.map((w): [string, string] => ["Warning", `${w.message} [${w.code}]`]),
  ];
  return lines
    .filter((line): line is [string, string] => line[1] !== null)
    .map(([name, text]) => `${name.padEnd(13)}${text}\n`)
    .join("");
}

/** One step: its name, then its parameters. */
export function stepText({ step, ...parameters }: TransformStep): string {
  const text = (value: unknown): string =>
    value !== null && typeof value === "object" && !Array.isArray(value)
      ? `{${Object.entries(value).map(pairText).join(", ")}}`
      : Array.isArray(value)
        ? value.map(text).join(" ")
        : String(value);
  const pairText = ([key, value]: [string, unknown]) => `${key.replaceAll("_", " ")} ${text(value)}`;
  const all = Object.entries(parameters).map(pairText);
  return [step.replaceAll("_", " "), ...(all.length === 0 ? [] : [all.join(", ")])].join(": ");
}

/** The steps from stored values to the screen. If a step is there more than once, a viewer lets its reader choose. */
function displayLines({ transforms, samples }: Inspection): [string, string][] {
  const steps = transforms.map(stepText);
  const windowed = transforms.some(({ step }) => ["window", "voi_lut", "palette_to_rgb"].includes(step));
  if (samples === 1 && !windowed) steps.push("no window: least to greatest value");
  return steps.map((text, n) => [n === 0 ? "Display" : "", text]);
}

/** What the stored values of the first frame mean, if there is a rescale. */
function valuesText({ first_frame: frame, transforms, units }: Inspection): string | null {
  const rescale = transforms.find(({ step }) => step === "rescale");
  if (rescale === undefined) return units;
  const [low, high] = [frame.min, frame.max]
    .map((value) => rounded(value * Number(rescale["slope"]) + Number(rescale["intercept"])))
    .sort((a, b) => a - b);
  return `${low} to ${high} ${units ?? "of no stated unit"} in the first frame`;
}

/** The UID behind the name of a SOP class, unless the name holds it already. */
function uidBehind({ sop_class_name: name, sop_class_uid: uid }: Inspection): string {
  return uid === null || name?.includes(uid) === true ? "" : ` (${uid})`;
}

function planeText({ position, orientation }: PlanePosition): string {
  return `${position.map(rounded).join("\\")} mm, rows along ${orientation.slice(0, 3).map(rounded).join("\\")}, columns along ${orientation.slice(3).map(rounded).join("\\")}`;
}

function volumeText(volume: NonNullable<Inspection["volume"]>): string {
  const { slices, sliceSpacing, columnDirection, rowDirection, sliceDirection, origin } = volume;
  const directions = [columnDirection, rowDirection, sliceDirection].map((d) => d.map(rounded).join("\\"));
  return `${slices} slices ${rounded(sliceSpacing)} mm apart, from ${origin.map(rounded).join("\\")} along ${directions.join(" and ")} (columns, rows, slices)`;
}

function rounded(value: number): number {
  return Number(value.toFixed(4));
}

function frameText(frame: FrameSummary): string {
  return `${frame.min} to ${frame.max}, mean ${frame.mean.toFixed(3)}, sha256 ${frame.sha256}`;
}
