/**
 * A job as a table (RFC 4180): a row for each label and each measurement of each model on each
 * image, with everything that the report counts.
 */
import { harmless } from "../../base/harmless.js";
import { observedIn, scannerOf, workTime } from "../../results/receipt/observed.js";
import type { Measurement, Receipt, ReceiptModel } from "../../results/receipt/receipt.js";
import { codeOf, measuredBy, measurementName, type ReportedImage } from "./tally.js";

const COLUMNS = [
  "index",
  "input_image_path",
  "state",
  "reused",
  "code",
  "message",
  "modality",
  "scanner",
  "model",
  "version",
  "shadow",
  "model_status",
  "label",
  "present",
  "score",
  "extent",
  "unit",
  "warnings",
  "work_ms",
  "measurement",
  "frame",
  "value",
  "value_unit",
  "study_instance_uid",
  "receipt_path",
] as const;
type ReportRow = Partial<Record<(typeof COLUMNS)[number], string | number | boolean>>;

/**
 * Spreadsheets take a text that begins so for a formula, some of them after blanks or with the wide
 * forms of these characters.
 */
const FORMULA = /^\s*[=+\-@\uff1d\uff0b\uff0d\uff20]|^[\t\r\n]/;

function cell(value: ReportRow[keyof ReportRow]): string {
  if (value === undefined) return "";
  if (typeof value !== "string") return String(value);
  const shown = harmless(value);
  const text = FORMULA.test(shown) ? `'${shown}` : shown;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

const line = (row: ReportRow) => `${COLUMNS.map((column) => cell(row[column])).join(",")}\r\n`;

export const HEAD_ROW = `${COLUMNS.join(",")}\r\n`;

const coded = (why: { code: string; message: string } | undefined): ReportRow =>
  why === undefined ? {} : { code: why.code, message: why.message };

/** The rows of one image; one at least. */
export function rowsOf(image: ReportedImage): string {
  const { index, input_image_path, state, reused = false, error, reason } = image;
  const { receipt, receiptPath } = image;
  const why = codeOf(error) ?? reason ?? image.untold;
  const study = receipt?.source.study_instance_uid;
  const own: ReportRow = {
    index,
    input_image_path,
    state,
    reused,
    ...coded(why),
    ...(study === undefined ? {} : { study_instance_uid: study }),
    ...(receiptPath === undefined ? {} : { receipt_path: receiptPath }),
  };
  if (receipt === undefined) return line(own);
  return receipt.models.map((model) => rowsOfModel(own, receipt, model)).join("");
}

function rowsOfModel(own: ReportRow, receipt: Receipt, model: ReceiptModel): string {
  const { name, version, status, shadow = false } = model;
  const base: ReportRow = {
    ...own,
    ...coded(codeOf(model.error) ?? model.reasons?.[0]),
    ...(receipt.source.modality === undefined ? {} : { modality: receipt.source.modality }),
    scanner: scannerOf(receipt),
    model: name,
    version,
    shadow,
    model_status: status,
    warnings: [...new Set([...receipt.warnings, ...model.warnings].map(({ code }) => code))].join(
      " ",
    ),
    work_ms: Math.round(workTime(receipt)),
  };
  const labels = observedIn(model).map(({ label, present, score, extent }): ReportRow => ({
    label,
    present,
    ...(score === undefined ? {} : { score }),
    ...(extent === undefined ? {} : { extent: extent.value, unit: extent.unit }),
  }));
  const rows = [...labels, ...measuredBy(model).map(rowOfMeasurement)];
  return (rows.length === 0 ? [{}] : rows).map((row) => line({ ...base, ...row })).join("");
}

function rowOfMeasurement(measurement: Measurement): ReportRow {
  const { label, frame, value, unit } = measurement;
  return {
    ...(label === undefined ? {} : { label }),
    ...(frame === undefined ? {} : { frame }),
    measurement: measurementName(measurement),
    value,
    value_unit: unit.value,
  };
}
