/**
 * What must be true of an output folder when everything has ended: all there, once, whole, right,
 * and nothing else.
 */
import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { receiptSchema, type Receipt } from "../../../src/results/receipt/receipt.js";
import { isReportName } from "../../../src/files/report-names.js";
import { LIST_FOLDER } from "../../../src/files/helper-names.js";
import { isMarkName } from "../../../src/files/folder-mark.js";
import type { TestImage } from "./images.js";

export interface Verified {
  receipts: number;
  /** Files that receipts list, each with the hash that is listed. */
  files: number;
  /** What is wrong, the first few in words. */
  faults: string[];
}

const sha256 = (file: string) => createHash("sha256").update(readFileSync(file)).digest("hex");

function filesBelow(folder: string): string[] {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => !entry.isDirectory() || /\.(radserve|lock)$/.test(entry.name))
    .map((entry) => path.relative(folder, path.join(entry.parentPath, entry.name)))
    .sort();
}

function boneOf(receipt: Receipt): number | undefined {
  const tissue = receipt.models.find((model) => model.name === "ct-tissue");
  return tissue?.measurements.find((measurement) => measurement.label === "bone")?.value;
}

interface Expected {
  input: string;
  output: string;
  files: number | undefined;
}

/** Faults of one receipt; the files that it lists are added to `listed`. */
function faultsOf(
  image: TestImage,
  { input, output, files }: Expected,
  listed: Set<string>,
): string[] {
  const name = `${image.relative}.json`;
  let receipt: Receipt;
  try {
    receipt = receiptSchema.parse(JSON.parse(readFileSync(path.join(output, name), "utf8")));
  } catch (error) {
    return [`${name}: ${error instanceof Error ? error.name : "unreadable"}`];
  }
  listed.add(name);
  const faults: string[] = [];
  if (receipt.status !== "completed") faults.push(`${name}: ${receipt.status}`);
  if (receipt.source.file_sha256 !== sha256(path.join(input, image.relative)))
    faults.push(`${name}: of another image`);
  const bone = boneOf(receipt);
  if (bone === undefined || Math.abs(bone - image.boneCm2) > 1e-6)
    faults.push(`${name}: bone ${bone ?? "absent"} cm2 where ${image.boneCm2} were painted`);
  const outputs = receipt.models.flatMap((model) => model.outputs);
  if (files !== undefined && outputs.length !== files)
    faults.push(`${name}: lists ${outputs.length} files of ${files}`);
  for (const file of outputs) {
    const relative = path.join(path.dirname(image.relative), file.path);
    listed.add(relative);
    try {
      if (sha256(path.join(output, relative)) !== file.sha256)
        faults.push(`${relative}: other bytes than listed`);
    } catch {
      faults.push(`${relative}: listed and not there`);
    }
  }
  return faults;
}

/**
 * A page and a table of one job, and nothing that was being written; the table has every image with
 * a result.
 */
function faultsOfReport(
  reports: readonly string[],
  images: readonly TestImage[],
  output: string,
): string[] {
  const names = reports.map((file) => path.parse(file));
  const [table] = reports.filter((file) => file.endsWith(".csv"));
  const whole =
    new Set(names.map(({ name }) => name)).size === 1 &&
    names.map(({ ext }) => ext).join() === ".csv,.html" &&
    names.every(({ base }) => !base.startsWith("."));
  if (!whole || table === undefined)
    return [`expected the report of one job, found ${reports.join(", ") || "none"}`];
  const text = readFileSync(path.join(output, table), "utf8");
  return images
    .filter(({ relative }) => !text.includes(`/${relative},`))
    .map(({ relative }) => `${table}: has no row of ${relative}`);
}

/**
 * Compares an output folder with the images that must have a result in it.
 * @param images all that must, and no others may, have a receipt
 * @param options.files how many files each of them must list, where that is known
 * @param options.by what wrote there: one job, which adds its report, or single requests, which add
 * none
 */
export function verify(
  images: readonly TestImage[],
  input: string,
  output: string,
  { files, by = "job" }: { files?: number; by?: "job" | "singles" } = {},
): Verified {
  const listed = new Set<string>();
  const faults = images.flatMap((image) => faultsOf(image, { input, output, files }, listed));
  // A process that is killed between two file operations leaves the guard of a lock; the next that
  // breaks it removes it
  const isHelper = (name: string) => isMarkName(name) || name.endsWith(".lock.break");
  const isOfList = (file: string) => path.dirname(file) === LIST_FOLDER;
  const extra = filesBelow(output).filter(
    (file) => !listed.has(file) && !isHelper(path.basename(file)) && !isOfList(file),
  );
  const reports = by === "job" ? extra.filter(isReportName) : [];
  if (by === "job") faults.push(...faultsOfReport(reports, images, output));
  faults.push(
    ...extra.filter((file) => !reports.includes(file)).map((file) => `${file}: left over`),
  );
  const receipts = [...listed].filter((file) => file.endsWith(".dcm.json")).length;
  return { receipts, files: listed.size - receipts, faults };
}
