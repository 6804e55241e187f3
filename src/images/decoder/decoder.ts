/**
 * Native decoders run in a separate process (decoder-process.ts), where hostile bytes reach
 * nothing. Each thread that needs a decoder starts its own process, which does one order after
 * another. The process is killed when an order takes too long or nobody waits for it any more, and
 * it ends when no order came for a while. If it ends in the middle, its order fails and the next
 * file gets a new process.
 */
import { spawn, type ChildProcess } from "node:child_process";
import { readFileSync } from "node:fs";
import { Socket } from "node:net";
import { fileURLToPath } from "node:url";
import { z } from "zod";
import { endWithThread, hasEnded } from "../../addon/confine.js";
import { durations } from "../../base/durations.js";
import { asRadserveError, errors, type RadserveError } from "../../base/errors.js";
import {
  frameHead,
  FrameInParts,
  type DecoderAnswer,
  type WireFrame,
  type Greeting,
  type DecoderOrder,
} from "./frames.js";

/** How often it is asked whether the work is still wanted. */
const CHECK_MS = 100;
/**
 * Seconds of one core; the largest pictures take some five. Not of the clock, by which a busy node
 * is slow too.
 */
const MOST_WORK_SECONDS = 60;
const WATCH_MS = 1_000;
/** A process that has not said after so long that it is confined is started anew. */
const LONGEST_START_MS = 60_000;
/** Ticks a second of the times in /proc/PID/stat (proc(5)); there are 100 on every x86-64 Linux. */
const TICKS_A_SECOND = 100;
/** After work on more bytes than these the process ends soon: its memory goes back with it. */
const LARGE_BYTES = 1 << 26;
const IDLE_AFTER_LARGE_MS = 2_000;
/** Files that a process holds for more work on them, as many as a thread has images in flight. */
const MOST_FILES = 4;
const MOST_HELD_BYTES = 1 << 29;

/**
 * No code is made at run time, so that the process can give up memory for code. Its environment is
 * empty but for this: no ring of io_uring that the kernel looks at by itself, through which calls
 * would pass the filter by (the runtime has others, and to tell the kernel of what is in those ends
 * the process), and one thread, for it does one thing.
 */
const FLAGS = ["--jitless", fileURLToPath(new URL("./decoder-process.js", import.meta.url))];
const ENVIRONMENT = { UV_USE_IO_URING: "0", UV_THREADPOOL_SIZE: "1" };

const greetingSchema: z.ZodType<Greeting> = z.object({
  confined: z.boolean(),
  why: z.string().optional(),
});
const answerSchema: z.ZodType<DecoderAnswer> = z.union([
  z.object({ done: z.unknown() }),
  z.object({ failed: z.string() }),
]);

/** The decoder's words where it could not decode. */
export class DecodingFailed extends Error {
  override readonly name = "DecodingFailed";
}

interface DecoderWork {
  order: Omit<DecoderOrder, "forget">;
  bytes: Uint8Array;
  /** Whether the decoder may say this, with so many bytes behind it. */
  admits: (done: unknown, bytes: number) => boolean;
  /** The format, for people. */
  format: string;
  check: () => void;
  checking?: NodeJS.Timeout;
  resolve: (answer: { done: unknown; bytes: Uint8Array }) => void;
  reject: (error: Error) => void;
}

let current: DecoderProcess | undefined;
const line: DecoderWork[] = [];
let lastFile = 0;

/** A file whose bytes a decoder process works on. */
export interface FileApart {
  /**
   * @param what the order @param schema of the answer's header @param expected how many bytes the
   * answer must have @throws DecodingFailed with the decoder's message; RadserveError corrupt_image
   * if it crashed, took too long or gave a wrong answer; internal where it cannot be started,
   * confined, or was killed from outside; what the check throws
   */
  ask<Said>(
    what: unknown,
    schema: z.ZodType<Said>,
    expected: (said: Said) => number,
  ): Promise<{ said: Said; bytes: Uint8Array }>;
  /** Nothing more will be asked; a process that holds the bytes may forget them. */
  release(): void;
}

/**
 * @param bytes stay as they are while anything is asked
 * @param format for people
 * @param check asked again and again while the work waits or runs; what it throws ends it
 */
export function decodeApart(
  decoder: DecoderOrder["decoder"],
  bytes: Uint8Array,
  format: string,
  check: () => void,
): FileApart {
  const file = (lastFile += 1);
  return {
    async ask(what, schema, expected) {
      const admits = (done: unknown, length: number) => {
        const said = schema.safeParse(done);
        return said.success && expected(said.data) === length;
      };
      const answer = await new Promise<{ done: unknown; bytes: Uint8Array }>((resolve, reject) => {
        enqueue({ order: { decoder, file, what }, bytes, admits, format, check, resolve, reject });
      });
      return { said: schema.parse(answer.done), bytes: answer.bytes };
    },
    release: () => current?.release(file),
  };
}

/** Whether this thread has a decoder process; to start one takes some tenths of a second. */
export const hasDecoder = (): boolean => current !== undefined;

/**
 * Starts a decoder process, if this thread has none, and ends it.
 * @throws RadserveError internal, as `ask` does, where it cannot be started or confined
 */
export async function tryDecoder(): Promise<void> {
  const nothing = decodeApart("raster", Uint8Array.of(0), "empty", () => undefined);
  await nothing
    .ask({ do: "metadata" }, z.never(), () => 0)
    .catch((error: unknown) => {
      if (!(error instanceof DecodingFailed)) throw error;
    });
  current?.end();
}

function enqueue(work: DecoderWork): void {
  work.checking = setInterval(() => {
    try {
      work.check();
    } catch (error) {
      abandon(work, asRadserveError(error));
    }
  }, CHECK_MS);
  line.push(work);
  next();
}

/** Work of the process can only be stopped with the process. */
function abandon(work: DecoderWork, error: Error): void {
  const at = line.indexOf(work);
  if (at >= 0) line.splice(at, 1);
  else current?.end();
  settle(work, () => work.reject(error));
}

function settle(work: DecoderWork, how: () => void): void {
  clearInterval(work.checking);
  how();
  next();
}

function next(): void {
  try {
    if (line.length > 0) current ??= new DecoderProcess();
  } catch (error) {
    refuseAll(notStarted(error instanceof Error ? error.message : "unknown"));
  }
  current?.turn();
}

const ADMITS_NOTHING = () => false;

class DecoderProcess {
  readonly #child: ChildProcess;
  readonly #channel: Socket;
  #frame = new FrameInParts(
    (header, bytes) => greetingSchema.safeParse(header).success && bytes === 0,
  );
  #isConfined = false;
  #work: DecoderWork | undefined;
  #limit: NodeJS.Timeout | undefined;
  #idle: NodeJS.Timeout | undefined;
  #isLarge = false;
  /** The files that it holds, with their sizes, in the order of their last use. */
  readonly #files = new Map<number, number>();
  /** Those of them that nobody needs any more. */
  readonly #released = new Set<number>();

  constructor() {
    this.#child = spawn(process.execPath, FLAGS, {
      stdio: ["ignore", "ignore", "ignore", "pipe"],
      env: ENVIRONMENT,
      cwd: "/",
    });
    const { pid, stdio } = this.#child;
    if (pid !== undefined) endWithThread(pid);
    this.#child.on("error", () => this.#ended("cannot be started"));
    this.#child.on("exit", () => {
      if (pid !== undefined) hasEnded(pid);
    });
    // Not before its last words were heard
    this.#child.on("close", (status, signal) => this.#ended(signal ?? `status ${status}`));
    if (!(stdio[3] instanceof Socket))
      throw new TypeError("Expected a channel to the decoder process");
    this.#channel = stdio[3];
    this.#channel.on("data", (chunk: Buffer) => this.#hear(chunk));
    // Its end says why
    this.#channel.on("error", () => undefined);
    this.#limit = setTimeout(() => {
      this.end();
      refuseAll(notStarted("it does not answer"));
    }, LONGEST_START_MS).unref();
  }

  /** Begins the next work of the line, if there is any and the process is free. */
  turn(): void {
    if (!this.#isConfined || this.#work !== undefined) return;
    const work = line.shift();
    if (work === undefined) this.#rest();
    else this.#begin(work);
  }

  #begin(work: DecoderWork): void {
    clearTimeout(this.#idle);
    this.#child.ref();
    this.#channel.ref();
    this.#work = work;
    this.#frame = new FrameInParts((header, bytes) => {
      const answer = answerSchema.parse(header);
      return "failed" in answer ? bytes === 0 : work.admits(answer.done, bytes);
    });
    const { file } = work.order;
    const isHeld = this.#files.delete(file);
    this.#files.set(file, work.bytes.length);
    const bytes = isHeld ? 0 : work.bytes.length;
    this.#channel.write(frameHead({ ...work.order, forget: this.#toForget(file) }, bytes));
    if (!isHeld) this.#channel.write(work.bytes);
    this.#watch(work);
  }

  /** Files that nobody needs, and of the others the oldest if there are too many. */
  #toForget(needed: number): number[] {
    const forget: number[] = [];
    let total = [...this.#files.values()].reduce((sum, bytes) => sum + bytes, 0);
    for (const [file, bytes] of this.#files) {
      const isTooMuch = this.#files.size > MOST_FILES || total > MOST_HELD_BYTES;
      if (file === needed || !(this.#released.has(file) || isTooMuch)) continue;
      this.#files.delete(file);
      this.#released.delete(file);
      total -= bytes;
      forget.push(file);
    }
    return forget;
  }

  /** Ends a process that works for too long on one thing; in the line others wait for it. */
  #watch(work: DecoderWork): void {
    const begin = secondsWorked(this.#child.pid);
    this.#limit = setInterval(() => {
      if (secondsWorked(this.#child.pid) - begin < MOST_WORK_SECONDS) return;
      this.end();
      settle(work, () => work.reject(tookTooLong(work.format)));
    }, WATCH_MS).unref();
  }

  #hear(chunk: Buffer): void {
    try {
      for (let at = 0; at < chunk.length;) {
        const count = chunk.copy(this.#frame.room, 0, at);
        at += count;
        const frame = this.#frame.fill(count);
        if (frame === undefined) continue;
        this.#frame = new FrameInParts(ADMITS_NOTHING);
        this.#take(frame);
      }
    } catch {
      const work = this.#work;
      const hasGreeted = this.#isConfined;
      this.end();
      if (!hasGreeted) refuseAll(notStarted("what it says first is no greeting"));
      if (work !== undefined) settle(work, () => work.reject(misbehaved(work.format)));
    }
  }

  /** @throws Error if it is not what comes next */
  #take({ header, bytes }: WireFrame): void {
    if (!this.#isConfined) {
      this.#greet(greetingSchema.parse(header));
      return;
    }
    const work = this.#work;
    if (work === undefined) throw new Error("Expected no answer");
    const answer = answerSchema.parse(header);
    clearInterval(this.#limit);
    this.#isLarge ||= work.bytes.length + bytes.length > LARGE_BYTES;
    this.#work = undefined;
    settle(work, () => {
      if ("failed" in answer) work.reject(new DecodingFailed(answer.failed));
      else work.resolve({ done: answer.done, bytes });
    });
  }

  #greet({ confined, why }: Greeting): void {
    if (!confined) {
      this.end();
      refuseAll(notConfined(why ?? "no reason given"));
      return;
    }
    clearInterval(this.#limit);
    this.#isConfined = true;
    this.turn();
  }

  /** The process, while nothing is asked of it, keeps nobody from ending. */
  #rest(): void {
    this.#child.unref();
    this.#channel.unref();
    clearTimeout(this.#idle);
    this.#idle = setTimeout(
      () => this.end(),
      this.#isLarge ? IDLE_AFTER_LARGE_MS : durations.decoderIdle,
    ).unref();
  }

  /** Its bytes go with the next work, or when the process ends. */
  release(file: number): void {
    if (this.#files.has(file)) this.#released.add(file);
  }

  /**
   * Kills it; another takes its place when there is work. What it works on is the caller's to
   * settle.
   */
  end(): void {
    this.#work = undefined;
    this.#leave();
    this.#child.kill("SIGKILL");
    this.#channel.destroy();
  }

  #leave(): void {
    clearInterval(this.#limit);
    clearTimeout(this.#idle);
    if (current === this) current = undefined;
  }

  #ended(how: string): void {
    const work = this.#work;
    const wasCurrent = current === this;
    this.#work = undefined;
    this.#leave();
    if (work !== undefined) settle(work, () => work.reject(ended(work.format, how)));
    else if (wasCurrent && !this.#isConfined) refuseAll(notStarted(how));
  }
}

function refuseAll(error: RadserveError): void {
  for (const work of line.splice(0)) settle(work, () => work.reject(error));
}

/** CPU time of a process; zero if it has gone. */
function secondsWorked(pid: number | undefined): number {
  try {
    // The name in parentheses may hold anything; utime and stime are the twelfth and thirteenth
    // behind it
    const fields = readFileSync(`/proc/${pid}/stat`, "latin1").split(") ").at(-1)?.split(" ") ?? [];
    return (Number(fields[11]) + Number(fields[12])) / TICKS_A_SECOND;
  } catch {
    return 0;
  }
}

function misbehaved(format: string): RadserveError {
  return errors.corrupt_image(
    `The ${format} file made its decoder answer what no decoder answers. It is damaged, or made to do harm.`,
  );
}

function tookTooLong(format: string): RadserveError {
  return errors.corrupt_image(
    `The ${format} file took its decoder longer than ${MOST_WORK_SECONDS} s of a core. It is damaged, or made to do harm.`,
  );
}

/**
 * Who kills from outside is an operator, or the system when memory runs out: that says nothing of
 * the file.
 */
function ended(format: string, how: string): RadserveError {
  if (how === "SIGKILL" || how === "SIGTERM")
    return errors.internal(
      `The process that decoded the ${format} file was killed from outside (${how}), most likely because memory ran out. Send the request again.`,
    );
  return errors.corrupt_image(
    `The ${format} file made its decoder crash (${how}). It is damaged, or made to do harm.`,
    { ended: how },
  );
}

function notConfined(why: string): RadserveError {
  return errors.internal(
    `PNG, JPEG and TIFF are not decoded here: the system refuses to confine their decoder (${why}). Allow the system call seccomp; radserve doctor looks at it.`,
  );
}

function notStarted(how: string): RadserveError {
  return errors.internal(
    `The process that decodes PNG, JPEG and TIFF cannot be started (${how}). radserve doctor looks at it.`,
  );
}
