/**
 * What it costs to wait for the disk: a figure of the machine, which everybody pays who promises
 * that a result stays.
 */
import { closeSync, fsyncSync, mkdtempSync, openSync, renameSync, writeSync } from "node:fs";
import { join } from "node:path";
import { median } from "../lib/statistics.js";

export interface DiskFigures {
  /** Milliseconds, medians: fsync of a new file of 4 KiB. */
  file_ms: number;
  /** Of the folder, after the file got its name in it. */
  folder_ms: number;
  times: number;
}

const BYTES = 4096;

/** @param place a folder on the disk that is meant; its files stay there */
export function fsyncCost(place: string, times = 200): DiskFigures {
  const folder = mkdtempSync(join(place, "fsync-"));
  const timed = (work: () => void) => {
    const began = performance.now();
    work();
    return performance.now() - began;
  };
  const [files, folders]: [number[], number[]] = [[], []];
  const own = openSync(folder, "r");
  try {
    for (let i = 0; i < times; i++) {
      const path = join(folder, String(i));
      const file = openSync(`${path}.part`, "w");
      writeSync(file, Buffer.alloc(BYTES, i));
      files.push(timed(() => fsyncSync(file)));
      closeSync(file);
      renameSync(`${path}.part`, path);
      folders.push(timed(() => fsyncSync(own)));
    }
  } finally {
    closeSync(own);
  }
  return { file_ms: median(files), folder_ms: median(folders), times };
}
