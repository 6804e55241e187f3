/** A service thread that does what it is told. */
import { MessageChannel, threadId, workerData, type MessagePort } from "node:worker_threads";
import { RadserveError } from "../../src/base/errors.js";
import { systemError } from "../../src/base/errno.js";
import { moved, onPort } from "../../src/base/remote.js";
import { answerOwner } from "../../src/base/service-thread.js";

const { fails } = workerData as { fails?: boolean };
if (fails === true) throw new TypeError("planted: it cannot load");

/** What this thread may ask its owner. */
export interface Asker {
  hear(word: string): string | undefined;
}

const methods = {
  id: () => threadId,
  bytes() {
    const bytes = new Uint8Array(1 << 16).fill(7);
    return moved(bytes, [bytes.buffer]);
  },
  /** @returns how many bytes came, which are lost to whoever sent them */
  lengthOf: (bytes: Uint8Array) => bytes.length,
  refuse(): void {
    throw new RadserveError("corrupt_image", "On purpose.", { line: 3 });
  },
  full(): void {
    const cause = systemError(28, "write");
    throw new RadserveError("disk_full", "On purpose.", undefined, { cause });
  },
  fault(): void {
    throw new TypeError("planted");
  },
  function: () => () => undefined,
  callBack() {
    owner.note.hear("a note");
    return owner.call.hear("a call");
  },
  /** A port on which this thread answers somebody else than its owner. */
  line(): MessagePort {
    const { port1, port2 } = new MessageChannel();
    onPort(port1, methods);
    return moved(port2, [port2]);
  },
  exit: (): Promise<void> => process.exit(3),
  throw(): Promise<void> {
    setImmediate(() => {
      throw new RangeError("planted: it dies");
    });
    return new Promise(() => undefined);
  },
  throwForNote(): void {
    throw new RangeError("planted: nobody waits for it");
  },
  nothing: (): Promise<void> => new Promise(() => undefined),
};
export type AnsweringThread = typeof methods;

const owner = answerOwner<Asker>(methods);
