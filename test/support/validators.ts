/**
 * Validators, and their errors that are false or harmless, each with its reason. Nothing else is
 * let pass.
 */
import { spawnSync } from "node:child_process";

export interface Allowed {
  tool: "dciodvfy" | "dcentvfy" | "PixelMed";
  error: RegExp;
  reason: string;
}

export const ALLOWED: readonly Allowed[] = [
  {
    tool: "dciodvfy",
    error:
      /SourceImageSequence.*ReferencedFrameNumber.* Shall not be present for Referenced SOP Class that is not multi-frame/,
    reason:
      "One source file holds two frames though its SOP class is of single ones (ebe-sc-rgb16-2frame.dcm). Which of them is shown has to be said; the fault is the source's.",
  },
];

/**
 * dicom3tools of 2022 does not know Label Map Segmentation Storage, which is in the standard since
 * 2024.
 */
export const LABEL_MAPS_UNKNOWN: readonly RegExp[] = [
  /^Error - Information Object Not found/,
  /SegmentNumber not monotonically increasing from one by one .* with SegmentNumber of 0/,
  /ReferencedSegmentNumber.* Shall not be present for Referenced SOP Class that is not segmentation/,
];

/** All that a validator prints. */
export function outputOf(program: string, ...parameters: string[]): string {
  const { stdout, stderr } = spawnSync(program, parameters, { encoding: "utf8" });
  return stdout + stderr;
}

/** The errors of one object by itself that are not allowed. */
export const objectErrors = (path: string): string[] =>
  refusedErrors("dciodvfy", outputOf("dciodvfy", "-new", path));

/** The lines that are errors and are not allowed. */
export function refusedErrors(tool: Allowed["tool"], output: string): string[] {
  return output
    .split("\n")
    .filter((line) => /^Error|\bError\b.* - /.test(line))
    .filter((line) => !ALLOWED.some((entry) => entry.tool === tool && entry.error.test(line)));
}
