/**
 * Nodes with a network each: namespaces joined by a bridge, whose cables can be pulled. Needs root
 * and iproute2.
 */
import { execFileSync, spawnSync } from "node:child_process";

const ip = (...words: string[]) => execFileSync("ip", words, { stdio: ["ignore", "pipe", "pipe"] });
const quietly = (...words: string[]) => void spawnSync("ip", words, { stdio: "ignore" });

/** Why there can be no namespaces here; false where there can. */
export function noNamespaces(): string | false {
  if (process.getuid?.() !== 0) return "network namespaces need root";
  const name = `rs-probe-${process.pid}`;
  const { status } = spawnSync("ip", ["netns", "add", name], { stdio: "ignore" });
  if (status !== 0) return "network namespaces cannot be made here (ip netns add)";
  quietly("netns", "del", name);
  return false;
}

export class Network {
  readonly #bridge = `rsb${process.pid}`.slice(0, 15);
  readonly #prefix = `10.199.${process.pid % 250}`;
  readonly #spaces: { name: string; cable: string }[] = [];

  /** Address of this machine on the bridge. */
  readonly address = `${this.#prefix}.1`;

  constructor() {
    ip("link", "add", this.#bridge, "type", "bridge");
    ip("addr", "add", `${this.address}/24`, "dev", this.#bridge);
    ip("link", "set", this.#bridge, "up");
  }

  /** A namespace with one cable to the bridge. */
  add(): { name: string; address: string } {
    const number = this.#spaces.length + 2;
    const name = `rs-${process.pid}-${number}`;
    const [cable, inside] = [`rs${process.pid}v${number}`, `rs${process.pid}w${number}`];
    const address = `${this.#prefix}.${number}`;
    this.#spaces.push({ name, cable });
    ip("netns", "add", name);
    ip("link", "add", cable, "type", "veth", "peer", "name", inside);
    ip("link", "set", inside, "netns", name);
    ip("link", "set", cable, "master", this.#bridge, "up");
    ip("-n", name, "addr", "add", `${address}/24`, "dev", inside);
    ip("-n", name, "link", "set", inside, "up");
    ip("-n", name, "link", "set", "lo", "up");
    return { name, address };
  }

  /** Pulls a namespace's cable, or plugs it in again: packets vanish, nobody is told. */
  connect(name: string, connected: boolean): void {
    const space = this.#spaces.find((one) => one.name === name);
    if (space === undefined) throw new Error(`No namespace ${name}`);
    ip("link", "set", space.cable, connected ? "up" : "down");
  }

  remove(): void {
    for (const { name } of this.#spaces) quietly("netns", "del", name);
    quietly("link", "del", this.#bridge);
  }
}
