/**
 * The listener for DICOM: listens for associations of peers that the settings name, and keeps what
 * they send in the spool. An AE title is no proof of who calls; a peer is one by its title and its
 * address, or by its certificate.
 */
import { createServer, type Server, type Socket } from "node:net";
import {
  createServer as createTlsServer,
  type Server as TlsServer,
  type TlsOptions,
} from "node:tls";
import { asRadserveError, type RadserveError } from "../../../base/errors.js";
import { sha256 } from "../../../files/durable-files.js";
import { faultForLog, type Logger } from "../../../base/log.js";
import { Networks, plainAddress } from "../../../base/networks.js";
import {
  serveAssociation,
  VERIFICATION,
  type AcceptorHandlers,
  type Incoming,
} from "../dimse/acceptor.js";
import { Admission, StrangersLog } from "../dimse/admission.js";
import { STATUS } from "../dimse/command.js";
import { MORE_CONNECTIONS } from "../settings.js";
import { ProtocolError, type AssociateRequest, type Rejection } from "../dimse/pdu.js";
import { ConnectionLost, type PduLimits } from "../dimse/pdu-socket.js";
import type { KeptObject, Spool } from "./spool.js";
import { isImageClass } from "../../../images/dicom/image-classes.js";
import { commentOf, isTakenSyntax, statusOf } from "./taken.js";

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

/** By what a series is known here: its UID may come in two studies. */
export const keyOfSeries = (
  of: Pick<KeptObject, "studyInstanceUid" | "seriesInstanceUid">,
): string => `${of.studyInstanceUid}/${of.seriesInstanceUid}`;

/** Counts an object, by its series. */
export function count(all: Map<string, CameOfSeries>, kept: KeptObject): void {
  const { studyInstanceUid, bytes } = kept;
  const key = keyOfSeries(kept);
  const before = all.get(key) ?? { studyInstanceUid, objects: 0, bytes: 0 };
  all.set(key, {
    ...before,
    objects: before.objects + 1,
    bytes: before.bytes + bytes,
  });
}

export interface EndedAssociation {
  peer: string;
  address: string | undefined;
  /** By `keyOfSeries`. */
  series: ReadonlyMap<string, CameOfSeries>;
  ms: number;
}

export interface DicomListenerOptions extends PduLimits {
  aeTitle: string;
  peers: readonly Peer[];
  /** Associations at a time; one more is rejected for now. */
  mostAssociations: number;
  spool: Pick<Spool, "keep">;
  /** Absent where the port speaks without TLS. */
  tls?: TlsOptions | undefined;
  /**
   * Asked before the first object of a series over an association is answered: resolves when the
   * audit says that it comes. @throws RadserveError audit_failed
   */
  coming: (peer: string, studyInstanceUid: string, address: string | undefined) => Promise<void>;
  /** Told of each object that the disk has. */
  kept: (object: KeptObject, peer: string) => void;
  /** Told of each object and association that was refused: a word. */
  refused: (reason: string) => void;
  /** Told when an association is over over which objects came. */
  ended: (visit: EndedAssociation) => void;
  log: Logger;
}

/** Rejections (PS3.8 table 9-21): result, source, reason. */
const REJECTIONS = {
  callingTitle: { result: 1, source: 1, reason: 3 },
  calledTitle: { result: 1, source: 1, reason: 7 },
  localLimit: { result: 2, source: 3, reason: 2 },
} as const satisfies Record<string, Rejection>;

export class DicomListener {
  readonly #peers: readonly (Peer & { from: Networks | undefined })[];
  /** Those with an association, by the names of their peers. */
  readonly #open = new Map<Socket, string>();
  readonly #admission: Admission;
  readonly #strangers: StrangersLog;
  readonly server: Server | TlsServer;

  constructor(private readonly options: DicomListenerOptions) {
    this.#peers = options.peers.map((peer) => ({
      ...peer,
      from: peer.networks === undefined ? undefined : new Networks(peer.networks),
    }));
    this.#admission = new Admission(options.peers, MORE_CONNECTIONS);
    this.#strangers = new StrangersLog(options.log);
    const { tls } = options;
    this.server =
      tls === undefined
        ? createServer((connection) => this.#admit(connection) && void this.serve(connection))
        : createTlsServer(tls, (connection) => void this.serve(connection));
    if (tls !== undefined)
      this.server.on("connection", (connection: Socket) => this.#admit(connection));
    this.server.on("tlsClientError", () => {
      options.refused("tls");
      this.#strangers.note("tls");
    });
  }

  get associations(): number {
    return this.#open.size;
  }

  #admit(connection: Socket): boolean {
    const { remoteAddress } = connection;
    if (this.#admission.admit(connection)) return true;
    this.options.refused("network");
    this.#strangers.note("network", { address: plainAddress(remoteAddress) });
    return false;
  }

  /** Serves one connection, whose TLS has been done. */
  async serve(connection: Socket): Promise<void> {
    const began = performance.now();
    const address = plainAddress(connection.remoteAddress);
    const visit = new Visit(this.options, this.#rejection(connection, address), address);
    try {
      this.#tell(visit, await serveAssociation(connection, visit, this.options), address);
    } catch (error) {
      this.options.log.error({ ...visit.told, fault: faultForLog(error) }, "association failed");
    } finally {
      this.#open.delete(connection);
      const ms = Math.round(performance.now() - began);
      if (visit.series.size > 0)
        this.options.ended({ peer: visit.told.peer, address, series: visit.series, ms });
    }
  }

  #tell(visit: Visit, fault: Error | undefined, address: string | undefined): void {
    const { told } = visit;
    const why = fault === undefined ? {} : { why: fault.message };
    if (told.peer === NOBODY)
      this.#strangers.note(
        Object.keys(told.refused)[0] ??
          (fault === undefined || fault instanceof ConnectionLost ? "silent" : "protocol"),
        { address, ...why },
      );
    else
      this.options.log[fault === undefined ? "info" : "warn"](
        { ...told, address, ...why },
        "association ended",
      );
  }

  #rejection(connection: Socket, address = ""): (request: AssociateRequest) => Rejection | string {
    return ({ calledAe, callingAe }) => {
      const peer = this.#peers.find(
        ({ aeTitle, from }) => aeTitle === callingAe && (from === undefined || from.has(address)),
      );
      if (calledAe !== this.options.aeTitle) return REJECTIONS.calledTitle;
      if (peer === undefined) return REJECTIONS.callingTitle;
      if (this.#isFullFor(peer.name)) return REJECTIONS.localLimit;
      this.#admission.heard(connection);
      this.#open.set(connection, peer.name);
      return peer.name;
    };
  }

  /**
   * A peer that has an association leaves one to each peer that has none, up to half of all: nobody
   * takes all.
   */
  #isFullFor(peer: string): boolean {
    const { mostAssociations: most } = this.options;
    const holders = new Set(this.#open.values());
    const others = this.#peers.filter(({ name }) => name !== peer && !holders.has(name)).length;
    const left = holders.has(peer) ? Math.min(others, Math.floor(most / 2)) : 0;
    return this.#open.size + left >= most;
  }

  /**
   * Takes no more connections, and ends those that are open: what was not answered is sent again.
   */
  close(): void {
    this.server.close();
    for (const connection of [...this.#open.keys(), ...this.#admission.silent])
      connection.destroy();
  }
}

/** A peer that the settings do not name. */
const NOBODY = "unknown";

/** One association, and what is told of it when it has ended. */
class Visit implements AcceptorHandlers {
  readonly told = { peer: NOBODY, objects: 0, bytes: 0, refused: {} as Record<string, number> };
  readonly series = new Map<string, CameOfSeries>();
  /** Refusals that have a line of the log. */
  readonly #lines = new Set<string>();

  /** @param admit gives the peer's name, or why it is rejected */
  constructor(
    private readonly options: DicomListenerOptions,
    private readonly admit: (request: AssociateRequest) => Rejection | string,
    private readonly address: string | undefined,
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
      const { peer } = this.told;
      const kept = await this.options.spool.keep(peer, {
        ...object,
        appears: async (of) => {
          if (!this.series.has(keyOfSeries(of)))
            await this.options.coming(peer, of.studyInstanceUid, this.address);
        },
      });
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
      const comment = commentOf(refusal);
      this.#tellRefusal(object, refusal);
      return { status: statusOf(refusal), comment };
    }
  }

  /** One line for each attribute and code of an association, however many objects it has. */
  #tellRefusal(object: Incoming, { code: error, details = {} }: RadserveError): void {
    const { attribute, found } = details;
    const key = `${error} ${String(attribute)}`;
    if (attribute === undefined || this.#lines.has(key)) return;
    this.#lines.add(key);
    const { peer } = this.told;
    this.options.log.warn(
      { peer, error, attribute, found, object: logNameOf(object) },
      "an object was refused; others of this association for the same are counted at its end",
    );
  }

  #refuse(reason: string): void {
    this.told.refused[reason] = (this.told.refused[reason] ?? 0) + 1;
    this.options.refused(reason);
  }
}

/** By which the log tells objects apart, without their UIDs. */
const logNameOf = ({ sopInstanceUid }: Incoming): string => sha256(sopInstanceUid).slice(0, 16);
