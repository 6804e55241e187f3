/**
 * A sender whose connections break, who is refused while the disk is full, and who meets a server
 * that dies. What it knows at the end is what the server has promised.
 */
import http from "node:http";
import { setTimeout as delay } from "node:timers/promises";
import { associate } from "../../support/gateway.js";
import { failures, STOW_BOUNDARY, STOW_TYPE, stored, type StowAnswer } from "../../support/stow.js";
import { CONTEXTS, type MixedObject, type MixedStudy } from "./mixed-studies.js";

const AGAIN_MS = 100;
const LONGEST_MS = 600_000;
/** Studies that one association brings at most. */
const MOST_STUDIES = 3;
/** Status and Failure Reason where there is no room (PS3.4 table B.2-1). */
const WITHOUT_ROOM = 0xa700;

const WAYS = ["within an object", "after an object", "by an abort"] as const;

/** It breaks off at the object with this number. */
interface Break {
  at: number;
  way: (typeof WAYS)[number];
}

/** What a sender knows of an object: `perhaps` of one that was sent and not answered. */
type Known = "kept" | "perhaps" | "refused";

/**
 * Sends objects one after the other.
 * @param told is given each before it is sent, and its status when it is answered
 * @throws BrokenOff where it was to break off; anything else where the connection was lost
 */
export type Way = (
  objects: readonly MixedObject[],
  told: {
    sends: (object: MixedObject) => Promise<void>;
    status: (object: MixedObject, is: number) => void;
  },
  breaks: Break | undefined,
) => Promise<void>;

class BrokenOff extends Error {}

interface Habits {
  /**
   * Parts of associations that break off, of those that bring the rest later, and of those that
   * send again what was refused.
   */
  breaks: number;
  comesBack: number;
  persists: number;
  /** It pauses up to so many milliseconds before an object, and before it comes back. */
  between: number;
  pause: number;
}

export class Sender {
  /** By SOPInstanceUID; what was never sent is not there. */
  readonly known = new Map<string, Known>();
  readonly faults: string[] = [];
  readonly counts = { associations: 0, brokenOff: 0, lost: 0, refused: 0 };
  /** Studies that were begun. */
  readonly begun: MixedStudy[] = [];
  readonly #later: Promise<void>[] = [];

  /**
   * @param peer its name in the settings
   * @param next numbers from 0 to 1
   * @param tick is called before each object
   */
  constructor(
    readonly peer: string,
    private readonly way: Way,
    private readonly habits: Habits,
    private readonly next: () => number,
    private readonly tick: () => void,
  ) {}

  /** Ends when nothing more comes of these studies. */
  async send(studies: readonly MixedStudy[]): Promise<void> {
    const left = [...studies];
    while (left.length > 0) {
      const some = left.splice(0, 1 + Math.floor(this.next() * MOST_STUDIES));
      const begun = await this.#sendTogether(some);
      this.begun.push(...some.slice(0, begun));
      left.unshift(...some.slice(begun));
    }
    await Promise.all(this.#later);
  }

  /** @returns how many of the studies were begun: none behind one that it breaks off in */
  async #sendTogether(studies: readonly MixedStudy[]): Promise<number> {
    const objects = objectsOf(studies);
    const at = Math.floor(this.next() * objects.length);
    const way = WAYS[Math.floor(this.next() * WAYS.length)] ?? "by an abort";
    const breaks = this.next() < this.habits.breaks ? { at, way } : undefined;
    const comesBack = this.next() < this.habits.comesBack;
    const persists = this.next() < this.habits.persists;
    const { refused, isBroken } = await this.#untilAnswered(objects, breaks);
    if (!isBroken) {
      if (persists) this.#later.push(this.#comeBack(refused));
      return studies.length;
    }
    const last = studies.findIndex((study) => objectsOf([study]).includes(objects[at]!));
    const rest = objectsOf(studies.slice(0, last + 1)).filter(
      ({ sopInstanceUid }) => this.known.get(sopInstanceUid) !== "kept",
    );
    if (comesBack) this.#later.push(this.#comeBack(rest));
    return last + 1;
  }

  async #comeBack(rest: readonly MixedObject[]): Promise<void> {
    let left = rest;
    for (const end = Date.now() + LONGEST_MS; left.length > 0;) {
      await delay(this.next() * this.habits.pause);
      ({ refused: left } = await this.#untilAnswered(left));
      if (Date.now() < end) continue;
      this.faults.push(`${this.peer}: refused for ${LONGEST_MS / 1000} s`);
      return;
    }
  }

  /**
   * Sends objects until each was answered, over as many associations as that takes, or until it
   * breaks off.
   */
  async #untilAnswered(
    objects: readonly MixedObject[],
    breaks?: Break,
  ): Promise<{ refused: MixedObject[]; isBroken: boolean }> {
    const left = new Set(objects);
    const refused: MixedObject[] = [];
    const told = {
      sends: async ({ sopInstanceUid }: MixedObject) => {
        await delay(this.next() * this.habits.between);
        this.tick();
        if (this.known.get(sopInstanceUid) !== "kept") this.known.set(sopInstanceUid, "perhaps");
      },
      status: (object: MixedObject, status: number) => {
        left.delete(object);
        this.known.set(object.sopInstanceUid, status === 0 ? "kept" : "refused");
        if (status === 0) return;
        refused.push(object);
        this.counts.refused += 1;
        if (status !== WITHOUT_ROOM)
          this.faults.push(`${this.peer}: status 0x${status.toString(16)} of a right object`);
      },
    };
    for (const end = Date.now() + LONGEST_MS; left.size > 0;) {
      this.counts.associations += 1;
      const done = objects.length - left.size;
      const isAhead = breaks !== undefined && breaks.at >= done;
      try {
        await this.way([...left], told, isAhead ? { ...breaks, at: breaks.at - done } : undefined);
      } catch (error) {
        if (error instanceof BrokenOff) {
          this.counts.brokenOff += 1;
          return { refused, isBroken: true };
        }
        // The node was killed, or it starts
        this.counts.lost += 1;
        if (Date.now() > end) {
          this.faults.push(`${this.peer}: no answer for ${LONGEST_MS / 1000} s: ${String(error)}`);
          return { refused, isBroken: false };
        }
        await delay(AGAIN_MS);
      }
    }
    return { refused, isBroken: false };
  }
}

const objectsOf = (studies: readonly MixedStudy[]): MixedObject[] =>
  studies.flatMap(({ series }) => series.flatMap(({ objects }) => objects));

/** By C-STORE. */
export const byStore =
  (port: number, callingAe: string): Way =>
  async (objects, told, breaks) => {
    const broken = new AbortController();
    const caller = await associate(port, { callingAe, contexts: CONTEXTS, signal: broken.signal });
    try {
      for (const [i, object] of objects.entries()) {
        const isLast = i === breaks?.at;
        await told.sends(object);
        const half = object.dataSet.length >> 1;
        async function* cut() {
          yield object.dataSet.subarray(0, half);
          // Its last byte is held back, because it could be the object's
          yield await Promise.resolve(object.dataSet.subarray(half, half + 1));
          throw new BrokenOff();
        }
        const isCut = isLast && breaks.way === "within an object";
        const dataSet = isCut ? cut() : [object.dataSet];
        const { status } = await caller.store({ ...object, dataSet });
        told.status(object, status);
        if (isLast) throw new BrokenOff();
      }
    } catch (error) {
      if (error instanceof BrokenOff && breaks?.way === "by an abort") caller.abort();
      else broken.abort();
      throw error;
    }
    // What was kept is kept, whatever becomes of the release
    await caller.release().catch(() => undefined);
  };

/** By STOW-RS: all objects in one request, and their statuses in its answer. */
export const byStow =
  (url: string, token: string): Way =>
  (objects, told, breaks) =>
    new Promise((resolve, reject) => {
      const request = http.request(`${url}/dicomweb/studies`, {
        method: "POST",
        headers: {
          Authorization: token,
          "Content-Type": STOW_TYPE,
        },
      });
      request.on("error", (error) => reject(isBroken ? new BrokenOff() : error));
      request.once("response", (response) => {
        response.once("error", reject);
        let text = "";
        response.setEncoding("utf8").on("data", (piece: string) => (text += piece));
        response.once("end", () => {
          try {
            tell(response.statusCode ?? 0, text);
            resolve();
          } catch (error) {
            reject(new Error(String(error)));
          }
        });
      });
      const tell = (status: number, text: string) => {
        if (status === 507) {
          for (const object of objects) told.status(object, WITHOUT_ROOM);
          return;
        }
        if (![200, 202, 409].includes(status)) throw new Error(`The status is ${status}: ${text}`);
        const answer = JSON.parse(text) as StowAnswer;
        const byUid = new Map(objects.map((object) => [object.sopInstanceUid, object]));
        const tellOf = (uid: string | undefined, is: number) => {
          const object = byUid.get(uid ?? "");
          if (object !== undefined) told.status(object, is);
        };
        for (const uid of stored(answer)) tellOf(uid, 0);
        for (const [uid, reason = ""] of failures(answer)) tellOf(uid, Number.parseInt(reason, 16));
      };
      let isBroken = false;
      const write = async () => {
        for (const [i, object] of objects.entries()) {
          await told.sends(object);
          request.write(`\r\n--${STOW_BOUNDARY}\r\nContent-Type: application/dicom\r\n\r\n`);
          const isLast = i === breaks?.at;
          const isCut = isLast && breaks.way === "within an object";
          const bytes = isCut ? object.file.subarray(0, object.file.length >> 1) : object.file;
          await new Promise<void>((done) => request.write(bytes, () => done()));
          if (!isLast) continue;
          isBroken = true;
          // What was written has left this process
          await delay(AGAIN_MS);
          request.destroy();
          reject(new BrokenOff());
          return;
        }
        request.end(`\r\n--${STOW_BOUNDARY}--\r\n`);
      };
      void write();
    });
