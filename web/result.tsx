/** The results of the models for one image: findings, measurements, warnings and files. */
import type { Answer } from "../src/results/receipt/receipt.js";
import type { ComponentChildren } from "preact";
import { useContext } from "preact/hooks";
import { Look } from "./look.js";
import { baseName, bytes, figure, milliseconds, words } from "./format.js";
import { Allowed, Badge, Card, Copy, Table } from "./parts.js";

type Model = Answer["models"][number];
type Finding = Model["findings"][number];

/** A model's results, and what shows a frame where there is a picture. */
interface Shown {
  model: Model;
  show?: ((frame: number) => void) | undefined;
}

function sizeOf({ area, volume }: Finding): string {
  if (volume !== undefined) return `${figure(volume.ml)} mL`;
  if (area === undefined) return "";
  return area.cm2 === undefined ? `${area.pixels} pixels` : `${figure(area.cm2)} cm²`;
}

const TOGETHER = {
  maximum: "highest of all frames",
  mean: "mean of all frames",
  noisy_or: "noisy-or of all frames",
};

function placeOf({ frame, box, point, over_frames: over }: Finding): string {
  if (over !== undefined) return TOGETHER[over];
  const where =
    box === undefined
      ? point === undefined
        ? ""
        : `${figure(point.x)}, ${figure(point.y)}`
      : `${Math.round(box.x0)}, ${Math.round(box.y0)} to ${Math.round(box.x1)}, ${Math.round(box.y1)}`;
  return [frame === undefined ? "" : `frame ${frame}`, where].filter((part) => part !== "").join("; ");
}

/** A column of the findings, which is left out where no finding has anything in it. */
const COLUMNS: [name: string, of: (finding: Finding) => string][] = [
  ["Score", ({ score }) => score?.toFixed(3) ?? ""],
  ["Threshold", ({ threshold }) => threshold?.toFixed(3) ?? ""],
  ["Margin", ({ margin }) => margin?.toFixed(3) ?? ""],
  ["Size", sizeOf],
  ["Turned", ({ angle }) => (angle === undefined ? "" : `${figure(angle)}°`)],
  ["Place", placeOf],
];

function Findings({ model: { name, findings }, show }: Shown) {
  if (findings.length === 0) return null;
  const columns = COLUMNS.filter(([, of]) => findings.some((finding) => of(finding) !== ""));
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
          <th scope="row">{finding.label}</th>
          <td>{finding.present ? <Badge state="yes" tone="busy" /> : "no"}</td>
          {columns.map(([title, of]) => (
            <td key={title} class="figure">
              {of(finding)}
            </td>
          ))}
          {show !== undefined && (
            <td>
              {finding.frame !== undefined && (
                <button type="button" class="small" onClick={() => show(finding.frame ?? 1)}>
                  Show
                  <span class="unseen">
                    {" "}
                    {finding.label} on frame {finding.frame}
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
        .replace(/\{[^}]*\}/g, "")
        .replace(
          /^([mck]?m|HU)([23])$/,
          (_, base: string, power: string) => base + (power === "2" ? "²" : "³"),
        );

export const valueText = ({ value, unit }: Model["measurements"][number]): string =>
  `${figure(value)} ${unitOf(unit.value)}`.trim().replace(" °", "°");

function Measurements({ model }: { model: Model }) {
  if (model.measurements.length === 0) return null;
  return (
    <Table label={`Measurements of ${model.name}`} head={["Measurement", "Of", "Value"]}>
      {model.measurements.map((one, i) => (
        <tr key={i}>
          <th scope="row">{one.name}</th>
          <td>
            {[one.label ?? "", one.frame === undefined ? "" : `frame ${one.frame}`]
              .filter(Boolean)
              .join(", ")}
          </td>
          <td class="figure">{valueText(one)}</td>
        </tr>
      ))}
    </Table>
  );
}

export function ModelResult({
  model,
  show,
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
      <Findings model={model} show={show} />
      <Measurements model={model} />
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
          {answer.reused ? "This result was there already; nothing was computed." : "The result is written."}
          {total !== undefined && ` It took ${milliseconds(total)}.`}
        </p>
        {answer.warnings.map(({ code, message }) => (
          <p key={code + message} class="note warn">
            <strong>{words(code)}</strong> {message}
          </p>
        ))}
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
