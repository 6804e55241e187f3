/**
 * A reader who types the commands of the pages: one shell in a throw-away copy of the clone, made
 * of links, with a home and a /srv of its own.
 */
import { spawn, type ChildProcess } from "node:child_process";
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
import os from "node:os";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { withDurations } from "./durations.js";
import { freePort, root } from "./server.js";

const LONGEST_COMMAND_MS = 180_000;
const LOOK_MS = 20;
const ROOTS_DATABASES = "/var/lib/radserve-postgres";

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
  readonly #etc = path.join(this.#directory, "etc");
  #shell: ChildProcess | undefined;
  #port = 0;
  #typed = 0;

  async start(): Promise<void> {
    for (const folder of [this.clone, this.srv, this.#home, this.#etc]) mkdirSync(folder);
    for (const name of readdirSync(root))
      if (name !== "demo-output") symlinkSync(path.join(root, name), path.join(this.clone, name));
    this.#port = await freePort();
    this.#shell = spawn("bash", ["--noprofile", "--norc"], {
      cwd: this.clone,
      env: {
        PATH: process.env["PATH"],
        HOME: this.#home,
        USER: os.userInfo().username,
        RADSERVE_PORT: String(this.#port),
        RADSERVE_HOST: "127.0.0.1",
        RADSERVE_LOG_LEVEL: "warn",
        // A busy machine's server may stand still for some seconds
        ...withDurations({ commandAnswer: LONGEST_COMMAND_MS }),
      },
      stdio: ["pipe", "ignore", "inherit"],
    });
    // Everything that the pages change as root is the reader's own here
    this.#shell.stdin?.write('sudo() { "$@"; }\n');
  }

  /** A command of a page, with our paths, port and ids in the place of the page's. */
  #ours(text: string): string {
    const named = text
      .replaceAll("/srv/", `${this.srv}/`)
      .replaceAll("/etc/radserve/", `${this.#etc}/`)
      .replaceAll("localhost:8500", `localhost:${this.#port}`);
    return [...this.#ids].reduce((t, [shown, found]) => t.replaceAll(shown, found), named);
  }

  #theirs(text: string): string {
    return text
      .replaceAll(`${this.srv}/`, "/srv/")
      .replaceAll(`${this.#etc}/`, "/etc/radserve/")
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

  /** Writes a block of a page into the file that the page names. */
  write(file: string, text: string): void {
    writeFileSync(this.#ours(file), this.#ours(text));
  }

  /** Starts a server as the page says, in place of the one before, and waits until it is ready. */
  async serve(command: string): Promise<void> {
    await this.#endServer();
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

  /** Ctrl-C in the server's terminal. */
  async #endServer(): Promise<void> {
    await this.type('[ -z "$SERVER" ] || { kill $SERVER; wait $SERVER; }; true');
  }

  async stop(): Promise<void> {
    await this.#endServer();
    this.#shell?.stdin?.end();
    rmSync(this.#directory, { recursive: true, force: true });
    this.#removeRootsDatabase();
  }
}
