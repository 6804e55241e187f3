/**
 * One way across threads. A thread answers by an object of methods, and whoever holds the other end
 * of its port has that object's type and calls them:
 *
 *     const methods: Shelf = { find: (title) => books.get(title) };     on the one thread
 *     onPort(port, methods);
 *
 *     const { call } = onPort<Shelf>(port, {});                         on the other
 *     await call.find("Moby Dick");
 *
 * A call waits for its answer, a note for nothing. Both sides may answer and call. An error comes
 * back as a RadserveError, with a fault for the log where nobody raised it on purpose. What `moved`
 * names goes over and is lost here; all else is copied (structured clone). Where the other thread
 * ends, every call that waits is rejected with ThreadEnded.
 *
 * Who starts a thread and ends it has a ServiceThread. Two threads that have much to say to one
 * another get the ends of one channel from their owner (DirectLine), who then forwards nothing.
 */
import type { MessagePort, Transferable } from "node:worker_threads";
import { errno } from "./errno.js";
import { asRadserveError, RadserveError, type ErrorObject } from "./errors.js";
import { DistantFault, faultForLog } from "./fault.js";

/** Methods as another thread calls them. */
export type Calls<T> = {
  readonly [Name in keyof T]: T[Name] extends (...args: infer Args) => infer Answer
    ? (...args: Args) => Promise<Awaited<Answer>>
    : never;
};

/** The same, where nobody waits for an answer. */
export type Notes<T> = {
  readonly [Name in keyof T]: T[Name] extends (...args: infer Args) => unknown
    ? (...args: Args) => void
    : never;
};

/**
 * An object of methods on another thread. What one throws for a note is an uncaught error there.
 */
export interface Remote<T> {
  /** @throws ThreadEnded; what the method throws, as a RadserveError */
  readonly call: Calls<T>;
  readonly note: Notes<T>;
}

/** The thread ended, or was ended, before it answered. */
export class ThreadEnded extends Error {
  override readonly name = "ThreadEnded";

  /** @param wasEnded its owner ended it; otherwise it failed */
  constructor(readonly wasEnded: boolean) {
    super("The thread ended before it answered");
  }
}

const moving = new WeakMap<object, readonly Transferable[]>();

/**
 * An argument or an answer of which these parts (buffers, streams, ports) go over without a copy;
 * they are lost here.
 */
export function moved<T extends object>(value: T, parts: readonly Transferable[]): T {
  moving.set(value, parts);
  return value;
}

const partsOf = (value: unknown): readonly Transferable[] =>
  typeof value === "object" && value !== null ? (moving.get(value) ?? []) : [];

/** An error as it crosses: `fault` is for the log, where nobody raised the error on purpose. */
interface Refusal {
  error: ErrorObject;
  errno?: string;
  fault?: Record<string, unknown>;
}

function refusalOf(thrown: unknown): Refusal {
  const error = asRadserveError(thrown);
  const { cause } = error;
  // The system's own code, for example EIO
  const code = cause instanceof Error && "syscall" in cause ? errno(cause) : "";
  return {
    error: error.toObject(),
    ...(code === "" ? {} : { errno: code }),
    ...(error.code === "internal" ? { fault: faultForLog(thrown) } : {}),
  };
}

function errorOf({ error, errno, fault }: Refusal): RadserveError {
  if (fault === undefined) return RadserveError.fromObject(error, errno);
  const cause = new DistantFault(fault, errno ?? "");
  return new RadserveError(error.error, error.message, error.details, { cause });
}

/** A note has no id. */
interface CallMessage {
  method: string;
  args: readonly unknown[];
  id?: number;
}

/** All that goes over a port. */
export type LineMessage =
  CallMessage | { id: number; answer: unknown } | { id: number; refusal: Refusal };

interface PendingCall {
  resolve: (answer: unknown) => void;
  reject: (error: Error) => void;
}

type Method = (...args: readonly unknown[]) => unknown;
type Post = (message: unknown, transfer: readonly Transferable[]) => void;

/** One end of a port: what it answers, and what waits here for answers of the other end. */
export class Line {
  readonly #waiting = new Map<number, PendingCall>();
  #lastId = 0;

  /** @param methods it answers by these */
  constructor(
    private readonly post: Post,
    private readonly methods: object,
  ) {}

  /** Calls that are not answered. */
  get pending(): number {
    return this.#waiting.size;
  }

  call(method: string, args: readonly unknown[]): Promise<unknown> {
    return new Promise((resolve, reject) => {
      const id = (this.#lastId += 1);
      this.post({ method, args, id } satisfies LineMessage, args.flatMap(partsOf));
      this.#waiting.set(id, { resolve, reject });
    });
  }

  note(method: string, args: readonly unknown[]): void {
    this.post({ method, args } satisfies LineMessage, args.flatMap(partsOf));
  }

  /** To be told everything that comes over the port. */
  readonly hear = (message: LineMessage): void => {
    if ("method" in message) void this.#perform(message);
    else {
      const waiting = this.#waiting.get(message.id);
      this.#waiting.delete(message.id);
      if ("answer" in message) waiting?.resolve(message.answer);
      else waiting?.reject(errorOf(message.refusal));
    }
  };

  /** Rejects all that waits. */
  fail(error: Error): void {
    for (const { reject } of this.#waiting.values()) reject(error);
    this.#waiting.clear();
  }

  async #perform({ method, args, id }: CallMessage): Promise<void> {
    try {
      const answer = await (Reflect.get(this.methods, method) as Method)(...args);
      if (id !== undefined) this.post({ id, answer } satisfies LineMessage, partsOf(answer));
    } catch (thrown) {
      if (id === undefined) throw thrown;
      this.post({ id, refusal: refusalOf(thrown) } satisfies LineMessage, []);
    }
  }
}

/** The methods of the other end, by what is done with a name and its arguments. */
const named = (perform: (method: string, args: readonly unknown[]) => unknown): object =>
  new Proxy(
    {},
    {
      get:
        (_, method) =>
        (...args: readonly unknown[]) =>
          perform(String(method), args),
    },
  );

/** The other end by the type of its methods. Only here it is known that they are but names. */
export function remoteBy<T extends object>(line: Pick<Line, "call" | "note">): Remote<T> {
  return {
    call: named((method, args) => line.call(method, args)) as Calls<T>,
    note: named((method, args) => line.note(method, args)) as Notes<T>,
  };
}

/** Answers on a port from now on, by these methods. @returns who answers at its other end */
export function onPort<Other extends object>(port: MessagePort, methods: object): Remote<Other> {
  return remoteBy<Other>(lineOn(port, methods));
}

function lineOn(port: MessagePort, methods: object): Line {
  const line = new Line((message, transfer) => port.postMessage(message, transfer), methods);
  port.on("message", line.hear);
  port.once("close", () => line.fail(new ThreadEnded(false)));
  return line;
}

/**
 * A line to a thread that somebody else owns. It is laid with the first call, and again with the
 * first one after that thread has ended.
 */
export class DirectLine<T extends object> {
  readonly call: Calls<T>;
  #line: Promise<Line> | undefined;

  /** @param lay asks the owner of the other thread for a port that it answers on */
  constructor(private readonly lay: () => Promise<MessagePort>) {
    const call = async (method: string, args: readonly unknown[]) =>
      (await (this.#line ??= this.#lay())).call(method, args);
    this.call = remoteBy<T>({ call, note: () => undefined }).call;
  }

  #lay(): Promise<Line> {
    const forget = () => (this.#line = undefined);
    const line = this.lay().then((port) => {
      port.once("close", forget);
      return lineOn(port, {});
    });
    line.catch(forget);
    return line;
  }
}
