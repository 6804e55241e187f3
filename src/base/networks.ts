/** Addresses of clients, and the networks that settings name. */
import { BlockList, isIP, type Socket } from "node:net";

/** IPv4 that came over an IPv6 socket as IPv4, and no zone; undefined where it is no address. */
export function plainAddress(address: string | undefined): string | undefined {
  const plain = (address ?? "").replace(/^::ffff:(?=\d+\.)/i, "").split("%", 1)[0] ?? "";
  return isIP(plain) === 0 ? undefined : plain;
}

/** By what a connection is known, and TLS on it: no two open connections have the same ends. */
export function endsOf(socket: Socket): string {
  return [socket.remoteAddress, socket.remotePort, socket.localAddress, socket.localPort].join(" ");
}

/** From where only this machine calls. */
export const LOOPBACK: readonly string[] = ["127.0.0.0/8", "::1"];

/** Addresses and networks, such as 10.0.0.5 and 10.0.0.0/8. */
export class Networks {
  readonly #list = new BlockList();

  constructor(networks: readonly string[]) {
    for (const network of networks) {
      const [address = "", bits] = network.split("/");
      const family = isIP(address) === 6 ? "ipv6" : "ipv4";
      if (bits === undefined) this.#list.addAddress(address, family);
      else this.#list.addSubnet(address, Number(bits), family);
    }
  }

  /** @param address as `plainAddress` gives it */
  has(address: string): boolean {
    return this.#list.check(address, isIP(address) === 6 ? "ipv6" : "ipv4");
  }
}
