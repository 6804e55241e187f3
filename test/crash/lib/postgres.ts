/**
 * A PostgreSQL that several nodes share, reachable over TCP, started again whenever it is killed.
 */
import { execFileSync, spawn, type ChildProcess } from "node:child_process";
import { chownSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import pg from "pg";
import { findBinaries } from "../../../src/features/local-postgres/binaries.js";
import { freePort } from "../../support/server.js";
import { slay } from "./processes.js";

/** PostgreSQL refuses root: the user that owns it then. */
function servant(): { uid: number; gid: number } | undefined {
  if (process.getuid?.() !== 0) return undefined;
  const id = (flag: string) => Number(execFileSync("id", [flag, "nobody"], { encoding: "utf8" }));
  return { uid: id("-u"), gid: id("-g") };
}

export class SharedPostgres {
  #process: ChildProcess | undefined;
  #stopping = false;

  private constructor(
    private readonly programs: string,
    private readonly directory: string,
    private readonly address: string,
    private readonly port: number,
  ) {}

  static async start(address = "127.0.0.1"): Promise<SharedPostgres> {
    const directory = mkdtempSync(path.join(os.tmpdir(), "radserve-pg-"));
    const user = servant();
    const password = path.join(directory, "password");
    writeFileSync(password, "secret\n");
    if (user !== undefined)
      for (const one of [directory, password]) chownSync(one, user.uid, user.gid);
    const data = path.join(directory, "data");
    const options = [
      "-D",
      data,
      "-U",
      "radserve",
      "-A",
      "scram-sha-256",
      `--pwfile=${password}`,
      "-E",
      "UTF8",
    ];
    const { folder } = await findBinaries({ account: user, copies: directory });
    execFileSync(`${folder}/initdb`, options, { ...user, cwd: directory, stdio: "ignore" });
    // Radserve's nodes come from any address of the test's own networks
    writeFileSync(path.join(data, "pg_hba.conf"), "host all all all scram-sha-256\n");
    // It keeps its port while it is down
    const postgres = new SharedPostgres(folder, directory, address, await freePort());
    postgres.#run();
    await postgres.untilUp();
    return postgres;
  }

  get url(): string {
    return `postgresql://radserve:secret@${this.address}:${this.port}/postgres`;
  }

  get pid(): number | undefined {
    return this.#process?.pid;
  }

  /** A backup as docs/operations.md makes it. @returns the file, which ends with this server */
  dump(): string {
    const file = path.join(this.directory, "radserve.dump");
    this.#client("pg_dump", "-Fc", "--no-owner", "-f", file, this.url);
    return file;
  }

  /**
   * Puts it back in the place of the database, which nobody uses now: a session of a client that
   * has gone may still be ending.
   */
  restore(file: string): void {
    const other = this.url.replace(/\/postgres$/, "/template1");
    const create = "create database postgres encoding 'UTF8' template template0";
    this.#client("psql", "-d", other, "-c", "drop database postgres with (force)", "-c", create);
    this.#client("pg_restore", "--no-owner", "-d", this.url, file);
  }

  #client(name: string, ...words: string[]): void {
    execFileSync(`${this.programs}/${name}`, words, {
      cwd: this.directory,
      stdio: ["ignore", "ignore", "inherit"],
    });
  }

  kill(): boolean {
    return this.pid !== undefined && slay(this.pid);
  }

  /** Resolves when it answers: it takes connections some moments before. */
  async untilUp(): Promise<void> {
    for (;;) {
      const client = new pg.Client({ connectionString: this.url, connectionTimeoutMillis: 1_000 });
      client.on("error", () => undefined);
      const isUp = await client.connect().then(
        () => true,
        () => false,
      );
      await client.end().catch(() => undefined);
      if (isUp) return;
      await delay(50);
    }
  }

  async stop(): Promise<void> {
    this.#stopping = true;
    const child = this.#process;
    if (child?.exitCode === null && child.signalCode === null) {
      child.kill("SIGINT");
      await new Promise((resolve) => child.once("exit", resolve));
    }
    rmSync(this.directory, { recursive: true, force: true });
  }

  #run(): void {
    const options = [
      "-D",
      path.join(this.directory, "data"),
      "-h",
      this.address,
      "-p",
      String(this.port),
    ];
    // It ends with the process that started it, however that ends
    const words = ["--pdeathsig", "QUIT", "--", `${this.programs}/postgres`, ...options, "-k", ""];
    const child = spawn("setpriv", words, {
      ...servant(),
      stdio: "ignore",
    });
    this.#process = child;
    child.once("exit", () => {
      // After kill -9 it refuses to start until the last of its children is gone: again, as a
      // service manager would.
      setTimeout(() => {
        if (!this.#stopping) this.#run();
      }, 200).unref();
    });
  }
}
