/** The results of the models for one image: findings, measurements, warnings and files. */
import type { Answer } from "../src/results/receipt/receipt.js";
import type { ComponentChildren } from "preact";
import { baseName, bytes, counted, figure, grouped } from "./format.js";
import { Badge, Card, Copy, Table } from "./parts.js";

type Model = Answer["models"][number];
/** What a model in shadow found is recorded, not to be shown: nobody sees it who does not ask. */
export const isShown = ({ shadow }: Model) => shadow !== true;
type ShownFinding = Model["findings"][number];

/**
 * Where something is to be seen: on a frame, or on the one that has the most of a label; and among
 * the marks of which model.
 */
export type Seen = { model: string; frame: number } | { model: string; label: string };

/** A model's results, and what shows where they are, where there is a picture. */
interface Shown {
  model: Model;
  show?: ((where: Seen) => void) | undefined;
  /** The word for one of several. */
  part?: string | undefined;
}

function sizeOf({ area, volume, patient_mm: mm }: ShownFinding): string {
  if (mm !== undefined) return `${mm.size.map(figure).join(" × ")} mm`;
  if (volume !== undefined) return `${grouped(volume.ml)} mL`;
  if (area === undefined) return "";
  return area.cm2 === undefined ? counted(area.pixels, "pixel") : `${grouped(area.cm2)} cm²`;
}

const TOGETHER = { maximum: "highest", mean: "mean", noisy_or: "noisy-or", total: "total" };

function placeOf(
  { frame, frames, box, point, over_frames: over }: ShownFinding,
  part: string,
): string {
  if (over !== undefined) return `${TOGETHER[over]} of all ${part}s`;
  const where =
    box === undefined
      ? point === undefined
        ? ""
        : `${figure(point.x)}, ${figure(point.y)}`
      : `${Math.round(box.x0)}, ${Math.round(box.y0)} to ${Math.round(box.x1)}, ${Math.round(box.y1)}`;
  const ends = frames === undefined ? "" : `${part}s ${frames[0]} to ${frames.at(-1)}`;
  return [frame === undefined ? ends : `${part} ${frame}`, where]
    .filter((one) => one !== "")
    .join("; ");
}

const numbered = ({
  label,
  number,
}: {
  label?: string | undefined;
  number?: number | undefined;
}): string => [label, number].filter((part) => part !== undefined).join(" ");

/** Numbers as ranges: 3 to 7, 9. */
export function ranges(numbers: readonly number[]): string {
  const sorted = [...new Set(numbers)].sort((a, b) => a - b);
  const runs: [number, number][] = [];
  for (const n of sorted) {
    const last = runs.at(-1);
    if (last !== undefined && last[1] === n - 1) last[1] = n;
    else runs.push([n, n]);
  }
  return runs.map(([from, to]) => (from === to ? from : `${from} to ${to}`)).join(", ");
}

/** A column of the findings, which is left out where no finding has anything in it. */
const COLUMNS: [name: string, of: (finding: ShownFinding, part: string) => string][] = [
  ["Score", ({ score }) => score?.toFixed(3) ?? ""],
  ["Threshold", ({ threshold }) => threshold?.toFixed(3) ?? ""],
  ["Margin", ({ margin }) => margin?.toFixed(3) ?? ""],
  ["Size", sizeOf],
  ["Turned", ({ angle }) => (angle === undefined ? "" : `${figure(angle)}°`)],
  ["Place", placeOf],
];

/** What a row of the table says, of one finding or of those of a label on all frames. */
interface FindingRow {
  name: string;
  present: boolean;
  cells: Readonly<Record<string, string>>;
  seen: Seen | undefined;
}

/** The frame of a finding, or the middle one of several. */
const frameOf = ({ frame, frames = [] }: ShownFinding): number | undefined =>
  frame ?? frames[frames.length >> 1];

function rowOf(finding: ShownFinding, model: string, part: string): FindingRow {
  const { label, present, volume } = finding;
  const at = frameOf(finding);
  return {
    name: numbered(finding),
    present,
    cells: Object.fromEntries(COLUMNS.map(([title, of]) => [title, of(finding, part)])),
    seen:
      at !== undefined
        ? { model, frame: at }
        : present && volume !== undefined
          ? { model, label }
          : undefined,
  };
}

const extentOf = ({ score, area }: ShownFinding): number => score ?? area?.cm2 ?? area?.pixels ?? 0;

/** The findings of a label on many frames: where it is, and the frame that has most of it. */
function rowOfLabel(
  label: string,
  of: readonly ShownFinding[],
  model: string,
  part: string,
): FindingRow {
  const found = of.filter(({ present }) => present);
  const all = found.length > 0 ? found : of;
  const most = all.reduce((best, one) => (extentOf(one) > extentOf(best) ? one : best));
  const frames = found.flatMap(({ frame }) => frame ?? []);
  const boxes = found.filter(({ box, point }) => box !== undefined || point !== undefined).length;
  const [threshold] = of.map((one) => one.threshold);
  const isOne = of.every((one) => one.threshold === threshold);
  const on = ` on ${part} ${most.frame ?? ""}`;
  const size = sizeOf(most);
  return {
    name: label,
    present: found.length > 0,
    seen: { model, frame: most.frame ?? 1 },
    cells: {
      Score: most.score === undefined ? "" : most.score.toFixed(3) + on,
      Threshold: isOne ? (threshold?.toFixed(3) ?? "") : "",
      Size: size === "" || found.length === 0 ? "" : size + (most.score === undefined ? on : ""),
      Place: [
        ...(boxes > frames.length / 2 && boxes > 1 ? [`${boxes} places`] : []),
        ...(frames.length === 0
          ? []
          : [`${part}${frames.length > 1 ? "s" : ""} ${ranges(frames)}`]),
      ].join("; "),
    },
  };
}

/**
 * A row for each label that was looked for on frame after frame, and one for every other finding.
 */
function rowsOf({ name, findings }: Model, part: string): FindingRow[] {
  const byLabel = new Map<string, ShownFinding[]>();
  for (const one of findings)
    if (one.frame !== undefined) byLabel.set(one.label, [...(byLabel.get(one.label) ?? []), one]);
  const done = new Set<string>();
  return findings.flatMap((one) => {
    const { frame, label } = one;
    const alike = byLabel.get(label) ?? [];
    if (frame === undefined || new Set(alike.map((each) => each.frame)).size === 1)
      return [rowOf(one, name, part)];
    if (done.has(label)) return [];
    done.add(label);
    return [rowOfLabel(label, alike, name, part)];
  });
}

/**
 * Where somebody looks first: at the box or point of the highest score, or else where there is most
 * of the first label that was found; undefined where nothing was.
 */
export function firstSeen(all: readonly Model[]): Seen | undefined {
  const models = all.filter(isShown);
  const regions = models
    .flatMap(({ name, findings }) => findings.map((finding) => ({ model: name, finding })))
    .filter(({ finding: { present, box, point } }) => present && (box ?? point) !== undefined)
    .sort((a, b) => (b.finding.score ?? 0) - (a.finding.score ?? 0));
  const [strongest] = regions;
  const frame = strongest && frameOf(strongest.finding);
  if (strongest !== undefined && frame !== undefined) return { model: strongest.model, frame };
  const rows = models
    .flatMap((model) => rowsOf(model, ""))
    .flatMap(({ present, seen }) => (present && seen !== undefined ? [seen] : []));
  return rows.find((seen) => "frame" in seen) ?? rows[0];
}

function Findings({ model, show, part = "frame" }: Shown) {
  const { name, findings, measurements } = model;
  if (findings.length === 0) return null;
  // What is measured stands once
  const isMeasured = findings.every(({ label, area, volume }) => {
    const what = area !== undefined ? "Area" : "Volume";
    const sized = area !== undefined || volume !== undefined;
    return sized && measurements.some((one) => one.label === label && one.name.startsWith(what));
  });
  const rows = rowsOf(model, part);
  const columns = COLUMNS.filter(
    ([title]) =>
      !(isMeasured && title === "Size") && rows.some(({ cells }) => (cells[title] ?? "") !== ""),
  );
  return (
    <Table
      label={`Findings of ${name}`}
      stacks
      head={[
        "Finding",
        "Found",
        ...columns.map(([title]) => title),
        ...(show === undefined ? [] : ["Picture"]),
      ]}
    >
      {rows.map(({ name, present, cells, seen }, i) => (
        <tr key={i}>
          <th scope="row">{name}</th>
          <td data-label="Found ">{present ? <Badge state="yes" tone="busy" /> : "no"}</td>
          {columns.map(([title]) => (
            <td
              key={title}
              class={title === "Place" ? "" : "figure"}
              {...(cells[title] === "" ? {} : { "data-label": `${title} ` })}
            >
              {cells[title]}
            </td>
          ))}
          {show !== undefined && (
            <td>
              {seen !== undefined && (
                <button type="button" class="small" onClick={() => show(seen)}>
                  Show
                  <span class="unseen">
                    {" "}
                    {name} {"frame" in seen ? `on ${part} ${seen.frame}` : `where most of it is`}
                  </span>
                </button>
              )}
            </td>
          )}
        </tr>
      ))}
    </Table>
  );
}

/** A unit of UCUM as people write it. */
const unitOf = (value: string): string =>
  value === "1"
    ? ""
    : value
        .replace("[hnsf'U]", "HU")
        .replace("{pixels}", "pixels")
        .replace(/^deg$/, "°")
        .replace(/^a$/, "years")
        .replace(/\{[^{}]*\}/g, "")
        .replace(
          /^([mck]?m|HU)([23])$/,
          (_, base: string, power: string) => base + (power === "2" ? "²" : "³"),
        );

export const valueText = ({
  value,
  unit,
}: Pick<Model["measurements"][number], "value" | "unit">): string =>
  `${grouped(value)} ${unitOf(unit.value)}`.trim().replace(" °", "°");

/**
 * What is measured of all together, and of each frame: a row for each label, a column for each
 * measurement.
 */
function Measurements({ model, part = "frame" }: Shown) {
  const [whole, each] = [true, false].map((isWhole) =>
    model.measurements.filter(({ frame }) => (frame === undefined) === isWhole),
  );
  return (
    <>
      <MeasurementTable of={model.name} measurements={whole ?? []} part={part} />
      <MeasurementTable of={`${model.name}, by ${part}`} measurements={each ?? []} part={part} />
    </>
  );
}

/** From the least to the greatest, where there are several. */
function spanOf(values: readonly Model["measurements"][number][]): string {
  const [least, ...others] = [...values].sort((a, b) => a.value - b.value);
  const most = others.at(-1);
  if (least === undefined) return "";
  const low = valueText(least);
  return most === undefined || valueText(most) === low
    ? low
    : `${grouped(least.value)} to ${valueText(most)}`;
}

function MeasurementTable({
  of: what,
  measurements,
  part,
}: {
  of: string;
  measurements: Model["measurements"];
  part: string;
}) {
  if (measurements.length === 0) return null;
  // A number tells boxes of one frame apart
  const isOfMany = new Set(measurements.map(({ frame }) => frame)).size > 1;
  const rows = new Map<string, Model["measurements"]>();
  for (const one of measurements) {
    const of = isOfMany ? (one.label ?? "") : numbered(one);
    rows.set(of, [...(rows.get(of) ?? []), one]);
  }
  const names = [...new Set(measurements.map(({ name }) => name))];
  return (
    <Table
      label={`Measurements of ${what}`}
      head={[isOfMany ? `Label, by ${part}` : "Label", ...names]}
    >
      {[...rows].map(([of, values]) => (
        <tr key={of}>
          <th scope="row">{of === "" ? "The image" : of}</th>
          {names.map((name) => (
            <td key={name} class="figure">
              {spanOf(values.filter((one) => one.name === name))}
            </td>
          ))}
        </tr>
      ))}
    </Table>
  );
}

export function ModelResult({
  model,
  show,
  part,
  children,
  files = true,
}: Shown & { children?: ComponentChildren; files?: boolean }) {
  return (
    <Card
      title={`${model.name} ${model.version}`}
      aside={
        <span>
          {model.shadow === true && <Badge state="shadow" />} <Badge state={model.status} />
        </span>
      }
      wide
    >
      {model.error !== undefined && <p class="note bad">{model.error.message}</p>}
      {model.reasons !== undefined && (
        <ul>
          {model.reasons.map(({ code, message }) => (
            <li key={code + message}>{message}</li>
          ))}
        </ul>
      )}
      {model.warnings.map(({ code, message }) => (
        <p key={code + message} class="note warn">
          {message}
        </p>
      ))}
      <Findings model={model} show={show} part={part} />
      <Measurements model={model} part={part} />
      {children}
      {files && model.outputs.length > 0 && (
        <ul class="files">
          {model.outputs.map((file) => (
            <li key={file.path}>
              <code>{file.path}</code>{" "}
              <span class="quiet">
                {file.media_type}
                {file.bytes !== undefined && `, ${bytes(file.bytes)}`}
              </span>{" "}
              <Copy text={file.path} what={`the path of ${baseName(file.path)}`} />
            </li>
          ))}
        </ul>
      )}
    </Card>
  );
}
