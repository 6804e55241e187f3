/**
 * Whose request it is: the address of the client, through trusted proxies too. The log, the slowing
 * of failed tokens and the limits of each address all take it from here.
 */
import type { IncomingHttpHeaders } from "node:http";
import { isIP } from "node:net";
import { Networks, plainAddress } from "../base/networks.js";

/**
 * The name under which a limit counts an address: for IPv6 its network /64, because one client has
 * all addresses of that.
 */
export function limitedAs(address: string): string {
  if (isIP(address) !== 6) return address;
  const [head = "", tail] = address.split("::");
  const groups = (text: string) => text.split(":").filter((group) => group !== "");
  const before = groups(head);
  // In IPv4's notation the last group stands for two, and those are never among the first four.
  const after = groups(tail ?? "").length + (address.includes(".") ? 1 : 0);
  const zeros = tail === undefined ? 0 : Math.max(0, 8 - before.length - after);
  const all = [...before, ...Array<string>(zeros).fill("0"), ...groups(tail ?? "")];
  const network = all.slice(0, 4).map((group) => parseInt(group, 16).toString(16));
  return `${network.join(":")}::/64`;
}

/**
 * One hop of a list: an address, in brackets or not, with a port or not; undefined for anything
 * else.
 */
function hopOf(text: string): string | undefined {
  const [, bracketed, plain] = /^(?:\[([^\]]*)\](?::[\w.-]+)?|([^[\]]+))$/.exec(text.trim()) ?? [];
  return plainAddress(bracketed ?? plain) ?? plainAddress(plain?.replace(/:[\w.-]+$/, ""));
}

/** name=token or name="quoted" (RFC 7239, 4), and what follows: a semicolon, a comma or the end. */
const PAIR = /\s*([\w!#$%&'*+.^`|~-]+)=(?:([\w!#$%&'*+.^`|~-]+)|"((?:[^"\\]|\\.)*)")\s*(;|,|$)/y;

/**
 * The hops of Forwarded, the nearest last: undefined for one without an address, and for all where
 * it is malformed.
 */
function hopsOfForwarded(header: string): (string | undefined)[] {
  const hops: (string | undefined)[] = [];
  let hop: string | undefined;
  for (let at = 0; at < header.length; at = PAIR.lastIndex) {
    PAIR.lastIndex = at;
    const [whole, name = "", token, quoted, end] = PAIR.exec(header) ?? [];
    if (whole === undefined) return [undefined];
    if (name.toLowerCase() === "for") hop = hopOf(token ?? (quoted ?? "").replace(/\\(.)/g, "$1"));
    if (end === ";") continue;
    hops.push(hop);
    hop = undefined;
  }
  return hops;
}

/** Tells clients from the proxies before them. */
export class ClientAddresses {
  readonly #trusted: Networks;

  /** @param trusted addresses and networks of proxies whose word is taken */
  constructor(trusted: readonly string[]) {
    this.#trusted = new Networks(trusted);
  }

  /** @param address as `plainAddress` gives it */
  isProxy(address: string): boolean {
    return this.#trusted.has(address);
  }

  /**
   * The client of a request; undefined where the connection is gone.
   * @param remoteAddress the other end of the connection
   */
  of(remoteAddress: string | undefined, headers: IncomingHttpHeaders): string | undefined {
    const peer = plainAddress(remoteAddress);
    if (peer === undefined || !this.isProxy(peer)) return peer;
    const { "x-forwarded-for": older, forwarded } = headers;
    const found = [
      ...(typeof older === "string" ? [older.split(",").map(hopOf)] : []),
      ...(forwarded === undefined ? [] : [hopsOfForwarded(forwarded)]),
    ].map((hops) => this.#beyond(peer, hops));
    // A proxy writes one of the two headers and may hand on the other as a client sent it.
    return new Set(found).size === 1 ? found[0] : peer;
  }

  /**
   * The nearest hop that is no trusted proxy; or the last one known, where the next is none that
   * can be read.
   */
  #beyond(peer: string, hops: readonly (string | undefined)[]): string {
    let last = peer;
    for (const hop of [...hops].reverse()) {
      if (hop === undefined) return last;
      last = hop;
      if (!this.isProxy(hop)) return last;
    }
    return last;
  }
}
