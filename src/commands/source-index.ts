/** Where sources of receipts lie: receipts have names and hashes, and no paths. */
import { opendir, stat } from "node:fs/promises";
import path from "node:path";
import { errors } from "../base/errors.js";
import type { Receipt } from "../results/receipt/receipt.js";
import { hashFile } from "../files/durable-files.js";
import { isFolder, sourceBelow, sourceIn } from "./verify.js";

/** Files and folders below some folders, by their names, looked through once. */
export class SourceIndex {
  #paths: Promise<Map<string, string[]>> | undefined;

  constructor(private readonly folders: readonly string[]) {}

  /**
   * The source of a receipt, beside it or below the folders. Many files and folders have one name
   * (IM0001, SE1): of several, the one with the receipt's hashes.
   * @returns where none has them, the first of that name: whoever reads it tells what differs
   * @throws RadserveError input_not_found
   */
  async find(receipt: Receipt, dir: string): Promise<string> {
    const { source } = receipt;
    const named = await this.#named(receipt, dir);
    const [first] = named;
    if (first === undefined)
      throw errors.input_not_found("No file or folder has the name of the receipt's source.");
    if (named.length > 1)
      for (const one of named) {
        const found = await sourceWithin(one, source);
        if (found !== undefined) return found;
      }
    return sourceIn(first, receipt);
  }

  /** What has a name of the source and is of its kind. */
  async #named({ source }: Receipt, dir: string): Promise<string[]> {
    this.#paths ??= this.#look();
    const known = await this.#paths;
    const all = namesOf(source).flatMap((name) => [
      path.join(dir, name),
      ...(known.get(name) ?? []),
    ]);
    const named: string[] = [];
    for (const one of new Set(all)) {
      const facts = await stat(one).catch(() => undefined);
      if (facts === undefined || facts.isDirectory() !== isFolder(source)) continue;
      if (isFolder(source) || facts.size === source.bytes) named.push(one);
    }
    return named;
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

/** Where a source lies in what has its name; undefined where its hashes are others. */
async function sourceWithin(named: string, source: Receipt["source"]): Promise<string | undefined> {
  if (isFolder(source)) return sourceBelow(named, source);
  return (await hashFile(named)) === source.file_sha256 ? named : undefined;
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
