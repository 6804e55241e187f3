/** A service thread that does what it is told. */
import { threadId, workerData } from "node:worker_threads";
import { RadserveError } from "../../src/base/errors.js";
import { systemError } from "../../src/base/errno.js";
import { answerOwner, type ThreadOwner } from "../../src/base/service-thread.js";

const { fails } = workerData as { fails?: boolean };
if (fails === true) throw new TypeError("planted: it cannot load");

const owner: ThreadOwner<string> = answerOwner<string, unknown, string>(async (call, transfer) => {
  switch (call) {
    case "id":
      return threadId;
    case "bytes": {
      const bytes = new Uint8Array(1 << 16).fill(7);
      transfer.push(bytes.buffer);
      return bytes;
    }
    case "refuse":
      throw new RadserveError("corrupt_image", "On purpose.", { line: 3 });
    case "full":
      throw new RadserveError("disk_full", "On purpose.", undefined, {
        cause: systemError(28, "write"),
      });
    case "fault":
      throw new TypeError("planted");
    case "function":
      return () => undefined;
    case "call back":
      owner.note("a note");
      return owner.call("a call");
    case "exit":
      return process.exit(3);
    case "throw":
      setImmediate(() => {
        throw new RangeError("planted: it dies");
      });
      return new Promise(() => undefined);
    default:
      return new Promise(() => undefined);
  }
});
