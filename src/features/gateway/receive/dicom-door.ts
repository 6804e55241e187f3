/**
 * The door for DICOM: listens for associations of peers that the settings name, and keeps what they
 * send in the spool. An AE title is no proof of who calls; a peer is one by its title and its
 * address, or by its certificate.
 */
import { createServer, type Server, type Socket } from "node:net";
import {
  createServer as createTlsServer,
  type Server as TlsServer,
  type TlsOptions,
} from "node:tls";
import { asRadserveError } from "../../../base/errors.js";
import { faultForLog, type Logger } from "../../../base/log.js";
import { endsOf, Networks, plainAddress } from "../../../base/networks.js";
import {
  serveAssociation,
  VERIFICATION,
  type AcceptorHandlers,
  type Incoming,
} from "../dimse/acceptor.js";
import { STATUS } from "../dimse/command.js";
import { MORE_CONNECTIONS } from "../settings.js";
import { ProtocolError, type AssociateRequest, type Rejection } from "../dimse/pdu.js";
import { ConnectionLost, type PduLimits } from "../dimse/pdu-socket.js";
import type { Kept, Spool } from "./spool.js";
import { isImageClass, isTakenSyntax, statusOf } from "./taken.js";

export interface Peer {
  /** The name in the settings. */
  name: string;
  aeTitle: string;
  /** Where it may call from; from anywhere if undefined. */
  networks: readonly string[] | undefined;
}

/** What came of one series over one association. */
export interface CameOfSeries {
  studyInstanceUid: string;
  objects: number;
  bytes: number;
}

/** Counts an object, by its SeriesInstanceUID. */
export function count(all: Map<string, CameOfSeries>, kept: Kept): void {
  const { studyInstanceUid, seriesInstanceUid, bytes } = kept;
  const before = all.get(seriesInstanceUid) ?? { studyInstanceUid, objects: 0, bytes: 0 };
  all.set(seriesInstanceUid, {
    ...before,
    objects: before.objects + 1,
    bytes: before.bytes + bytes,
  });
}

export interface Ended {
  peer: string;
  address: string | undefined;
  /** By SeriesInstanceUID. */
  series: ReadonlyMap<string, CameOfSeries>;
  ms: number;
}

export interface DicomDoorOptions extends PduLimits {
  aeTitle: string;
  peers: readonly Peer[];
  /** Associations at a time; one more is rejected for now. */
  mostAssociations: number;
  spool: Pick<Spool, "keep">;
  /** Absent where the port speaks without TLS. */
  tls?: TlsOptions | undefined;
  /** Told of each object that the disk has. */
  kept: (object: Kept, peer: string) => void;
  /** Told of each object and association that was refused: a word. */
  refused: (reason: string) => void;
  /** Told when an association is over over which objects came. */
  ended: (visit: Ended) => void;
  log: Logger;
}

/** Rejections (PS3.8 table 9-21): result, source, reason. */
const REJECTIONS = {
  callingTitle: { result: 1, source: 1, reason: 3 },
  calledTitle: { result: 1, source: 1, reason: 7 },
  localLimit: { result: 2, source: 3, reason: 2 },
} as const satisfies Record<string, Rejection>;

export class DicomDoor {
  readonly #peers: readonly (Peer & { from: Networks | undefined })[];
  /** Those with an association. */
  readonly #open = new Set<Socket>();
  /** Those without one, by their ends; the one that came first is the first. */
  readonly #silent = new Map<string, Socket>();
  readonly server: Server | TlsServer;

  constructor(private readonly options: DicomDoorOptions) {
    this.#peers = options.peers.map((peer) => ({
      ...peer,
      from: peer.networks === undefined ? undefined : new Networks(peer.networks),
    }));
    const serve = (connection: Socket) => void this.serve(connection);
    this.server =
      options.tls === undefined ? createServer(serve) : createTlsServer(options.tls, serve);
    this.server.on("connection", (connection: Socket) => this.#admit(connection));
    this.server.on("tlsClientError", () => options.refused("tls"));
  }

  get associations(): number {
    return this.#open.size;
  }

  /**
   * Counts a connection before TLS is done. Whoever has asked for nothing makes room for others, so
   * that it keeps no peer out.
   */
  #admit(connection: Socket): void {
    const ends = endsOf(connection);
    this.#silent.set(ends, connection);
    connection.once("close", () => this.#silent.delete(ends));
    const [first] = this.#silent.values();
    if (this.#silent.size > MORE_CONNECTIONS) first?.destroy();
  }

  /** Serves one connection, whose TLS has been done. */
  async serve(connection: Socket): Promise<void> {
    const began = performance.now();
    const address = plainAddress(connection.remoteAddress);
    const visit = new Visit(this.options, this.#rejection(connection, address));
    try {
      const fault = await serveAssociation(connection, visit, this.options);
      const told = {
        ...visit.told,
        address,
        ...(fault === undefined ? {} : { why: fault.message }),
      };
      this.options.log[fault === undefined ? "info" : "warn"](told, "association ended");
    } catch (error) {
      this.options.log.error({ ...visit.told, fault: faultForLog(error) }, "association failed");
    } finally {
      this.#open.delete(connection);
      const ms = Math.round(performance.now() - began);
      if (visit.series.size > 0)
        this.options.ended({ peer: visit.told.peer, address, series: visit.series, ms });
    }
  }

  #rejection(connection: Socket, address = ""): (request: AssociateRequest) => Rejection | string {
    const ends = endsOf(connection);
    return ({ calledAe, callingAe }) => {
      if (this.#open.size >= this.options.mostAssociations) return REJECTIONS.localLimit;
      if (calledAe !== this.options.aeTitle) return REJECTIONS.calledTitle;
      const peer = this.#peers.find(
        ({ aeTitle, from }) => aeTitle === callingAe && (from === undefined || from.has(address)),
      );
      if (peer === undefined) return REJECTIONS.callingTitle;
      this.#silent.delete(ends);
      this.#open.add(connection);
      return peer.name;
    };
  }

  /**
   * Takes no more connections, and ends those that are open: what was not answered is sent again.
   */
  close(): void {
    this.server.close();
    for (const connection of [...this.#open, ...this.#silent.values()]) connection.destroy();
  }
}

/** One association, and what is told of it when it has ended. */
class Visit implements AcceptorHandlers {
  readonly told = { peer: "unknown", objects: 0, bytes: 0, refused: {} as Record<string, number> };
  readonly series = new Map<string, CameOfSeries>();

  /** @param admit gives the peer's name, or why it is rejected */
  constructor(
    private readonly options: DicomDoorOptions,
    private readonly admit: (request: AssociateRequest) => Rejection | string,
  ) {}

  rejection(request: AssociateRequest): Rejection | undefined {
    const admitted = this.admit(request);
    if (typeof admitted !== "string") {
      this.#refuse(`rejected_${admitted.source}.${admitted.reason}`);
      return admitted;
    }
    this.told.peer = admitted;
    return undefined;
  }

  taken(sopClassUid: string, proposed: readonly string[]): readonly string[] | undefined {
    if (sopClassUid === VERIFICATION) return proposed;
    return isImageClass(sopClassUid) ? proposed.filter(isTakenSyntax) : undefined;
  }

  async store(object: Incoming): Promise<{ status: number; comment?: string }> {
    try {
      const kept = await this.options.spool.keep(this.told.peer, object);
      this.told.objects += 1;
      this.told.bytes += kept.bytes;
      count(this.series, kept);
      this.options.kept(kept, this.told.peer);
      return { status: STATUS.success };
    } catch (error) {
      // Of the connection: no answer can be given
      if (error instanceof ConnectionLost || error instanceof ProtocolError) throw error;
      const refusal = asRadserveError(error);
      if (refusal.code === "internal")
        this.options.log.error(
          { peer: this.told.peer, fault: faultForLog(error) },
          "an object could not be kept",
        );
      this.#refuse(refusal.code);
      return { status: statusOf(refusal), comment: refusal.code };
    }
  }

  #refuse(reason: string): void {
    this.told.refused[reason] = (this.told.refused[reason] ?? 0) + 1;
    this.options.refused(reason);
  }
}
