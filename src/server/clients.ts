/**
 * The clients of a serving process: their connections, which the supervisor hands over,
 * certificates where it speaks TLS, and the HTTP server that answers them.
 */
import type http from "node:http";
import type https from "node:https";
import type { Socket } from "node:net";
import type { Logger } from "../base/log.js";
import type { Config } from "../config.js";
import { WatchedCertificates } from "../files/certificates.js";
import { ClientAddresses } from "./client-address.js";
import { Connections } from "./connections.js";
import { createServer } from "./http-server.js";
import type { LivingKeyring } from "./keys.js";
import type { Route } from "./route.js";
import type { Services } from "./services.js";

/** How long answers may take to be written at the end. */
const LAST_WAIT_MS = 2_000;

/** To ask for its class would load all of TLS. */
const speaksTls = (server: http.Server | https.Server): server is https.Server =>
  "setSecureContext" in server;

export class Clients {
  #server: http.Server | https.Server | undefined;
  readonly #addresses: ClientAddresses;
  readonly connections: Connections;

  private constructor(
    config: Config,
    /** Undefined where it speaks plain HTTP. */
    readonly certificates: WatchedCertificates | undefined,
    private readonly log: Logger,
  ) {
    const addresses = new ClientAddresses(config.trusted_proxies);
    this.#addresses = addresses;
    const tls = certificates !== undefined;
    this.connections = new Connections({ ...config, addresses, tls, log });
  }

  /** @throws ConfigError where certificates cannot be used */
  static async open(config: Config, log: Logger): Promise<Clients> {
    return new Clients(config, await WatchedCertificates.open(config, log), log);
  }

  /** From now on there is an answer for who connects. */
  async serve(
    routes: readonly Route[],
    services: Services & { keyring: LivingKeyring },
  ): Promise<void> {
    const { connections, certificates, log } = this;
    const server = createServer({
      ...services,
      routes,
      addresses: this.#addresses,
      connections,
      log,
      tls: certificates?.options,
    });
    this.#server = server;
    // Without listen() node starts no watch over slow requests and idle connections; this event
    // starts it.
    server.emit("listening");
    if (!speaksTls(server)) return;
    server.on("tlsClientError", (error, socket) => connections.endHandshake(socket, error));
    await certificates?.watch(server);
  }

  /** A connection from the supervisor; undefined where the client had gone before it arrived. */
  take(socket: Socket | undefined): void {
    if (socket === undefined || !this.connections.admit(socket)) return;
    this.#server?.emit("connection", socket);
    socket.resume();
  }

  /** Reads the certificates again. */
  reload(): void {
    if (this.#server !== undefined && speaksTls(this.#server))
      void this.certificates?.reload(this.#server);
  }

  /** Ends the connections on which nothing is; what still comes on the others is answered. */
  async leaveQuiet(): Promise<void> {
    await this.connections.closeQuiet(LAST_WAIT_MS);
  }

  /**
   * Ends the connections, once their answers are written.
   * @param graceMs what is left of the grace time, for requests that still come
   */
  async close(graceMs: number): Promise<void> {
    await this.connections.close(LAST_WAIT_MS, graceMs);
    this.certificates?.close();
  }
}
