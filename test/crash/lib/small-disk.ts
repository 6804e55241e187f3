/** A disk of its own for a folder, which is full for a while. */
import { execFileSync, spawnSync } from "node:child_process";
import { statfsSync } from "node:fs";

const BYTES = 256 * 1024 * 1024;
const PAGE = 4096;

/** Why a scenario with such a disk is skipped here. */
export const noSmallDisk = (): string | false =>
  process.getuid?.() !== 0 && "mounting a tmpfs needs root";

export class SmallDisk {
  /** @param folder has to be there */
  constructor(
    private readonly folder: string,
    private readonly bytes = BYTES,
  ) {
    execFileSync("mount", ["-t", "tmpfs", "-o", `size=${bytes}`, "radserve-test", folder]);
  }

  /** Leaves it so many bytes, and a little more while others write to it. */
  fill(left: number): void {
    // A tmpfs of no size has no limit
    for (let more = PAGE; ; more += PAGE) {
      const { blocks, bfree, bsize } = statfsSync(this.folder);
      if (this.#resize((blocks - bfree) * bsize + left + more)) return;
    }
  }

  /** Gives it so many bytes in all. */
  grow(bytes: number): void {
    if (!this.#resize(bytes)) throw new Error(`The disk did not get ${bytes} bytes.`);
  }

  free(): void {
    this.#resize(this.bytes);
  }

  unmount(): void {
    execFileSync("umount", [this.folder]);
  }

  /** False where it has more than that. */
  #resize(bytes: number): boolean {
    const words = ["-o", `remount,size=${bytes}`, this.folder];
    return spawnSync("mount", words, { stdio: "ignore" }).status === 0;
  }
}
