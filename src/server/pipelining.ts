/**
 * Requests that a client sends on one connection without waiting for the answers (RFC 9112, 9.3.2).
 * Node.js would give all of them to the handler at once and keep every answer in memory until the
 * client reads.
 */
import type { IncomingMessage, RequestListener, ServerResponse } from "node:http";
import type { Socket } from "node:net";

/** Requests that may wait on one connection. One read from a socket can bring a thousand. */
const MOST_WAITING = 256;

/** The requests of a connection that have no answer yet; the first is in work. */
interface RequestLine {
  exchanges: [IncomingMessage, ServerResponse][];
  /** More came than may wait: the connection ends with the answer that is on its way. */
  ends: boolean;
  pauses: boolean;
}

/**
 * Hands the requests of a connection on one after the other: the next when the answer before it has
 * left. Where more wait than may, the connection ends with the answer that is on its way; a client
 * sends the others again (RFC 9112, 9.3.2).
 * @param tooMany told of such a connection
 */
export function oneAtATime(handle: RequestListener, tooMany: () => void): RequestListener {
  const lines = new WeakMap<Socket, RequestLine>();
  const begin = (socket: Socket, line: RequestLine) => {
    const [next] = line.exchanges;
    if (next === undefined || socket.destroyed) return;
    next[1].once("close", () => {
      line.exchanges.shift();
      if (line.ends) socket.end(() => socket.destroy());
      else begin(socket, line);
    });
    handle(...next);
  };
  return (request, response) => {
    const { socket } = request;
    const line = lines.get(socket) ?? { exchanges: [], ends: false, pauses: false };
    lines.set(socket, line);
    if (line.ends) stopReading(socket, line);
    else if (line.exchanges.push([request, response]) === 1) begin(socket, line);
    else if (line.exchanges.length > MOST_WAITING + 1) {
      line.ends = true;
      line.exchanges.length = 1;
      socket.prependListener("close", withoutStacks);
      stopReading(socket, line);
      tooMany();
    }
  };
}

const STACK_DEPTH = Error.stackTraceLimit;

/**
 * Node.js makes an error with its stack for each request of a closed connection that has no answer
 * (a thousand, maybe). That took most of the thread's time while 100 clients sent too many. The
 * errors of this turn go without.
 */
function withoutStacks(): void {
  Error.stackTraceLimit = 0;
  process.nextTick(() => (Error.stackTraceLimit = STACK_DEPTH));
}

/**
 * Pauses once what was read is parsed: until then each request that the parser finds would make the
 * socket read on.
 */
function stopReading(socket: Socket, line: RequestLine): void {
  if (line.pauses) return;
  line.pauses = true;
  process.nextTick(() => {
    line.pauses = false;
    socket.pause();
  });
}
