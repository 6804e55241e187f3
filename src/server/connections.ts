/**
 * The connections of the serving process: how many there may be, which of them have a request in
 * work, and how they end when the server stops.
 */
import type { ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { TLSSocket } from "node:tls";
import { durations } from "../base/durations.js";
import { errno } from "../base/errno.js";
import type { Logger } from "../base/log.js";
import { monotonic } from "../base/monotonic.js";
import { endsOf, plainAddress } from "../base/networks.js";
import type { ClientAddresses } from "./client-address.js";
import { ConnectionCount, RefusedConnections, type ConnectionLimits } from "./connection-count.js";
import { rawAnswer } from "./raw-answer.js";

/** Refused connections that are kept until their answer is read; more are closed without one. */
const MOST_REFUSED = 64;
const LONGEST_REFUSAL_MS = 1_000;

/** How often it is looked at what readers have taken. */
const READER_LOOK_MS = 1_000;
/** A reader that takes nothing of its answer for so long is closed. */
const LONGEST_UNREAD_MS = 30_000;
/** Bytes of answers that may wait for their readers, over all connections. */
const MOST_UNREAD_BYTES = 128 * 1024 * 1024;

interface ClientConnection {
  socket: Socket;
  /**
   * Bytes that the socket had sent, and bytes that waited in it, when it was last seen to go on.
   */
  sent: string;
  sentAt: number;
  /** Requests in work. */
  active: number;
  quietSince: number;
}

export interface ConnectionOptions extends ConnectionLimits {
  addresses: ClientAddresses;
  /**
   * False: whoever is refused is told so over HTTP. Over TLS that would cost a handshake, and they
   * are only closed.
   */
  tls: boolean;
  log: Logger;
}

/**
 * Why OpenSSL refused the client's certificate, or else what failed. ECONNRESET: the client went
 * away.
 */
function nameOfFault(socket: TLSSocket, code: string): string {
  // A code, though Node's types say Error
  const refused: unknown = socket.authorizationError;
  return typeof refused === "string" ? refused : code;
}

/** That have come and gone. */
const bytesOf = ({ socket }: ClientConnection): number => socket.bytesRead + socket.bytesWritten;

export class Connections {
  readonly #open = new Map<string, ClientConnection>();
  /** Those without a request, the one that has been quiet for longest first. */
  readonly #quiet = new Set<ClientConnection>();
  readonly #count: ConnectionCount;
  readonly refusals: RefusedConnections;
  #refused = 0;
  readonly #readerLook: NodeJS.Timeout;

  constructor(private readonly options: ConnectionOptions) {
    this.#count = new ConnectionCount(options, options.addresses);
    this.refusals = new RefusedConnections(options.log);
    this.#readerLook = setInterval(() => this.#closeSlowReaders(), READER_LOOK_MS).unref();
  }

  get count(): number {
    return this.#count.all;
  }

  /**
   * Counts a connection until it closes. Where there are as many as may be, the one that has been
   * quiet for longest is closed for it, or else the new one is refused.
   * @returns false where it was refused
   */
  admit(socket: Socket): boolean {
    const address = plainAddress(socket.remoteAddress);
    if (address === undefined) {
      socket.destroy();
      return false;
    }
    const full = this.#count.whyFull(address);
    if (full === undefined || (full === "too_many_connections" && this.#closeQuietest())) {
      this.#add(socket, address);
      return true;
    }
    this.refusals.note(full, { address });
    const { max_connections, max_connections_per_address } = this.options;
    this.#refuse(
      socket,
      full === "too_many_of_address"
        ? `Expected at most ${max_connections_per_address} connections of one address; found more.`
        : `Expected at most ${max_connections} connections; found more. Try again soon.`,
    );
    return false;
  }

  #add(socket: Socket, address: string): void {
    const ends = endsOf(socket);
    const connection: ClientConnection = {
      socket,
      sent: "",
      sentAt: 0,
      active: 0,
      quietSince: monotonic(),
    };
    const leave = this.#count.add(address);
    this.#open.set(ends, connection);
    this.#quiet.add(connection);
    socket.once("close", () => {
      leave();
      this.#open.delete(ends);
      this.#quiet.delete(connection);
    });
  }

  /** A connection that has long been quiet makes room for one that has a request. */
  #closeQuietest(): boolean {
    const [quietest] = this.#quiet;
    if (quietest === undefined || monotonic() - quietest.quietSince < durations.connectionQuiet)
      return false;
    this.#quiet.delete(quietest);
    this.refusals.note("closed_idle");
    quietest.socket.destroy();
    return true;
  }

  /** Told by the HTTP server of a connection on which more requests wait than may. */
  readonly tooManyWait = (): void => this.refusals.note("too_many_waiting");

  /**
   * Closes connections whose client has taken nothing of what waits for it for too long; and while
   * all of them together hold more than they may, the one that has taken nothing for longest.
   */
  #closeSlowReaders(): void {
    const now = performance.now();
    const unread = [];
    let bytes = 0;
    for (const connection of this.#open.values()) {
      const { socket } = connection;
      const sent = `${socket.bytesWritten} ${socket.writableLength}`;
      if (socket.writableLength === 0 || sent !== connection.sent) {
        Object.assign(connection, { sent, sentAt: now });
        if (socket.writableLength === 0) continue;
      }
      bytes += socket.writableLength;
      unread.push(connection);
    }
    for (const { socket, sentAt } of unread.sort((a, b) => a.sentAt - b.sentAt)) {
      if (now - sentAt < LONGEST_UNREAD_MS && bytes <= MOST_UNREAD_BYTES) return;
      bytes -= socket.writableLength;
      this.refusals.note("slow_reader", { address: plainAddress(socket.remoteAddress) });
      socket.destroy();
    }
  }

  #refuse(socket: Socket, message: string): void {
    if (this.options.tls || this.#refused >= MOST_REFUSED) {
      socket.destroy();
      return;
    }
    this.#refused += 1;
    const late = setTimeout(() => socket.destroy(), LONGEST_REFUSAL_MS);
    socket.once("close", () => {
      clearTimeout(late);
      this.#refused -= 1;
    });
    socket.on("error", () => socket.destroy());
    // The bytes that the client has sent are read and dropped: closed with unread data, TCP would
    // take the answer back
    socket.resume();
    socket.end(rawAnswer("overloaded", message));
  }

  /**
   * TLS was not agreed on: the client hears why where it spoke plain HTTP, and the connection ends.
   */
  endHandshake(socket: TLSSocket, error: Error): void {
    const connection = this.#open.get(endsOf(socket))?.socket;
    const code = errno(error);
    const isPlain = code === "ERR_SSL_HTTP_REQUEST";
    if (isPlain && connection?.writable === true)
      connection.write(
        rawAnswer(
          "bad_request",
          "Expected TLS on this port; found plain HTTP. Use an address with https://.",
        ),
      );
    const fault = isPlain ? undefined : nameOfFault(socket, code);
    const address = plainAddress(connection?.remoteAddress);
    if (isPlain) this.refusals.note("not_tls", { address });
    else if (fault !== "ECONNRESET") this.refusals.note("tls_failed", { address, fault });
    socket.destroy();
  }

  /** A request has come, and its connection is not quiet until its answer is through. */
  follow(socket: Socket, response: ServerResponse): void {
    const connection = this.#open.get(endsOf(socket));
    if (connection === undefined) return;
    connection.active += 1;
    this.#quiet.delete(connection);
    response.once("close", () => {
      connection.active -= 1;
      connection.quietSince = monotonic();
      if (connection.active === 0 && !connection.socket.destroyed) this.#quiet.add(connection);
    });
  }

  /**
   * Closes each connection when it has been quiet for a moment; those with a request in work end
   * with its answer.
   */
  async closeQuiet(longestMs: number): Promise<void> {
    await this.#closing(longestMs, () => this.#quiet.size > 0);
  }

  /**
   * Closes each connection when it has been quiet for a moment, and all after the last wait; those
   * on which a body or an answer goes on have the grace time, too.
   */
  async close(lastWaitMs: number, graceMs: number): Promise<void> {
    clearInterval(this.#readerLook);
    const last = monotonic() + lastWaitMs;
    const moves = this.#movementLook();
    await this.#closing(
      Math.max(lastWaitMs, graceMs),
      () => this.#open.size > 0 && (moves() || monotonic() < last),
    );
    for (const { socket } of this.#open.values()) socket.destroy();
  }

  /** @returns looks again, and says whether bytes of a request in work have moved of late */
  #movementLook(): () => boolean {
    const unmoved = (bytes: number) => ({ bytes, movedAt: -Infinity });
    const open = [...this.#open.values()];
    const seen = new Map(open.map((one) => [one, unmoved(bytesOf(one))]));
    return () => {
      const now = monotonic();
      const moving = [...this.#open.values()].map((connection) => {
        const before = seen.get(connection) ?? unmoved(0);
        const bytes = bytesOf(connection);
        const movedAt = bytes === before.bytes ? before.movedAt : now;
        seen.set(connection, { bytes, movedAt });
        return connection.active > 0 && now - movedAt < durations.stoppingPause;
      });
      return moving.includes(true);
    };
  }

  async #closing(longestMs: number, some: () => boolean): Promise<void> {
    const start = monotonic();
    while (some() && monotonic() - start < longestMs) {
      for (const { socket, active, quietSince } of this.#open.values())
        if (active === 0 && monotonic() - Math.max(start, quietSince) >= durations.connectionLinger)
          socket.destroy();
      // What came while this thread stood still is read before anybody is judged
      await new Promise((resolve) => setTimeout(() => setImmediate(resolve), 20));
    }
  }
}
