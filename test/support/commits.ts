/**
 * Receipts as the tests of the results need them: valid, small, and different where a test says so.
 */
import "./result-keys.js";
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { readdirSync } from "node:fs";
import { monotonic } from "../../src/base/monotonic.js";
import { RadserveError } from "../../src/base/errors.js";
import { nameOfHelper } from "../../src/files/helper-names.js";
import { NameLock } from "../../src/files/name-lock.js";
import { withName } from "../../src/results/commit/commit.js";
import type { ResultFile } from "../../src/results/receipt/names.js";
import { deliveryOf, type Delivery } from "../../src/results/receipt/delivery.js";
import {
  RECEIPT_SCHEMA,
  type Receipt,
  type ReceiptModel,
} from "../../src/results/receipt/receipt.js";

export const hash = (content: string | Uint8Array): string =>
  createHash("sha256").update(content).digest("hex");

export interface Sample {
  receipt: Receipt;
  files: ResultFile[];
}

/** A result of the image `pixels` under `name`: one file a model, with the given contents. */
export function sample(name: string, pixels: string, contents: Record<string, string>): Sample {
  const files: ResultFile[] = [];
  const models = Object.entries(contents).map(([model, content]): ReceiptModel => {
    const bytes = Buffer.from(content);
    const file = { name: `${name}.${model}.png`, bytes, sha256: hash(bytes) };
    files.push(file);
    return {
      name: model,
      version: "1.0.0",
      status: "succeeded",
      findings: [],
      measurements: [],
      outputs: [{ path: file.name, media_type: "image/png", sha256: file.sha256 }],
      provider: "cpu",
      warnings: [],
      sha256: hash(model),
      site_thresholds: {},
      transforms: [],
      raw_sha256: hash("raw"),
    };
  });
  return { files, receipt: receiptOf(name, pixels, models) };
}

/** What is asked for of a result, by an id. */
export const deliveryFor = (id: string): Delivery =>
  deliveryOf(
    {
      id,
      priority: "routine",
      subject: "tester",
      request_id: id,
      asked_at: "2026-01-01T00:00:00.000Z",
    },
    ["pacs"],
  );

export function receiptOf(name: string, pixels: string, models: ReceiptModel[]): Receipt {
  return {
    schema: RECEIPT_SCHEMA,
    radserve_version: "0.1.0",
    status: "completed",
    source: {
      name,
      format: "dicom",
      bytes: 1000,
      file_sha256: hash(`file ${pixels}`),
      pixel_sha256: hash(pixels),
      rows: 4,
      columns: 4,
      frames: 1,
      photometric_interpretation: "MONOCHROME2",
      sop_instance_uid: "1.2.3",
    },
    transforms: [],
    warnings: [],
    outputs_requested: ["json", "png"],
    models,
    timings: {
      request_id: "r",
      started_at: "2026-01-01T00:00:00Z",
      finished_at: "2026-01-01T00:00:01Z",
      milliseconds: {},
    },
  };
}

/**
 * On a busy machine it takes long to see that an owner is dead; a lease, after which everybody
 * counts so, is longer.
 */
const PATIENCE_MS = 5_000;

/** The lock of NAME, or undefined where somebody holds it who is not known to be dead. */
export function tryTake(dir: string, name: string): Promise<NameLock | undefined> {
  return NameLock.take(dir, name, { deadline: monotonic() + PATIENCE_MS }).catch(
    (error: unknown) => {
      if (error instanceof RadserveError && error.code === "deadline_exceeded") return undefined;
      throw error;
    },
  );
}

/**
 * Takes each name for which a killed process left something in a folder, as the next request would.
 * Names that somebody holds are left alone.
 * @returns the names that were taken
 */
export async function recoverFolder(dir: string): Promise<string[]> {
  const names = new Set(readdirSync(dir).flatMap((entry) => nameOfHelper(entry) ?? []));
  const recovered: string[] = [];
  for (const name of [...names].sort()) {
    const lock = await tryTake(dir, name);
    if (lock === undefined) continue;
    await lock.release();
    await withName(dir, name, {}, () => Promise.resolve());
    recovered.push(name);
  }
  return recovered;
}

/** What stat(1) says of the device, whose number has its major one in bits 8 to 19 (makedev(3)). */
export function isOnBlockDevice(dir: string): boolean {
  const device = execFileSync("stat", ["-c", "%D", dir], { encoding: "utf8" }).trim();
  return ((parseInt(device, 16) >> 8) & 0xfff) !== 0;
}
