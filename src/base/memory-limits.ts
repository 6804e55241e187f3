/**
 * The memory that there is, and who may have how much of it: Radserve itself, images in work, and
 * what networks take for their runs. Together they are never more than there is, so that the system
 * ends nobody for memory.
 */
import os from "node:os";
import { ConfigError } from "./errors.js";

/** Radserve's processes before they work on anything, with all of their threads. */
const OWN = 2 ** 29;
/** Less than this, and nothing is left for images and networks beside Radserve itself. */
export const LEAST_MEMORY = 3 * 2 ** 28;
/** Only reached where there is too little memory to serve: doctor says so then. */
const LEAST_OF_IMAGES = 2 ** 26;
/** Networks have at least this part of all, whatever a setting gives to images. */
const LEAST_SHARE_OF_RUNS = 1 / 8;
/** What the process may come to have beside models and runs, after it was looked at. */
const GROWTH = 2 ** 28;

/** Bytes of memory that this machine has, or its control group may have. */
export function wholeMemory(): number {
  // process.constrainedMemory() is 0, or more than there is, where no limit is set
  const limit = process.constrainedMemory();
  return limit > 0 ? Math.min(limit, os.totalmem()) : os.totalmem();
}

/** Throws ConfigError where there is too little to serve. */
export function requireMemory(): void {
  const whole = wholeMemory();
  if (whole >= LEAST_MEMORY) return;
  throw new ConfigError(
    `Expected at least ${LEAST_MEMORY / 2 ** 20} MiB of memory for the server; the machine or its control group has ${Math.floor(whole / 2 ** 20)} MiB. Raise the limit (MemoryMax= of a systemd unit, --memory of a container), or use a larger machine.`,
  );
}

/** What images may take unless a setting says it: half of what Radserve itself leaves. */
export const usualMemory = (): number =>
  Math.max(Math.floor((wholeMemory() - OWN) / 2), LEAST_OF_IMAGES);

/**
 * What the runs of all networks may take together: what images and the process leave.
 * @param images that images may take
 * @param held bytes that the process has without images and runs, models among them
 */
export function memoryOfRuns(images: number, held: number): number {
  const whole = wholeMemory();
  const own = Math.max(OWN, held + GROWTH);
  return Math.floor(Math.max(whole - images - own, whole * LEAST_SHARE_OF_RUNS));
}
