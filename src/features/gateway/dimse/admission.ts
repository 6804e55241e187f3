/**
 * Who may hold a connection while it has asked for no association: nobody from outside the networks
 * that the settings name, and of the others no address or peer all the room that there is.
 */
import type { Socket } from "node:net";
import { durations } from "../../../base/durations.js";
import { groupsBy } from "../../../base/groups.js";
import type { Logger } from "../../../base/log.js";
import { endsOf, Networks, plainAddress } from "../../../base/networks.js";
import { limitedAs } from "../../../server/client-address.js";

/** Where a peer calls from; from anywhere if undefined. */
export interface Origin {
  name: string;
  networks: readonly string[] | undefined;
}

/** With the networks as they are asked for an address; `from` undefined: it may call from all. */
export const withNetworks = <T extends Pick<Origin, "networks">>(one: T) => ({
  ...one,
  from: one.networks === undefined ? undefined : new Networks(one.networks),
});

/** A connection that has asked for nothing yet. */
interface Silent {
  connection: Socket;
  /** As limits count it. */
  address: string;
  /** Names of the peers that it may be; empty for whoever calls from elsewhere. */
  peers: string;
}

export class Admission {
  #origins: readonly { name: string; from: Networks | undefined }[];
  /** By their ends; the one that came first is the first. */
  readonly #silent = new Map<string, Silent>();

  /** @param most connections at a time; of one address, half of them */
  constructor(
    origins: readonly Origin[],
    private readonly most: number,
  ) {
    this.#origins = origins.map(withNetworks);
  }

  /** From where peers may call from now on. */
  reload(origins: readonly Origin[]): void {
    this.#origins = origins.map(withNetworks);
  }

  get silent(): readonly Socket[] {
    return [...this.#silent.values()].map(({ connection }) => connection);
  }

  /**
   * To be called before a byte is read, and before TLS is done.
   * @returns false where it comes from outside every network, and is closed
   */
  admit(connection: Socket): boolean {
    const address = plainAddress(connection.remoteAddress) ?? "";
    const known = this.#origins.filter(({ from }) => from?.has(address) === true);
    if (known.length === 0 && this.#origins.every(({ from }) => from !== undefined)) {
      connection.on("error", () => undefined);
      connection.destroy();
      return false;
    }
    const ends = endsOf(connection);
    const peers = known.map(({ name }) => name).join(" ");
    const limited = limitedAs(address);
    this.#silent.set(ends, { connection, address: limited, peers });
    connection.once("close", () => this.#silent.delete(ends));
    this.#makeRoom(limited);
    return true;
  }

  /** It has asked for an association. */
  heard(connection: Socket): void {
    this.#silent.delete(endsOf(connection));
  }

  /** Strangers give way first, and then whoever has most: of that, the one that came first. */
  #makeRoom(address: string): void {
    const all = [...this.#silent.values()];
    const ofAddress = all.filter((one) => one.address === address);
    if (ofAddress.length > Math.max(1, this.most / 2)) {
      this.#end(ofAddress[0]);
      return;
    }
    if (all.length <= this.most) return;
    const strangers = all.filter(({ peers }) => peers === "");
    const some = strangers.length > 0 ? strangers : largestBy(all, ({ peers }) => peers);
    this.#end(largestBy(some, (one) => one.address)[0]);
  }

  #end(one: Silent | undefined): void {
    if (one === undefined) return;
    this.#silent.delete(endsOf(one.connection));
    one.connection.destroy();
  }
}

/** The largest of the groups that have the same key. */
function largestBy<T>(all: readonly T[], keyOf: (one: T) => string): T[] {
  return [...groupsBy(all, keyOf).values()].reduce(
    (largest, group) => (group.length > largest.length ? group : largest),
    [],
  );
}

/**
 * Log lines for connections of unknown callers: the first at once, the others as sums, so that no
 * stranger can flood the log.
 */
export class StrangersLog {
  readonly #untold = new Map<string, number>();
  #timer: NodeJS.Timeout | undefined;

  constructor(private readonly log: Logger) {}

  note(why: string, more: object = {}): void {
    if (this.#timer !== undefined) {
      this.#untold.set(why, (this.#untold.get(why) ?? 0) + 1);
      return;
    }
    this.log.warn({ refused: { [why]: 1 }, ...more }, "connections without an association ended");
    this.#tellLater();
  }

  #tellLater(): void {
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      if (this.#untold.size === 0) return;
      const refused = Object.fromEntries(this.#untold);
      this.log.warn({ refused }, "connections without an association ended");
      this.#untold.clear();
      this.#tellLater();
    }, durations.refusedConnections).unref();
  }
}
