/**
 * The roots of this node: whether each is the folder that it was, and that the other nodes see. A
 * share that is not mounted looks like an empty folder, and every request for it would be answered
 * with "not found".
 */
import { readFileSync } from "node:fs";
import { stat } from "node:fs/promises";
import path from "node:path";
import { z } from "zod";
import { errno } from "../base/errno.js";
import { errors, type RadserveError } from "../base/errors.js";
import { faultForLog, type Logger } from "../base/log.js";
import { monotonic } from "../base/monotonic.js";
import { storedJson } from "../base/stored-json.js";
import type { Config } from "../config.js";
import { tellAbsence, type RootState } from "../files/absent-roots.js";
import { holdsSomething } from "../files/folder-mark.js";
import { FORBIDDEN } from "../files/path-judgement.js";
import { replacePrivately } from "../files/private-file.js";
import { leaveRootMark, ROOT_MARK, rootMark } from "../files/root-mark.js";
import { faultOfError, patiently, SILENT } from "../files/usable.js";
import type { BulkFigures } from "../jobs/messages.js";
import type { SeenRoot } from "../jobs/nodes.js";
import type { Condition } from "./condition.js";
import { folderCondition, neededFolders, type NeededFolder } from "./conditions.js";
import { peersOf, type FleetNode } from "./fleet.js";

/** Of a root that does not answer. */
const NOTHING_SEEN = { mark: null, empty: false, mounted: false, dev: 0 };
/** A node that cannot reach its database in time is ready without it. */
const LONGEST_UNKNOWN_MS = 10_000;
/** An input root that is empty here, and not elsewhere, may have got its first file this moment. */
const LOOKS_UNTIL_EMPTY = 2;
/** A share may be slow for a moment; each request that waits for one holds a thread. */
const LOOKS_UNTIL_ABSENT = 2;

/** What a root was when it was last seen well, by its path. */
const seenSchema = z.record(
  z.string(),
  z.object({ mark: z.string().nullable(), mounted: z.boolean() }),
);
type Seen = z.infer<typeof seenSchema>;
const seenFile = ({ state_dir }: Pick<Config, "state_dir">) =>
  path.join(state_dir, "roots-seen.json");

/** Where none can be read nothing is known of before. */
function readSeen(config: Config): Seen {
  try {
    return seenSchema.parse(storedJson(readFileSync(seenFile(config), "utf8")));
  } catch {
    return {};
  }
}

const UNMOUNTED =
  "it was a mount point before, and is none now, but a folder without what lay there: its share is not mounted.";
const IF_RIGHT = `If this folder is to be used from now on, stop the server, remove roots-seen.json from the state directory, and start it`;

interface Root {
  side: SeenRoot["side"];
  number: number;
  /** Its path in the settings. */
  folder: string;
}

/** A root as it was when it was last looked at. */
interface LookedRoot extends Root {
  needed: NeededFolder;
  mark: string | null;
  empty: boolean;
  mounted: boolean;
  /** The device that it lies on. */
  dev: number;
  /** How often in a row it was empty while another node saw something in it, */
  contradicted: number;
  /** or did not answer. */
  silent: number;
}

/** Why requests for a root fail, in words. */
interface RootFault {
  root: LookedRoot;
  found: string;
  /** Another node sees it. */
  elsewhere: boolean;
}

export interface SharesOptions {
  config: Config;
  spool: () => string | undefined;
  /** What is known of the other nodes. */
  jobs: () => Pick<BulkFigures, "nodes" | "self" | "trouble">;
  log: Logger;
}

export class Shares {
  /** The first look at which the other nodes were known, or that they cannot be, has been. */
  #known: boolean;
  readonly #since = monotonic();
  #others: NeededFolder[] = [];
  #roots: LookedRoot[] = [];
  /**
   * Folders without a mark, each with the name of a node that saw a marked root on that side. Such
   * a folder counts as not mounted until it has a mark, even if that node falls silent: it may only
   * be slow, and a mount would hide what was written to the folder.
   */
  readonly #unmarked = new Map<string, string>();
  readonly #seen: Seen;

  constructor(private readonly options: SharesOptions) {
    this.#seen = readSeen(options.config);
    this.#known = options.config.database_url === undefined;
  }

  /** What the other nodes see is known, or will not be for long. */
  get known(): boolean {
    return this.#known;
  }

  /** Looks at all folders that serving needs. Nobody waits for a share. */
  async look(): Promise<void> {
    const { config, spool, jobs } = this.options;
    const { self, trouble } = jobs();
    const isTold =
      self !== null || trouble !== null || monotonic() - this.#since > LONGEST_UNKNOWN_MS;
    // The folders were looked at, and only what other nodes see is waited for
    if (!this.#known && !isTold && this.#roots.length > 0) return;
    const needed = await neededFolders(config, spool());
    const isRoot = ({ name }: NeededFolder) => name === "input root" || name === "output root";
    this.#others = needed.filter((one) => !isRoot(one));
    const roots = needed.filter(isRoot);
    this.#roots = await Promise.all(roots.map((one) => this.#lookAt(one, roots)));
    this.#noteUnmarked();
    await this.#mark();
    this.#remember();
    for (const root of this.#roots) tellAbsence(root.side, root.number, this.#stateOf(root));
    this.#known ||= isTold;
  }

  async #lookAt(needed: NeededFolder, all: readonly NeededFolder[]): Promise<LookedRoot> {
    const { folder, name } = needed;
    const side = name === "input root" ? "input" : "output";
    const number = all.filter((one) => one.name === name).indexOf(needed) + 1;
    const before = this.#roots.find((one) => one.side === side && one.number === number);
    const contradicted = before?.contradicted ?? 0;
    const root = { side, number, folder, needed, contradicted, silent: 0 } as const;
    // A further look at one that is silent would hold a further thread
    const found =
      needed.fault?.silent === true
        ? SILENT
        : await patiently(`root ${folder}`, () => lookAtRoot(folder)).then(
            (answer) => answer ?? SILENT,
            faultOfError,
          );
    if ("condition" in found) {
      // Its mark is not missing: nobody knows what it is
      const fault = needed.fault ?? { ...found, condition: "share_unavailable" };
      const silent = found.silent === true ? (before?.silent ?? 0) + 1 : 0;
      return { ...root, ...NOTHING_SEEN, silent, needed: { ...needed, fault } };
    }
    const looked: LookedRoot = { ...root, ...found };
    if (needed.fault !== undefined) return looked;
    const isContradicted = looked.empty && this.#seeing(looked) !== undefined;
    // At the start nobody waits for a second look
    const looks = this.#known ? looked.contradicted + 1 : LOOKS_UNTIL_EMPTY;
    return { ...looked, contradicted: isContradicted ? looks : 0 };
  }

  get #peers(): FleetNode[] {
    const { nodes, self } = this.options.jobs();
    return peersOf(nodes, self);
  }

  /** A node that sees something in the root that has this one's place there. */
  #seeing({ side, number }: Root): FleetNode | undefined {
    const ofSide = (roots: readonly { side: string }[]) =>
      roots.filter((root) => root.side === side).length;
    const own = this.#roots.length === 0 ? undefined : ofSide(this.#roots);
    return this.#peers.find(
      ({ roots }) =>
        (own === undefined || own === ofSide(roots)) &&
        roots.some(
          (root) => root.side === side && root.number === number && root.usable && !root.empty,
        ),
    );
  }

  #noteUnmarked(): void {
    for (const { folder, mark, side } of this.#roots) {
      const seeing = this.#seeingAnother(side);
      if (mark !== null) this.#unmarked.delete(folder);
      else if (seeing !== undefined) this.#unmarked.set(folder, seeing.name);
    }
  }

  /** A node that sees a mark on this side, which none of this node's roots has. */
  #seeingAnother(side: Root["side"]): FleetNode | undefined {
    const own = new Set(this.#roots.map(({ mark }) => mark));
    return this.#peers.find(({ roots }) =>
      roots.some(
        (root) => root.side === side && root.usable && root.mark !== null && !own.has(root.mark),
      ),
    );
  }

  /**
   * Nodes of one database know their roots by marks. A root without one gets it as long as it may
   * not be the unmounted place of one that others see.
   */
  async #mark(): Promise<void> {
    const { config, jobs, log } = this.options;
    if (config.database_url === undefined || jobs().self === null) return;
    for (const root of this.#roots) {
      const { side, folder, needed } = root;
      if (side === "input" || root.mark !== null || needed.fault !== undefined) continue;
      if (this.#ownFault(root) !== undefined || this.#unmarked.has(folder)) continue;
      try {
        await leaveRootMark(folder, root.dev);
        const mark = await rootMark(folder);
        // The folder may be a root of inputs, too
        for (const one of this.#roots) if (one.folder === folder) one.mark = mark;
      } catch (error) {
        log.debug({ fault: faultForLog(error) }, "an output root could not be given its mark");
      }
    }
  }

  #remember(): void {
    const changed = this.#roots.filter((root) => {
      const { folder, mark, mounted, needed } = root;
      if (needed.fault !== undefined || this.#faultOf(root) !== undefined) return false;
      const known = this.#seen[folder];
      if (known?.mark === mark && known.mounted === mounted) return false;
      this.#seen[folder] = { mark, mounted };
      return true;
    });
    if (changed.length === 0) return;
    try {
      replacePrivately(seenFile(this.options.config), JSON.stringify(this.#seen));
    } catch (error) {
      const { log } = this.options;
      log.warn({ fault: faultForLog(error) }, "what the roots are could not be kept");
    }
  }

  /** What this node alone can say of a root. */
  #ownFault(root: LookedRoot): string | undefined {
    const { needed, folder, mark } = root;
    const { fault } = needed;
    const unmounted = this.#unmounted(root);
    if (unmounted !== undefined) return unmounted;
    if (fault !== undefined) return fault.condition === "disk_full" ? undefined : fault.found;
    const seen = this.#seen[folder];
    if (seen !== undefined && seen.mark !== null && seen.mark !== mark)
      return mark === null
        ? `its mark ${ROOT_MARK}, which was seen there before, is missing: its share is not mounted, or another folder is in its place. ${IF_RIGHT}`
        : `its mark ${ROOT_MARK} is another than before: another folder is in its place. ${IF_RIGHT}`;
    return undefined;
  }

  /**
   * A share that went away leaves its mount point, which the server's user may not be allowed to
   * use: to allow that would open an empty folder for results.
   */
  #unmounted({ needed: { fault }, folder, empty, mounted }: LookedRoot): string | undefined {
    if (fault?.condition === "share_unavailable") return undefined;
    return this.#seen[folder]?.mounted === true && !mounted && (empty || fault !== undefined)
      ? `${UNMOUNTED} ${IF_RIGHT}`
      : undefined;
  }

  #faultOf(root: LookedRoot): RootFault | undefined {
    const own = this.#ownFault(root);
    const { side, number, mark, needed, contradicted, folder } = root;
    const wanted = this.#seen[folder]?.mark ?? mark;
    const elsewhere = this.#peers.some(({ roots }) =>
      roots.some(
        (other) =>
          other.side === side &&
          other.usable &&
          (wanted === null ? other.number === number : other.mark === wanted),
      ),
    );
    if (own !== undefined) return { root, found: own, elsewhere };
    if (needed.fault !== undefined) return undefined;
    const another = this.#unmarked.get(folder);
    if (another !== undefined)
      return {
        root,
        elsewhere: true,
        found: `it has no mark ${ROOT_MARK}, and node ${another} sees an ${side} root with one: its share is not mounted here. If this is another folder on purpose, write a name for it into that file`,
      };
    const seeing = contradicted < LOOKS_UNTIL_EMPTY ? undefined : this.#seeing(root);
    if (seeing === undefined) return undefined;
    const found = `it is empty, and node ${seeing.name} sees something there: its share is not mounted here`;
    return { root, found, elsewhere: true };
  }

  /**
   * Whether something else lies there, or nothing answers for long. Where it only may not be used,
   * whoever tries is told.
   */
  #stateOf(root: LookedRoot): RootState {
    const { fault } = root.needed;
    if (fault?.silent === true) return root.silent >= LOOKS_UNTIL_ABSENT ? "silent" : "here";
    if (this.#unmounted(root) !== undefined) return "other";
    if (fault !== undefined && fault.condition !== "share_unavailable") return "here";
    return this.#faultOf(root) === undefined ? "here" : "other";
  }

  /** The roots as the other nodes are told of them. */
  seen(): SeenRoot[] {
    return this.#roots.map((root) => {
      const { side, number, mark, empty } = root;
      return { side, number, mark, empty, usable: this.#faultOf(root) === undefined };
    });
  }

  /** What is wrong with the folders now. */
  conditions(): Condition[] {
    return [
      ...this.#others.flatMap(folderCondition),
      ...this.#roots.flatMap((root) => {
        const { needed } = root;
        if (needed.fault !== undefined && this.#unmounted(root) === undefined)
          return folderCondition(needed);
        const fault = this.#faultOf(root);
        if (fault === undefined) return [];
        const { found } = fault;
        return folderCondition({ ...needed, fault: { condition: "share_unavailable", found } });
      }),
    ];
  }

  /**
   * Why requests would fail here: a root is away that another node has, or all roots of a side are.
   * One that no node has takes out none that has others: nobody would be left for those.
   */
  fault(): RadserveError | undefined {
    const faults = this.#roots.flatMap((root) => this.#faultOf(root) ?? []);
    const isAll = (side: Root["side"]) =>
      this.#roots.filter((root) => root.side === side).length ===
      faults.filter(({ root }) => root.side === side).length;
    const found = faults.find(({ root, elsewhere }) => elsewhere || isAll(root.side));
    if (found === undefined) return undefined;
    return errors.share_unavailable(
      `Expected every root to be there; the ${found.root.needed.where} is not: ${found.found}.`,
      { where: found.root.needed.where },
    );
  }
}

/**
 * Why a root is no longer the share that this node saw there; undefined where nothing says so. For
 * commands, which look once.
 */
export async function unmountedRoot(config: Config, folder: string): Promise<string | undefined> {
  if (readSeen(config)[folder]?.mounted !== true) return undefined;
  const found = await patiently(`root ${folder}`, () => lookAtRoot(folder)).catch(() => undefined);
  return found?.mounted === false && found.empty ? UNMOUNTED : undefined;
}

/** Whoever may not look into a folder can still see whether something is mounted there. */
function noneWhereForbidden(error: unknown): null {
  if (FORBIDDEN.has(errno(error))) return null;
  throw error;
}

async function lookAtRoot(
  folder: string,
): Promise<Pick<LookedRoot, "mark" | "empty" | "mounted" | "dev">> {
  // One after the other: where it does not answer, each would hold a thread
  const own = await stat(folder);
  const above = await stat(path.dirname(folder));
  const mark = await rootMark(folder).catch(noneWhereForbidden);
  const empty = !(await holdsSomething(folder));
  return { mark, empty, mounted: own.dev !== above.dev, dev: own.dev };
}
