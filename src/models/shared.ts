/**
 * The models' entries as the worker threads get them: one serialised copy in shared memory, that a thread reads when
 * it is a new one. They would otherwise be cloned twice for every image.
 */
import { deserialize, serialize } from "node:v8";
import type { ModelEntry } from "./entry.js";

/** Crosses to another thread without being copied. */
export interface SharedModels {
  version: number;
  bytes: SharedArrayBuffer;
}

/** The side that hands them out. */
export class ModelSharer {
  #entries: readonly ModelEntry[] | undefined;
  #shared: SharedModels = { version: 0, bytes: new SharedArrayBuffer(0) };

  /** @param entries another array whenever something about them is another */
  share(entries: readonly ModelEntry[]): SharedModels {
    if (entries === this.#entries) return this.#shared;
    const serialised = serialize(entries);
    const bytes = new SharedArrayBuffer(serialised.length);
    new Uint8Array(bytes).set(serialised);
    this.#entries = entries;
    this.#shared = { version: this.#shared.version + 1, bytes };
    return this.#shared;
  }
}

/** The side of a thread. */
export class ModelReader {
  #version = 0;
  #entries: readonly ModelEntry[] = [];

  read({ version, bytes }: SharedModels): readonly ModelEntry[] {
    if (version !== this.#version) {
      this.#entries = deserialize(new Uint8Array(bytes)) as ModelEntry[];
      this.#version = version;
    }
    return this.#entries;
  }
}
