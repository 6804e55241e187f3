/** The folder that is exported to: files that appear whole, and go again with their result. */
import { mkdir, rm } from "node:fs/promises";
import path from "node:path";
import { explained, requireRoom } from "../../files/durable-files.js";
import { receiveFile, replaceFile } from "../../files/new-file.js";
import type { NiftiVolume } from "../../results/nifti/volume.js";
import { niftiFile } from "../../results/nifti/write.js";

/** A text as a part of a file's name: runs of other characters become one low line. */
export const inFileName = (text: string): string => text.replace(/[^\p{L}\p{N}._-]+/gu, "_");

export class ExportFolder {
  /** The files of the result that is being written. */
  written: string[] = [];

  readonly #kept: { minimumFreeBytes: number; side: "output" };

  constructor(
    readonly path: string,
    minimumFreeBytes: number,
  ) {
    this.#kept = { minimumFreeBytes, side: "output" };
  }

  /** The next result. @throws RadserveError disk_full */
  async begin(): Promise<void> {
    this.written = [];
    await requireRoom(this.path, this.#kept.minimumFreeBytes, "output");
  }

  /**
   * @param name a path below the folder
   * @throws RadserveError disk_full, file_exists; what reading the volume throws
   */
  async writeVolume(name: string, volume: NiftiVolume): Promise<void> {
    const { dir, base } = await this.#placeOf(name);
    const { outcome } = await receiveFile(dir, base, niftiFile(volume), {
      ...this.#kept,
      overwrite: false,
      mostBytes: Infinity,
    });
    // What another result wrote stays where this one is undone
    if (outcome === "created") this.written.push(name);
  }

  async writeJson(name: string, value: unknown): Promise<void> {
    const { dir, base } = await this.#placeOf(name);
    await replaceFile(dir, base, `${JSON.stringify(value, null, 2)}\n`, this.#kept);
    this.written.push(name);
  }

  /** Takes the files of a result away that cannot be written whole. */
  async undo(): Promise<void> {
    for (const name of this.written) await rm(path.join(this.path, name));
    this.written = [];
  }

  /** @throws RadserveError where its folder cannot be made */
  async #placeOf(name: string): Promise<{ dir: string; base: string }> {
    const at = path.join(this.path, name);
    await explained(() => mkdir(path.dirname(at), { recursive: true }));
    return { dir: path.dirname(at), base: path.basename(at) };
  }
}
