/**
 * A reader who types the commands of the pages: one shell in a throw-away copy of the clone, made
 * of links, with a home and a /srv of its own.
 */
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { createServer, type AddressInfo } from "node:net";
import os from "node:os";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { root } from "./server.js";

const LONGEST_COMMAND_MS = 180_000;
const LOOK_MS = 20;
const ROOTS_DATABASES = "/var/lib/radserve-postgres";

async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, "close");
  return port;
}

export interface Typed {
  status: number;
  /** Standard output and error, with the names that the pages use. */
  text: string;
}

export class Reader {
  readonly #directory = realpathSync(mkdtempSync(path.join(os.tmpdir(), "radserve-pages-")));
  readonly clone = path.join(this.#directory, "clone");
  readonly srv = path.join(this.#directory, "srv");
  /** Ids in the pages, and what they are here. */
  readonly #ids = new Map<string, string>();
  readonly #home = path.join(this.#directory, "home");
  #shell: ChildProcess | undefined;
  #port = 0;
  #typed = 0;

  async start(): Promise<void> {
    for (const folder of [this.clone, this.srv, this.#home]) mkdirSync(folder);
    for (const name of readdirSync(root))
      if (name !== "demo-output") symlinkSync(path.join(root, name), path.join(this.clone, name));
    this.#port = await freePort();
    this.#shell = spawn("bash", ["--noprofile", "--norc"], {
      cwd: this.clone,
      env: {
        PATH: process.env["PATH"],
        HOME: this.#home,
        RADSERVE_PORT: String(this.#port),
        RADSERVE_HOST: "127.0.0.1",
        RADSERVE_LOG_LEVEL: "warn",
      },
      stdio: ["pipe", "ignore", "inherit"],
    });
  }

  /** A command of a page, with our paths, port and ids in the place of the page's. */
  #ours(text: string): string {
    const named = text
      .replaceAll("/srv/", `${this.srv}/`)
      .replaceAll("localhost:8500", `localhost:${this.#port}`);
    return [...this.#ids].reduce((t, [shown, found]) => t.replaceAll(shown, found), named);
  }

  #theirs(text: string): string {
    return text
      .replaceAll(`${this.srv}/`, "/srv/")
      .replaceAll(`127.0.0.1:${this.#port}`, "127.0.0.1:8500")
      .replaceAll(this.clone, "/clone");
  }

  /** Types one command and waits for its end. */
  async type(command: string): Promise<Typed> {
    const file = path.join(this.#directory, `command-${(this.#typed += 1)}`);
    writeFileSync(file, `${this.#ours(command)}\n`);
    this.#shell?.stdin?.write(
      `. ${file} > ${file}.out 2>&1 < /dev/null; echo $? > ${file}.new; mv ${file}.new ${file}.status\n`,
    );
    const end = Date.now() + LONGEST_COMMAND_MS;
    while (!existsSync(`${file}.status`)) {
      if (Date.now() > end) throw new Error(`Not over after ${LONGEST_COMMAND_MS} ms: ${command}`);
      await delay(LOOK_MS);
    }
    return {
      status: Number(readFileSync(`${file}.status`, "utf8")),
      text: this.#theirs(readFileSync(`${file}.out`, "utf8")),
    };
  }

  /** Starts a server as the page says, and waits until it is ready. */
  async serve(command: string): Promise<void> {
    await this.type(`${command.replace(/#.*$/, "")} > ../server.log 2>&1 & SERVER=$!`);
    const ready = `http://127.0.0.1:${this.#port}/health/ready`;
    const end = Date.now() + LONGEST_COMMAND_MS;
    while (Date.now() < end) {
      if ((await fetch(ready).catch(() => undefined))?.ok === true) return;
      await delay(LOOK_MS);
    }
    throw new Error(
      `The server was not ready: ${readFileSync(path.join(this.#directory, "server.log"), "utf8")}`,
    );
  }

  /**
   * As root, the private database lies in a folder that names our state directory, beside those of
   * others.
   */
  #removeRootsDatabase(): void {
    if (!existsSync(ROOTS_DATABASES)) return;
    for (const name of readdirSync(ROOTS_DATABASES)) {
      const folder = path.join(ROOTS_DATABASES, name);
      const of = path.join(folder, "state_directory");
      if (existsSync(of) && readFileSync(of, "utf8").startsWith(`${this.#home}/`))
        rmSync(folder, { recursive: true });
    }
  }

  /** From now on the page's id means this one. */
  learn(shown: string, found: string): void {
    this.#ids.set(shown, found);
  }

  async stop(): Promise<void> {
    await this.type('[ -z "$SERVER" ] || { kill $SERVER; wait $SERVER; }; true');
    this.#shell?.stdin?.end();
    rmSync(this.#directory, { recursive: true, force: true });
    this.#removeRootsDatabase();
  }
}
