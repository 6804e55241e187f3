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
import {
  asRadserveError,
  errors,
  type ErrorCode,
  type RadserveError,
} from "../../../base/errors.js";
import { sha256 } from "../../../files/durable-files.js";
import { faultForLog, type Logger } from "../../../base/log.js";
import { plainAddress, type Networks } from "../../../base/networks.js";
import {
  serveAssociation,
  VERIFICATION,
  type AcceptorHandlers,
  type Incoming,
} from "../dimse/acceptor.js";
import { Admission, StrangersLog, withNetworks } from "../dimse/admission.js";
import { STATUS } from "../dimse/command.js";
import { MORE_CONNECTIONS } from "../settings.js";
import { ProtocolError, type AssociateRequest, type Rejection } from "../dimse/pdu.js";
import { ConnectionLost, PeerIdle, type PduLimits } from "../dimse/pdu-socket.js";
import type { Reception, Transfer } from "./reception.js";
import type { RefusedSenders } from "./refused-senders.js";
import { keyOfPlace, placeOf, type KeptObject, type Spool } from "./spool.js";
import { sopClassName } from "../../../images/dicom/dictionary.js";
import { commentOf, isTakenClass, isTakenSyntax, statusOf } from "./taken.js";

export interface Peer {
  /** The name in the settings. */
  name: string;
  aeTitle: string;
  /** Where it may call from; from anywhere if undefined. */
  networks: readonly string[] | undefined;
  /** It ends associations without a release. */
  aborts?: boolean;
  /** It may send objects of private classes. */
  privateClasses?: boolean;
}

/** What came of one series over one association. */
export interface CameOfSeries {
  studyInstanceUid: string;
  objects: number;
  bytes: number;
}

/** Counts an object, by its series. */
export function count(all: Map<string, CameOfSeries>, peer: string, kept: KeptObject): void {
  const { studyInstanceUid, bytes } = kept;
  const key = keyOfPlace(placeOf(peer, kept));
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
  /** By `keyOfPlace`. */
  series: ReadonlyMap<string, CameOfSeries>;
  ms: number;
}

export interface DicomListenerOptions extends PduLimits {
  /** Of this server, the first of which is the usual one. */
  aeTitles: readonly string[];
  peers: readonly Peer[];
  /** Whether rules ask which title was called: it is noted with each series then. */
  notesTitle: () => boolean;
  /** Associations at a time; one more is rejected for now. */
  mostAssociations: number;
  spool: Pick<Spool, "keep">;
  reception: Pick<Reception, "open">;
  /** Absent where the port speaks without TLS. */
  tls?: TlsOptions | undefined;
  /**
   * Asked before the first object of a series over an association is answered: resolves when the
   * audit says that it comes. @throws RadserveError audit_failed
   */
  coming: (peer: string, studyInstanceUid: string, address: string | undefined) => Promise<void>;
  /** Told of each object that the disk has. */
  kept: (object: KeptObject, peer: string) => void;
  /** Told of each object and association that was refused: a word, and whose it is if known. */
  refused: (reason: string, peer?: string) => void;
  /** Told of each presentation context that was refused: its class, and why. */
  contextRefused: (peer: string, sopClassUid: string, why: ContextRefusal) => void;
  /** Told of whoever was refused by name: titles, or what is wrong with a certificate. */
  callerRefused: (caller: RefusedCaller) => void;
  /** Told of whoever is refused as a whole, and of who is not any more. */
  senders: Pick<RefusedSenders, "note" | "admitted" | "mended">;
  /** Told when an association is over over which objects came. */
  ended: (visit: EndedAssociation) => void;
  log: Logger;
}

/** Why a presentation context was refused. */
export type ContextRefusal = "sop_class" | "transfer_syntax";

/** Who was refused before an association, as far as it says so. */
export interface RefusedCaller {
  why: "calling_title" | "called_title" | "certificate";
  /** The title that is not known, or the code of what is wrong with the certificate. */
  name: string;
}

/** A dead peer is known by the probes of TCP after so long, and some seconds. */
const KEEP_ALIVE_MS = 15_000;

/** Rejections (PS3.8 table 9-21): result, source, reason. */
const REJECTIONS = {
  callingTitle: { result: 1, source: 1, reason: 3 },
  calledTitle: { result: 1, source: 1, reason: 7 },
  localLimit: { result: 2, source: 3, reason: 2 },
} as const satisfies Record<string, Rejection>;

export class DicomListener {
  #peers: readonly (Peer & { from: Networks | undefined })[];
  #titles: readonly string[];
  /** Those with an association, by the names of their peers. */
  readonly #open = new Map<Socket, string>();
  readonly #admission: Admission;
  readonly #strangers: StrangersLog;
  #isClosed = false;
  readonly server: Server | TlsServer;

  constructor(private readonly options: DicomListenerOptions) {
    this.#peers = options.peers.map(withNetworks);
    this.#titles = options.aeTitles;
    this.#admission = new Admission(options.peers, MORE_CONNECTIONS);
    this.#strangers = new StrangersLog(options.log);
    const { tls } = options;
    this.server =
      tls === undefined
        ? createServer((connection) => this.#admit(connection) && void this.serve(connection))
        : createTlsServer(tls, (connection) => void this.serve(connection));
    if (tls !== undefined)
      this.server.on("connection", (connection: Socket) => this.#admit(connection));
    this.server.on("tlsClientError", (error: NodeJS.ErrnoException, connection: Socket) => {
      options.refused("tls");
      const address = plainAddress(connection.remoteAddress);
      const code = error.code ?? "no certificate";
      options.callerRefused({ why: "certificate", name: code });
      this.#strangers.note("tls", { address, certificate: code });
      // Whoever only looks whether the port is open has none either
      if (code !== "ECONNRESET")
        options.senders.note({ why: "certificate", address, certificate: code });
    });
  }

  /** Who may call, and which titles, from now on. */
  reload(peers: readonly Peer[], aeTitles: readonly string[]): void {
    this.#peers = peers.map(withNetworks);
    this.#titles = aeTitles;
    this.#admission.reload(peers);
  }

  get associations(): number {
    return this.#open.size;
  }

  #admit(connection: Socket): boolean {
    const address = plainAddress(connection.remoteAddress);
    if (this.#admission.admit(connection)) return true;
    this.options.refused("network");
    this.#strangers.note("network", { address });
    this.options.senders.note({ why: "network", address });
    return false;
  }

  /** Serves one connection, whose TLS has been done. */
  async serve(connection: Socket): Promise<void> {
    const began = performance.now();
    const address = plainAddress(connection.remoteAddress);
    connection.setKeepAlive(true, KEEP_ALIVE_MS);
    const visit = new Visit(
      { ...this.options, aeTitles: this.#titles },
      this.#admitting(connection, address),
      address,
    );
    let fault: unknown;
    try {
      const ended = await serveAssociation(connection, visit, this.options);
      fault = ended;
      this.#tell(visit, ended, address);
    } catch (error) {
      fault = error;
      this.options.log.error({ ...visit.told, fault: faultForLog(error) }, "association failed");
    }
    this.#open.delete(connection);
    const ms = Math.round(performance.now() - began);
    const { told, series } = visit;
    visit.tellWhetherRefused();
    if (series.size > 0) this.options.ended({ peer: told.peer, address, series, ms });
    await visit.end(fault, this.#isClosed).catch((error: unknown) => {
      const { peer } = told;
      this.options.log.error({ peer, fault: faultForLog(error) }, "its end could not be noted");
    });
  }

  #tell(visit: Visit, fault: Error | undefined, address: string | undefined): void {
    const { told } = visit;
    const why = fault === undefined ? {} : { why: fault.message };
    if (told.peer === NOBODY)
      this.#strangers.note(
        Object.keys(told.refused)[0] ??
          (fault === undefined || fault instanceof ConnectionLost ? "silent" : "protocol"),
        { address, ...visit.titles, ...why },
      );
    else
      this.options.log[fault === undefined ? "info" : "warn"](
        { ...told, address, ...why },
        "association ended",
      );
  }

  #admitting(connection: Socket, address = ""): (request: AssociateRequest) => Rejection | Peer {
    return ({ calledAe, callingAe }) => {
      const named = this.#peers.filter(({ aeTitle }) => aeTitle === callingAe);
      const peer = named.find(({ from }) => from === undefined || from.has(address));
      const { senders, callerRefused } = this.options;
      const titles = { address, calling: shownTitle(callingAe), called: shownTitle(calledAe) };
      if (!this.#titles.includes(calledAe)) {
        callerRefused({ why: "called_title", name: calledAe });
        senders.note({ why: "called_title", peer: peer?.name, ...titles });
        return REJECTIONS.calledTitle;
      }
      if (peer === undefined) {
        callerRefused({ why: "calling_title", name: callingAe });
        const [elsewhere] = named;
        const why = elsewhere === undefined ? "calling_title" : "elsewhere";
        senders.note({ why, peer: elsewhere?.name, ...titles });
        return REJECTIONS.callingTitle;
      }
      senders.admitted(address, titles.calling);
      if (this.#isFullFor(peer.name)) return REJECTIONS.localLimit;
      this.#admission.heard(connection);
      this.#open.set(connection, peer.name);
      return peer;
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
    this.#isClosed = true;
    this.server.close();
    for (const connection of [...this.#open.keys(), ...this.#admission.silent])
      connection.destroy();
  }
}

/** Refusals that say nothing of the sender, or have a condition of their own. */
const TOLD_ELSEWHERE = new Set<string>([
  "disk_full",
  "share_unavailable",
  "spool_share_full",
  "audit_failed",
  "file_exists",
  "internal",
] satisfies ErrorCode[]);

/** A peer that the settings do not name. */
const NOBODY = "unknown";

/** One association, and what is told of it when it has ended. */
class Visit implements AcceptorHandlers {
  readonly told = {
    peer: NOBODY,
    objects: 0,
    bytes: 0,
    refused: {} as Record<string, number>,
    /** Names of SOP classes, by why their presentation contexts were refused. */
    contexts: undefined as Partial<Record<ContextRefusal, string[]>> | undefined,
  };
  readonly series = new Map<string, CameOfSeries>();
  /** Of whoever is no peer. */
  titles: { calling?: string; called?: string } = {};
  #peer: Peer | undefined;
  #transfer: Transfer | undefined;
  /** The title that was called, where rules ask for it. */
  #called: string | undefined;
  /** Refusals that have a line of the log. */
  readonly #lines = new Set<string>();

  /** @param admit gives the peer, or why it is rejected */
  constructor(
    private readonly options: DicomListenerOptions,
    private readonly admit: (request: AssociateRequest) => Rejection | Peer,
    private readonly address: string | undefined,
  ) {}

  rejection(request: AssociateRequest): Rejection | undefined {
    const { calledAe, callingAe } = request;
    const admitted = this.admit(request);
    if ("source" in admitted) {
      this.#refuse(`rejected_${admitted.source}.${admitted.reason}`);
      this.titles = { calling: shownTitle(callingAe), called: shownTitle(calledAe) };
      return admitted;
    }
    this.told.peer = admitted.name;
    this.#peer = admitted;
    this.#transfer = this.options.reception.open(admitted.name);
    if (this.options.notesTitle()) this.#called = calledAe;
    return undefined;
  }

  taken(sopClassUid: string, proposed: readonly string[]): readonly string[] | undefined {
    if (sopClassUid === VERIFICATION) return proposed;
    if (!isTakenClass(sopClassUid, this.#peer?.privateClasses)) {
      this.#refuseContext(sopClassUid, "sop_class");
      return undefined;
    }
    const taken = proposed.filter(isTakenSyntax);
    if (taken.length === 0) this.#refuseContext(sopClassUid, "transfer_syntax");
    return taken;
  }

  /** The peer may stop at it: whoever looks at this side has to see why. */
  #refuseContext(sopClassUid: string, why: ContextRefusal): void {
    const known = (this.told.contexts ??= {});
    const names = (known[why] ??= []);
    const name = sopClassName(sopClassUid);
    if (names.includes(name)) return;
    names.push(name);
    this.options.contextRefused(this.told.peer, sopClassUid, why);
  }

  /**
   * @param fault why it ended other than by a release
   * @param isStopped this side has ended all associations: nobody knows whether the peer was done
   */
  async end(fault: unknown, isStopped: boolean): Promise<void> {
    const aborts = this.#peer?.aborts === true && !isStopped;
    const wasAborted = fault instanceof ConnectionLost && aborts;
    const isDone = fault === undefined || wasAborted;
    const transfer = this.#transfer;
    this.#transfer = undefined;
    await transfer?.end(isDone || fault instanceof PeerIdle, isDone);
  }

  /** A peer that came to send and of which nothing is kept does not notice it by itself. */
  tellWhetherRefused(): void {
    const { peer, objects, refused, contexts } = this.told;
    if (peer === NOBODY) return;
    const isRefused =
      contexts !== undefined || Object.keys(refused).some((code) => !TOLD_ELSEWHERE.has(code));
    if (objects === 0 && isRefused) this.options.senders.note({ why: "nothing_kept", peer });
  }

  async store(object: Incoming): Promise<{ status: number; comment?: string }> {
    const { peer } = this.told;
    // The context of C-ECHO is accepted, and is for no objects
    if (!isTakenClass(object.sopClassUid, this.#peer?.privateClasses)) {
      this.#refuse("unsupported_format");
      return {
        status: STATUS.sopClassNotSupported,
        comment: "The SOP class is not one for storage.",
      };
    }
    const transfer = this.#transfer;
    transfer?.begins();
    try {
      const kept = await this.options.spool.keep(peer, {
        ...object,
        named: (place) => transfer?.named(place),
        appears: async (place, study) => {
          const isKnown = this.series.has(keyOfPlace(place));
          const audited = isKnown ? undefined : this.options.coming(peer, study, this.address);
          await Promise.all([audited, transfer?.brings(place, this.#called)]);
        },
      });
      if (this.told.objects === 0) this.options.senders.mended("nothing_kept", peer);
      this.told.objects += 1;
      this.told.bytes += kept.bytes;
      count(this.series, peer, kept);
      transfer?.kept(placeOf(peer, kept), kept.changed);
      this.options.kept(kept, this.told.peer);
      return { status: STATUS.success };
    } catch (error) {
      await transfer?.notKept(object.sopInstanceUid, error);
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

  async ofOtherClass(object: Incoming): Promise<void> {
    const { sopClassUid, sopInstanceUid } = object;
    const refusal = errors.unsupported_format(
      "Expected an object of the SOP class of its presentation context; found another class.",
      { attribute: "SOPClassUID (0008,0016)", found: sopClassName(sopClassUid.slice(0, 64)) },
    );
    // Its head is not read: it is missing of the series that came last
    this.#transfer?.begins();
    const isTaken = isTakenClass(sopClassUid, this.#peer?.privateClasses);
    await this.#transfer?.notKept(isTaken ? sopInstanceUid : undefined, refusal);
    this.#refuse(refusal.code);
    this.#tellRefusal(object, refusal);
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
    const { peer, refused } = this.told;
    refused[reason] = (refused[reason] ?? 0) + 1;
    this.options.refused(reason, peer === NOBODY ? undefined : peer);
  }
}

/** What a stranger says: in the log, and no longer than a title is. */
const shownTitle = (title: string): string => title.replace(/[^\x20-\x7e]/g, "?").slice(0, 16);

/** By which the log tells objects apart, without their UIDs. */
const logNameOf = ({ sopInstanceUid }: Incoming): string => sha256(sopInstanceUid).slice(0, 16);
