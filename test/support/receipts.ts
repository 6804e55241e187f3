/** Receipts as models over the weeks would have written them, and receipts that are planted. */
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { receiptName } from "../../src/results/receipt/names.js";
import { signedText, type Receipt } from "../../src/results/receipt/receipt.js";

/**
 * Plants a receipt with the MAC that this process gives, by the keys that the test uses
 * (`useResultKeys`). @param name NAME @returns its path
 */
export async function writeReceipt(
  folder: string,
  name: string,
  receipt: Receipt,
): Promise<string> {
  const file = path.join(folder, receiptName(name));
  writeFileSync(file, await signedText(receipt, name));
  return file;
}

/** How many receipts of a job's folder have each key. */
export function countedReceipts(
  folder: string,
  keyOf: (receipt: Receipt) => string,
): Record<string, number> {
  const found: Record<string, number> = {};
  for (const name of readdirSync(folder).filter((one) => one.endsWith(".dcm.json"))) {
    const key = keyOf(JSON.parse(readFileSync(path.join(folder, name), "utf8")) as Receipt);
    found[key] = (found[key] ?? 0) + 1;
  }
  return found;
}

export interface Plan {
  week: number;
  study: number;
  score: number;
  scanner?: string;
  shadow?: boolean;
  refused?: boolean;
}

const HASH = "0".repeat(64);

export function receiptOf({
  week,
  study,
  score,
  scanner = "One",
  shadow,
  refused = false,
}: Plan): Receipt {
  const model = (name: string, shadowed: boolean, value: number) => ({
    name,
    version: "1.0.0",
    sha256: HASH,
    site_thresholds: {},
    transforms: [],
    measurements: [],
    outputs: [],
    warnings: [],
    status: refused ? ("not_accepted" as const) : ("succeeded" as const),
    ...(shadowed ? { shadow: true as const } : {}),
    findings: refused
      ? []
      : [{ label: "mass", score: value, threshold: 0.5, present: value >= 0.5 }],
  });
  const startedAt = new Date(Date.UTC(2026, 8, 7 + 7 * week, 9)).toISOString();
  return {
    schema: "radserve.receipt/1",
    radserve_version: "0.6.0",
    status: "completed",
    source: {
      name: "x.dcm",
      format: "dicom",
      bytes: 1,
      file_sha256: HASH,
      pixel_sha256: HASH,
      rows: 1,
      columns: 1,
      frames: 1,
      photometric_interpretation: "MONOCHROME2",
      study_instance_uid: `1.2.${week}.${study}`,
      manufacturer_model_name: scanner,
    },
    transforms: [],
    warnings: [],
    outputs_requested: [],
    models: [
      model("cxr", false, score),
      ...(shadow === true ? [model("cxr-next", true, score + 0.2)] : []),
    ],
    timings: {
      request_id: "1",
      started_at: startedAt,
      finished_at: startedAt,
      milliseconds: { infer: 5 },
    },
  };
}
