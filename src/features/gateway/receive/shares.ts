/**
 * How much of the spool each peer may fill: a part of what it holds and what is free together. One
 * peer alone may fill that part of the disk, and however many do, some of it stays free for the
 * others. Files are counted, too, because a disk may run out of them first.
 */
import { lstat, stat } from "node:fs/promises";
import path from "node:path";
import { durations } from "../../../base/durations.js";
import { errors } from "../../../base/errors.js";
import { monotonic } from "../../../base/monotonic.js";
import { count, counted } from "../../../base/table.js";
import { freeBytes, statfsOf } from "../../../files/disk.js";
import { explained, requireRoom } from "../../../files/durable-files.js";
import { isUnmountedNow } from "../../../files/roots.js";
import { namesIn } from "./spool-folders.js";
import type { ReceptionTrouble } from "./trouble.js";

/** Room is looked at again after so many bytes of an object: others come meanwhile. */
const BETWEEN_LOOKS = 64 * 1024 * 1024;
/** What a file of one byte takes on the usual file systems. */
const BLOCK = 4096;
/** Files that are looked at together. */
const AT_ONCE = 16;

const onDisk = (bytes: number): number => Math.ceil(bytes / BLOCK) * BLOCK;

interface Held {
  bytes: number;
  files: number;
}

/** One folder of a series as it was counted; another time of change says that it is another. */
interface Counted extends Held {
  changed: bigint;
  objects: number;
  /** When (ms since 1970) the last of them was written. */
  lastAt: number;
}

/** Of one peer. */
interface PeerShare {
  /** Of objects that lie there, by the last count and what has come since. */
  held: Held;
  /** Of objects that are coming. */
  coming: Held;
  /** The bytes of both at which the room is looked at again. */
  looksAt: number;
  /** By the paths of the folders of its series. */
  folders: Map<string, Counted>;
  /** When (ms of `monotonic`) it was counted; undefined before. */
  countedAt: number | undefined;
  counting: Promise<void> | undefined;
  /** Objects that were refused since it had room, and the room that the last of them needed. */
  refused: number;
  needed: number;
}

/** What lies there, and what comes. */
const all = ({ held, coming }: PeerShare): Held => ({
  bytes: held.bytes + coming.bytes,
  files: held.files + coming.files,
});

/** What lies there of a peer. */
export interface PeerHolds {
  studies: number;
  series: number;
  objects: number;
  bytes: number;
  /** When (ms since 1970) its last object was written. */
  lastAt: number | undefined;
}

/** An object on its way into the share of its peer. */
export interface Coming {
  /**
   * Counts bytes before they are written.
   * @returns what has to be waited for where the room is looked at; it is rejected with
   * RadserveError spool_share_full, disk_full
   */
  add: (bytes: number) => Promise<void> | undefined;
  /** @param fresh it lies there now, and did not before */
  end: (fresh: boolean) => void;
}

export interface SharesOptions {
  /** The spool. */
  folder: string;
  /** Above 0; 1 is the whole disk. */
  part: number;
  minimumFreeBytes: number;
}

export class Shares {
  readonly #peers = new Map<string, PeerShare>();

  constructor(private readonly options: SharesOptions) {}

  /**
   * An object of a peer comes.
   * @throws RadserveError spool_share_full; disk_full where the disk has no room for anybody
   */
  async begin(peer: string): Promise<Coming> {
    const share = this.#shareOf(peer);
    // What an earlier process kept is counted meanwhile: a large spool takes its time
    if (share.countedAt === undefined) void this.#count(peer, share).catch(() => undefined);
    share.coming.files += 1;
    let bytes = 0;
    const end = (fresh: boolean) => {
      share.coming.files -= 1;
      share.coming.bytes -= bytes;
      if (!fresh) return;
      share.held.files += 1;
      share.held.bytes += onDisk(bytes);
    };
    const look = async () => {
      const left = await this.#room(peer, share, bytes);
      share.looksAt = all(share).bytes + Math.min(BETWEEN_LOOKS, left);
    };
    const add = (more: number) => {
      bytes += more;
      share.coming.bytes += more;
      return all(share).bytes <= share.looksAt ? undefined : look();
    };
    try {
      await look();
    } catch (error) {
      end(false);
      throw error;
    }
    return { add, end };
  }

  /** @param came bytes of the object so far @returns bytes that may still come */
  async #room(peer: string, share: PeerShare, came: number): Promise<number> {
    let left = await this.#leftOf(share);
    if (left <= 0 && this.#mayCount(share)) {
      // Somebody may have removed what it held
      await this.#count(peer, share);
      left = await this.#leftOf(share);
    }
    if (left > 0) return left;
    share.refused += 1;
    share.needed = came;
    const { bytes, files } = all(share);
    throw errors.spool_share_full(
      `${peer} has used up its share of the spool: ${count(bytes)} bytes in ${counted(files, "file")}. Others still have room. Remove what it sent and nobody needs, or wait until its time is over (keep); peer_share in the file of RADSERVE_GATEWAY is the share.`,
      { peer, held_bytes: bytes, held_files: files },
    );
  }

  /**
   * Bytes that a peer may still bring; none where it may bring no more files. @throws RadserveError
   * disk_full where nobody may
   */
  async #leftOf(share: PeerShare): Promise<number> {
    const { folder, part, minimumFreeBytes } = this.options;
    const room = await explained(() => statfsOf(folder), "input");
    const free = freeBytes(room) - minimumFreeBytes;
    if (free < 0) await requireRoom(folder, minimumFreeBytes, "input");
    if (part >= 1) return Infinity;
    const { bytes, files } = all(share);
    // Some file systems make files as long as there are bytes, and tell no number
    const isOutOfFiles = room.files > 0 && files > part * (files + room.ffree);
    return isOutOfFiles ? 0 : part * (bytes + free) - bytes;
  }

  #mayCount({ countedAt }: PeerShare): boolean {
    return countedAt === undefined || monotonic() - countedAt >= durations.shareCount;
  }

  #shareOf(peer: string): PeerShare {
    const known = this.#peers.get(peer);
    if (known !== undefined) return known;
    const share: PeerShare = {
      held: { bytes: 0, files: 0 },
      coming: { bytes: 0, files: 0 },
      looksAt: 0,
      folders: new Map(),
      countedAt: undefined,
      counting: undefined,
      refused: 0,
      needed: 0,
    };
    this.#peers.set(peer, share);
    return share;
  }

  /**
   * Counts what all peers hold, as other nodes and people have changed it, too. @throws errors of
   * the system
   */
  async look(): Promise<void> {
    for (const [peer, share] of await this.#allPeers()) await this.#count(peer, share);
  }

  /** Those that may go on: their conditions end. */
  async forgetRefused(): Promise<void> {
    for (const [peer, share] of this.#peers) {
      if (share.refused === 0) continue;
      try {
        if (this.#mayCount(share)) await this.#count(peer, share);
        if ((await this.#leftOf(share)) > share.needed) share.refused = 0;
      } catch {
        // The share is away: it is told elsewhere
      }
    }
  }

  troubles(): ReceptionTrouble[] {
    return [...this.#peers].flatMap(([peer, share]) => {
      if (share.refused === 0) return [];
      const { bytes, files } = all(share);
      const message = `${peer} has used up its share of the spool: ${count(bytes)} bytes in ${counted(files, "file")}. Refused: ${counted(share.refused, "object")}.`;
      return [{ condition: "received_share_full", where: `peer ${peer}`, message }];
    });
  }

  /** What each peer holds, which is counted again where that is some time ago. */
  async holds(): Promise<Map<string, PeerHolds>> {
    const found = new Map<string, PeerHolds>();
    for (const [peer, share] of await this.#allPeers()) {
      if (this.#mayCount(share)) await this.#count(peer, share);
      // What was refused leaves its folder empty
      const folders = [...share.folders].filter(([, { objects }]) => objects > 0);
      const sum = (of: (one: Counted) => number) =>
        folders.reduce((total, [, one]) => total + of(one), 0);
      const lastAt = folders.reduce((last, [, one]) => Math.max(last, one.lastAt), 0);
      found.set(peer, {
        studies: new Set(folders.map(([folder]) => path.dirname(folder))).size,
        series: folders.length,
        objects: sum(({ objects }) => objects),
        bytes: sum(({ bytes }) => bytes),
        lastAt: folders.length === 0 ? undefined : lastAt,
      });
    }
    return found;
  }

  /** Those, too, whose objects other nodes or earlier processes have kept. */
  async #allPeers(): Promise<ReadonlyMap<string, PeerShare>> {
    for (const peer of await namesIn(path.join(this.options.folder, "series"))) this.#shareOf(peer);
    return this.#peers;
  }

  /** One count at a time. */
  #count(peer: string, share: PeerShare): Promise<void> {
    share.counting ??= this.#counted(peer, share).finally(() => (share.counting = undefined));
    return share.counting;
  }

  async #counted(peer: string, share: PeerShare): Promise<void> {
    // A mount point without its share holds nothing, and says nothing of what the share holds
    if (await isUnmountedNow(this.options.folder)) return;
    const before = share.held;
    share.held = { ...before };
    const since = share.held;
    const folders = new Map<string, Counted>();
    const found: Held = { bytes: 0, files: 0 };
    const top = path.join(this.options.folder, "series", peer);
    for (const study of await namesIn(top))
      for (const series of await namesIn(path.join(top, study))) {
        const folder = path.join(top, study, series);
        const one = await countedIn(folder, share.folders.get(folder));
        if (one === undefined) continue;
        folders.set(folder, one);
        found.bytes += one.bytes;
        found.files += one.files;
      }
    // What came while it was counted may be counted twice, until the next count
    share.held = {
      bytes: found.bytes + since.bytes - before.bytes,
      files: found.files + since.files - before.files,
    };
    share.folders = folders;
    share.countedAt = monotonic();
  }
}

/** Undefined of a folder that is gone. */
async function countedIn(
  folder: string,
  before: Counted | undefined,
): Promise<Counted | undefined> {
  const changed = await stat(folder, { bigint: true }).then(
    ({ mtimeNs }) => mtimeNs,
    () => undefined,
  );
  if (changed === undefined) return undefined;
  if (before?.changed === changed) return before;
  const names = await namesIn(folder);
  const found: Counted = { changed, bytes: 0, files: 0, objects: 0, lastAt: 0 };
  for (let at = 0; at < names.length; at += AT_ONCE) {
    const some = names.slice(at, at + AT_ONCE).map(async (name) => {
      const one = await lstat(path.join(folder, name)).catch(() => undefined);
      return one === undefined ? [] : [{ name, size: one.size, mtimeMs: one.mtimeMs }];
    });
    for (const { name, size, mtimeMs } of (await Promise.all(some)).flat()) {
      found.bytes += onDisk(size);
      found.files += 1;
      if (!name.endsWith(".dcm")) continue;
      found.objects += 1;
      found.lastAt = Math.max(found.lastAt, mtimeMs);
    }
  }
  return found;
}
