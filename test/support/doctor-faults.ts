/**
 * Faults that are planted one at a time in a place where all is well; doctor has to name each, with
 * what to do.
 */
import { execFile, execFileSync, fork, spawnSync } from "node:child_process";
import { once } from "node:events";
import { chownSync, existsSync, mkdtempSync, rmSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import type { Test } from "tap";
import type { DoctorTask } from "./doctor-child.js";
import { ADDON, needs } from "./needs.js";
import { isRoot } from "./postgres.js";
import { privatePlace } from "./private-postgres.js";
import { radserve, root, type Place } from "./server.js";

export interface Finding {
  name: string;
  ok: boolean;
  found: string;
  fix?: string;
}

export interface Planted {
  fault: string;
  /** Puts the fault in place. */
  plant: (place: Place, t: Test) => void | Promise<void>;
  finding: string;
  found: RegExp;
  fix: RegExp;
  /** It is told of, and the exit status stays 0. */
  advice?: true;
  /** Doctor runs as the account of this test, which sees what processes of its own hold. */
  own?: true;
  skip?: string | false;
}

export const set =
  (name: string, value: string | ((place: Place) => string)) =>
  (place: Place): void => {
    place.environment[name] = typeof value === "string" ? value : value(place);
  };

const NOBODY = 65_534;
const main = path.join(root, "dist/src/main.js");
/** The account that may do least, if it reaches this clone. */
const reaches =
  isRoot &&
  spawnSync(process.execPath, [main, "--version"], { uid: NOBODY, gid: NOBODY }).status === 0;
export const asNobody = isRoot && !reaches ? "the account nobody does not reach this clone" : false;

/** Everything below a folder is that account's. */
function give(folder: string, id: number): void {
  spawnSync("chown", ["-R", `${id}:${id}`, folder]);
  chownSync(folder, id, id);
}

interface Look {
  status: number;
  findings: Finding[];
}

/** A process that looks at one place after the other, which costs less than starting it. */
class Looker {
  readonly #child;
  readonly #ended: Promise<never>;

  constructor(t: Test, account: { uid: number; gid: number } | object) {
    const program = fileURLToPath(new URL("doctor-child.js", import.meta.url));
    this.#child = fork(program, { ...account, cwd: "/" });
    this.#ended = once(this.#child, "exit").then(([status]) => {
      throw new Error(`the process that looks ended with ${String(status)}`);
    });
    this.#ended.catch(() => undefined);
    t.teardown(() => this.#child.disconnect());
  }

  async look({ environment, directory }: Place): Promise<Look> {
    const task: DoctorTask = { environment, directory };
    const answered = once(this.#child, "message");
    this.#child.send(task);
    const [answer] = (await Promise.race([answered, this.#ended])) as [Look];
    return answer;
  }
}

/**
 * Runs the command itself as the account of this test: where its program or its Node.js is the
 * fault, and its exit.
 */
async function look(place: Place): Promise<Look> {
  const options = { env: place.environment, cwd: place.directory };
  const words = [place.main ?? main, "doctor", "--json"];
  const { status, stdout } = await promisify(execFile)(process.execPath, words, options).then(
    (ran) => ({ ...ran, status: 0 }),
    (error: unknown) => {
      const { code, stdout } = error as { code: number; stdout: string };
      return { status: code, stdout };
    },
  );
  return { status, findings: JSON.parse(stdout) as Finding[] };
}

/** Doctor's looks at places of one test file. */
export class Doctor {
  readonly #own: Looker;
  readonly #bound: Looker;
  readonly #initialised = mkdtempSync(path.join(os.tmpdir(), "radserve-doctor-"));

  /** @param t the file's */
  constructor(private readonly t: Test) {
    this.#own = new Looker(t, {});
    this.#bound = reaches ? new Looker(t, { uid: NOBODY, gid: NOBODY }) : this.#own;
    t.teardown(() => rmSync(this.#initialised, { recursive: true }));
  }

  /** As an account that the modes of files bind, where there is one. */
  look(place: Place): Promise<Look> {
    if (reaches) give(place.directory, NOBODY);
    return this.#bound.look(place);
  }

  /**
   * A place where doctor finds nothing, with the model ct-tissue. The state is that of one
   * `radserve init` for all.
   */
  async soundPlace(t: Test): Promise<Place> {
    const place = privatePlace(t);
    t.teardown(() => place.remove());
    const state = path.join(this.#initialised, "state");
    if (!existsSync(state)) {
      const environment = { ...place.environment, RADSERVE_STATE_DIR: state };
      t.equal((await radserve({ ...place, environment }, "init")).status, 0);
    }
    execFileSync("cp", ["-a", state, place.environment["RADSERVE_STATE_DIR"]!]);
    return place;
  }

  /** A test of each fault. */
  plantEach(faults: readonly Planted[]): void {
    for (const { fault, plant, finding, found, fix, advice, own, skip } of faults)
      void this.t.test(fault, { skip: needs(ADDON) || (skip ?? false) }, async (t) => {
        const place = await this.soundPlace(t);
        await plant(place, t);
        const isReal = place.main !== undefined || "NODE_OPTIONS" in place.environment;
        const asOwn = own === true ? this.#own.look(place) : undefined;
        const { status, findings } = await (isReal ? look(place) : (asOwn ?? this.look(place)));
        const told = findings.filter((one) => one.name === finding && one.fix !== undefined);
        t.ok(
          told.some((one) => found.test(one.found) && fix.test(one.fix ?? "")),
          JSON.stringify(findings.filter((one) => one.fix !== undefined)),
        );
        t.equal(status, advice === true ? 0 : 1);
      });
  }
}
