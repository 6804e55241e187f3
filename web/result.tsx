/** The results of the models for one image: findings, measurements, warnings and files. */
import type { Answer } from "../src/results/receipt/receipt.js";
import type { ComponentChildren } from "preact";
import { useContext } from "preact/hooks";
import { Look } from "./look.js";
import { baseName, bytes, counted, figure, milliseconds, words } from "./format.js";
import { Allowed, Badge, Card, Copy, Deliveries, Table } from "./parts.js";

type Model = Answer["models"][number];
type Finding = Model["findings"][number];

/** A model's results, and what shows a frame where there is a picture. */
interface Shown {
  model: Model;
  show?: ((frame: number) => void) | undefined;
  /** The word for one of several. */
  part?: string | undefined;
}

function sizeOf({ area, volume, patient_mm: mm }: Finding): string {
  if (mm !== undefined) return `${mm.size.map(figure).join(" × ")} mm`;
  if (volume !== undefined) return `${figure(volume.ml)} mL`;
  if (area === undefined) return "";
  return area.cm2 === undefined ? counted(area.pixels, "pixel") : `${figure(area.cm2)} cm²`;
}

const TOGETHER = { maximum: "highest", mean: "mean", noisy_or: "noisy-or", total: "total" };

function placeOf({ frame, frames, box, point, over_frames: over }: Finding, part: string): string {
  if (over !== undefined) return `${TOGETHER[over]} of all ${part}s`;
  const where =
    box === undefined
      ? point === undefined
        ? ""
        : `${figure(point.x)}, ${figure(point.y)}`
      : `${Math.round(box.x0)}, ${Math.round(box.y0)} to ${Math.round(box.x1)}, ${Math.round(box.y1)}`;
  const ends = frames === undefined ? "" : `${part}s ${frames[0]} to ${frames.at(-1)}`;
  return [frame === undefined ? ends : `${part} ${frame}`, where].filter((one) => one !== "").join("; ");
}

const numbered = ({ label, number }: { label?: string | undefined; number?: number | undefined }): string =>
  [label, number].filter((part) => part !== undefined).join(" ");

/** The frame that shows a finding, if it is not about all of them. */
const middleOf = ({ frame, frames = [] }: Finding): number | undefined => frame ?? frames[frames.length >> 1];

/** A column of the findings, which is left out where no finding has anything in it. */
const COLUMNS: [name: string, of: (finding: Finding, part: string) => string][] = [
  ["Score", ({ score }) => score?.toFixed(3) ?? ""],
  ["Threshold", ({ threshold }) => threshold?.toFixed(3) ?? ""],
  ["Margin", ({ margin }) => margin?.toFixed(3) ?? ""],
  ["Size", sizeOf],
  ["Turned", ({ angle }) => (angle === undefined ? "" : `${figure(angle)}°`)],
  ["Place", placeOf],
];

function Findings({ model: { name, findings }, show, part = "frame" }: Shown) {
  if (findings.length === 0) return null;
  const columns = COLUMNS.filter(([, of]) => findings.some((finding) => of(finding, part) !== ""));
  return (
    <Table
      label={`Findings of ${name}`}
      head={[
        "Finding",
        "Found",
        ...columns.map(([title]) => title),
        ...(show === undefined ? [] : ["Picture"]),
      ]}
    >
      {findings.map((finding, i) => (
        <tr key={i}>
          <th scope="row">{numbered(finding)}</th>
          <td>{finding.present ? <Badge state="yes" tone="busy" /> : "no"}</td>
          {columns.map(([title, of]) => (
            <td key={title} class="figure">
              {of(finding, part)}
            </td>
          ))}
          {show !== undefined && (
            <td>
              {middleOf(finding) !== undefined && (
                <button type="button" class="small" onClick={() => show(middleOf(finding) ?? 1)}>
                  Show
                  <span class="unseen">
                    {" "}
                    {numbered(finding)} on {part} {middleOf(finding)}
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
        .replace(/\{[^}]*\}/g, "")
        .replace(
          /^([mck]?m|HU)([23])$/,
          (_, base: string, power: string) => base + (power === "2" ? "²" : "³"),
        );

export const valueText = ({ value, unit }: Pick<Model["measurements"][number], "value" | "unit">): string =>
  `${figure(value)} ${unitOf(unit.value)}`.trim().replace(" °", "°");

/** What is measured of all together, and of each frame: a row for each label and frame, a column for each measurement. */
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
  const rows = new Map<string, Map<string, string>>();
  for (const one of measurements) {
    const { name, frame } = one;
    const of = [numbered(one), frame === undefined ? "" : `${part} ${frame}`].filter(Boolean).join(", ");
    const row = rows.get(of) ?? new Map<string, string>();
    rows.set(of, row.set(name, valueText(one)));
  }
  const names = [...new Set(measurements.map(({ name }) => name))];
  return (
    <Table label={`Measurements of ${what}`} head={["Of", ...names]}>
      {[...rows].map(([of, values]) => (
        <tr key={of}>
          <th scope="row">{of === "" ? "The image" : of}</th>
          {names.map((name) => (
            <td key={name} class="figure">
              {values.get(name)}
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

export function Result({ answer }: { answer: Answer }) {
  const { total } = answer.timings_ms;
  const looks = useContext(Allowed).includes("view");
  return (
    <section class="grid result" aria-label="Result">
      <Card title={baseName(answer.input_image_path)} aside={<Badge state={answer.status} />} wide>
        <p>
          {answer.reused ? "This result existed already and was reused." : "The result is written."}
          {total !== undefined && ` It took ${milliseconds(total)}.`}
        </p>
        {answer.warnings.map(({ code, message }) => (
          <p key={code + message} class="note warn">
            <strong>{words(code)}</strong> {message}
          </p>
        ))}
        <Deliveries deliveries={answer.deliveries} />
        <p>
          Receipt <code>{answer.receipt_path}</code>{" "}
          <Copy text={answer.receipt_path} what="the path of the receipt" />
        </p>
      </Card>
      {looks ? (
        <Look key={answer.request_id} receiptPath={answer.receipt_path} inputPath={answer.input_image_path} />
      ) : (
        answer.models.map((model) => <ModelResult key={model.name} model={model} />)
      )}
    </section>
  );
}
