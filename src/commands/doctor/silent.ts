/**
 * Folders of the settings that do not answer: a share that is gone, for one. Each look at one holds
 * a thread for ever, and one that waits for it holds the whole command.
 */
import path from "node:path";
import type { Config } from "../../config.js";
import { folderFault } from "../../files/usable.js";
import { isInside } from "../../files/roots.js";
import { READ, REMEDIES } from "../../server/conditions.js";
import { bad, type Diagnosis } from "./finding.js";

export class SilentFolders {
  constructor(private readonly found: ReadonlyMap<string, string>) {}

  /** Whether a path lies in one. */
  has(folder: string): boolean {
    return isInside(path.resolve(folder), [...this.found.keys()]);
  }

  findings(): Diagnosis[] {
    return [...this.found].map(([folder, name]) => ({
      late: true,
      ...bad(name, `${folder}: its share or disk does not answer`, REMEDIES.share_unavailable),
    }));
  }

  /** The settings without the roots, and the clients' names of folders, that lie in one. */
  without(config: Config): Config {
    const answers = (folder: string) => !this.has(folder);
    return {
      ...config,
      input_roots: config.input_roots.filter(answers),
      output_roots: config.output_roots.filter(answers),
      path_map: config.path_map.filter(({ to }) => answers(to)),
    };
  }
}

/** Looks at each folder once, for two seconds, all beside each other. */
export async function silentFolders(config: Config): Promise<SilentFolders> {
  const { state_dir, keys_dir, models_dir, input_roots, output_roots } = config;
  const names = new Map([
    ...output_roots.map((folder) => [folder, "output root"] as const),
    ...input_roots.map((folder) => [folder, "input root"] as const),
    [models_dir, "models"],
    [keys_dir, "keys"],
    [state_dir, "state directory"],
  ]);
  const looked = [...names].map(async ([folder, name]) => {
    const fault = await folderFault(folder, READ);
    return fault?.silent === true ? [[path.resolve(folder), name] as const] : [];
  });
  return new SilentFolders(new Map((await Promise.all(looked)).flat()));
}
