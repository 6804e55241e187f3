/** Where sources of receipts lie: receipts have names and hashes, and no paths. */
import { opendir, stat } from "node:fs/promises";
import path from "node:path";
import { errors } from "../base/errors.js";
import type { Receipt } from "../results/receipt/receipt.js";
import { sourceIn } from "./verify.js";

/** Files and folders below some folders, by their names, looked through once. */
export class SourceIndex {
  #paths: Promise<Map<string, string[]>> | undefined;

  constructor(private readonly folders: readonly string[]) {}

  /**
   * The source of a receipt, beside it or below the folders.
   * @throws RadserveError input_not_found
   */
  async find(receipt: Receipt, dir: string): Promise<string> {
    const { source } = receipt;
    const isFolder = source.slices !== undefined || source.case !== undefined;
    this.#paths ??= this.#look();
    const known = await this.#paths;
    for (const name of namesOf(source))
      for (const file of [path.join(dir, name), ...(known.get(name) ?? [])]) {
        const facts = await stat(file).catch(() => undefined);
        if (facts === undefined || facts.isDirectory() !== isFolder) continue;
        if (!isFolder && facts.size !== source.bytes) continue;
        // It is read and compared by its hashes there
        const found = await sourceIn(file, receipt).catch(() => undefined);
        if (found !== undefined) return found;
      }
    throw errors.input_not_found("No file or folder has the name of the receipt's source.");
  }

  async #look(): Promise<Map<string, string[]>> {
    const paths = new Map<string, string[]>();
    const left = [...this.folders];
    for (let folder = left.shift(); folder !== undefined; folder = left.shift()) {
      add(paths, folder);
      const entries = await opendir(folder).catch(() => undefined);
      if (entries === undefined) continue;
      for await (const entry of entries) {
        const at = path.join(folder, entry.name);
        if (entry.isDirectory()) left.push(at);
        else if (entry.isFile()) add(paths, at);
      }
    }
    return paths;
  }
}

function add(paths: Map<string, string[]>, at: string): void {
  const name = path.basename(at);
  const known = paths.get(name);
  if (known === undefined) paths.set(name, [at]);
  else known.push(at);
}

/** A series of several has the folder's name and its UID, a case the name and `.case`. */
function namesOf({ name, series_instance_uid: uid }: Receipt["source"]): string[] {
  const ends = [".case", ...(uid === undefined ? [] : [`.${uid}`])];
  return [name, ...ends.flatMap((end) => (name.endsWith(end) ? name.slice(0, -end.length) : []))];
}
