/**
 * A node: `radserve serve` with a state directory of its own, started again whenever it ends, as
 * systemd would.
 */
import { spawn, type ChildProcess } from "node:child_process";
import { rmSync } from "node:fs";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { databaseFolders } from "../../../src/features/local-postgres/folders.js";
import { postmasterOf } from "../../../src/features/local-postgres/process.js";
import { Client } from "../../../src/commands/client.js";
import { removePlace } from "../../support/private-postgres.js";
import {
  freePort,
  issueToken,
  makePlace,
  radserve,
  root,
  type Place,
} from "../../support/server.js";
import { commandOf, descendants, slay } from "./processes.js";

const main = path.join(root, "dist/src/main.js");
const RESTART_MS = 300;
/** On a machine that does much else, a start or an end takes minutes. */
const LONGEST_MS = 240_000;

export interface NodeOptions {
  role?: "api" | "worker" | "both";
  settings?: Record<string, string>;
  /** The first file of the program, where that is another release. */
  main?: string;
  /** What has to be there before it starts; gives settings that name it. */
  prepare?: (place: Place) => Record<string, string>;
  /**
   * A network namespace, and the node's address in it. Process numbers and host name are the node's
   * own there.
   */
  space?: { name: string; address: string };
}

export class ServingNode {
  #process: ChildProcess | undefined;
  #stopping = false;
  #main: string;

  private constructor(
    readonly place: Place,
    readonly url: string,
    readonly client: Client,
    private readonly options: NodeOptions,
  ) {
    this.#main = options.main ?? main;
  }

  /** Starts it and waits until it is ready. */
  static async start(options: NodeOptions = {}): Promise<ServingNode> {
    const port = await freePort();
    const host = options.space?.address ?? "127.0.0.1";
    const place = makePlace({
      RADSERVE_HOST: host,
      RADSERVE_PORT: String(port),
      RADSERVE_ROLE: options.role ?? "both",
      RADSERVE_MODELS_DIR: path.join(root, "models"),
      RADSERVE_LOG_LEVEL: "error",
      RADSERVE_THREADS: "2",
      ...options.settings,
    });
    // A picture that other tests want; here every image of a folder counts.
    rmSync(path.join(place.input, "image.png"));
    Object.assign(place.environment, options.prepare?.(place));
    await radserve(place, "init");
    const url = `http://${host}:${port}`;
    const node = new ServingNode(place, url, new Client(url, await issueToken(place)), options);
    node.#run();
    try {
      await node.untilReady();
    } catch (error) {
      // It would be started again and again
      await node.stop();
      throw error;
    }
    return node;
  }

  get input(): string {
    return this.place.input;
  }

  get output(): string {
    return this.place.output;
  }

  get #state(): string {
    return this.place.environment["RADSERVE_STATE_DIR"]!;
  }

  async untilReady(): Promise<void> {
    const end = Date.now() + LONGEST_MS;
    while (Date.now() < end) {
      await delay(50);
      const ready = await fetch(`${this.url}/health/ready`).catch(() => undefined);
      if (ready?.ok === true) return;
      if (this.#process?.exitCode === 2)
        throw new Error("radserve serve refused its settings; see above");
    }
    throw new Error(`The server was not ready within ${LONGEST_MS / 1000} s.`);
  }

  /** The process that listens. */
  supervisor(): number | undefined {
    return this.#find("serve");
  }

  /** The process that works. */
  serving(): number | undefined {
    return this.#find("serving.js");
  }

  /** The first process of its private PostgreSQL. */
  postmaster(): number | undefined {
    return postmasterOf(databaseFolders(this.#state).data);
  }

  /** Stops it in order, and starts this release in its place. Resolves once that is ready. */
  async upgrade(): Promise<void> {
    this.#main = main;
    const ended = new Promise((resolve) => this.#process?.once("exit", resolve));
    const supervisor = this.supervisor();
    if (supervisor !== undefined) process.kill(supervisor, "SIGTERM");
    await ended;
    await this.untilReady();
  }

  /** Ends it in order, with its exit status. */
  async stop(): Promise<number | null> {
    this.#stopping = true;
    const child = this.#process;
    if (child === undefined) return null;
    const ended = new Promise<number | null>((resolve) => child.once("exit", resolve));
    if (child.exitCode !== null || child.signalCode !== null) return child.exitCode;
    const supervisor = this.supervisor();
    if (supervisor !== undefined) process.kill(supervisor, "SIGTERM");
    const status = await Promise.race([ended, delay(LONGEST_MS, undefined, { ref: false })]);
    if (status !== undefined) return status;
    for (const pid of [...descendants(child.pid!), child.pid!]) slay(pid);
    throw new Error(`The server did not end within ${LONGEST_MS / 1000} s of SIGTERM.`);
  }

  /** Starts it again after a stop. */
  async startAgain(): Promise<void> {
    this.#stopping = false;
    this.#run();
    await this.untilReady();
  }

  async remove(): Promise<void> {
    await removePlace(databaseFolders(this.#state));
    this.place.remove();
  }

  #find(command: string): number | undefined {
    const own = this.#process?.pid;
    if (own === undefined) return undefined;
    return [own, ...descendants(own)].find((pid) => {
      const words = commandOf(pid);
      return words[0] === process.execPath && path.basename(words.at(-1)!) === command;
    });
  }

  #run(): void {
    const command = [process.execPath, this.#main, "serve"];
    const { space } = this.options;
    const apart = ["unshare", "--pid", "--uts", "--fork", "--kill-child", "--mount-proc"];
    const named = ["sh", "-c", 'hostname "$0" && exec "$@"', space?.name ?? ""];
    const words =
      space === undefined
        ? command
        : ["ip", "netns", "exec", space.name, ...apart, ...named, ...command];
    const child = spawn(words[0]!, words.slice(1), {
      env: this.place.environment,
      cwd: this.place.directory,
      stdio: [
        "ignore",
        process.env["RADSERVE_CRASH_LOG"] === undefined ? "ignore" : "inherit",
        "ignore",
      ],
    });
    this.#process = child;
    child.once("exit", () => {
      setTimeout(() => {
        // Somebody may have started it again already
        if (!this.#stopping && this.#process === child) this.#run();
      }, RESTART_MS).unref();
    });
  }
}
