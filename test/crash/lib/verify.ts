/** What must be true of an output folder when everything has ended: all there, once, whole, right, and nothing else. */
import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { receiptSchema, type Receipt } from "../../../src/results/receipt/receipt.js";
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
    .map((entry) => path.relative(folder, path.join(entry.parentPath, entry.name)));
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
function faultsOf(image: TestImage, { input, output, files }: Expected, listed: Set<string>): string[] {
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
 * Compares an output folder with the images that must have a result in it.
 * @param images all that must, and no others may, have a receipt
 * @param files how many files each of them must list, where that is known
 */
export function verify(
  images: readonly TestImage[],
  input: string,
  output: string,
  files?: number,
): Verified {
  const listed = new Set<string>();
  const faults = images.flatMap((image) => faultsOf(image, { input, output, files }, listed));
  const extra = filesBelow(output).filter((file) => !listed.has(file) && !isMarkName(path.basename(file)));
  faults.push(...extra.map((file) => `${file}: left over`));
  const receipts = [...listed].filter((file) => file.endsWith(".dcm.json")).length;
  return { receipts, files: listed.size - receipts, faults };
}
