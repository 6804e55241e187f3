/**
 * The models' entries as the worker threads get them: one serialised copy in shared memory, which a
 * thread reads when it is new. Otherwise the entries would be cloned twice for every image.
 */
import { deserialize, serialize } from "node:v8";
import type { ModelEntry } from "./entry.js";

/** Crosses to another thread without being copied. */
export interface SharedModels {
  version: number;
  bytes: SharedArrayBuffer;
}

/** Hands the entries out. */
export class ModelSharer {
  #entries: readonly ModelEntry[] | undefined;
  #shared: SharedModels = { version: 0, bytes: new SharedArrayBuffer(0) };

  /** @param entries a new array whenever anything in it has changed */
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

/** Reads the entries in a thread. */
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
