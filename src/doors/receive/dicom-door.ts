/**
 * The door for DICOM: listens for associations of peers that the settings name, and keeps what they send in the spool. An
 * AE title is no proof of who calls; a peer is one by its title and its address, or by its certificate.
 */
import { createServer, type Server, type Socket } from "node:net";
import { RadserveError, type ErrorCode } from "../../base/errors.js";
import { faultForLog, type Logger } from "../../base/log.js";
import { Networks, plainAddress } from "../../base/networks.js";
import { decodable, DEFLATED_EXPLICIT_VR_LITTLE_ENDIAN } from "../../images/dicom/transfer-syntax.js";
import { serveAssociation, VERIFICATION, type AcceptorHandlers, type Incoming } from "../dimse/acceptor.js";
import { STATUS } from "../dimse/command.js";
import type { AssociateRequest, Rejection } from "../dimse/pdu.js";
import type { PduLimits } from "../dimse/pdu-socket.js";
import type { Kept, Spool } from "./spool.js";

export interface Peer {
  /** The name in the settings. */
  name: string;
  aeTitle: string;
  /** Where it may call from; from anywhere if undefined. */
  networks: readonly string[] | undefined;
}

export interface DicomDoorOptions extends PduLimits {
  aeTitle: string;
  peers: readonly Peer[];
  /** Associations at a time; one more is rejected for now. */
  mostAssociations: number;
  spool: Pick<Spool, "keep">;
  /** Told of each object that the disk has. */
  kept: (object: Kept, peer: string) => void;
  log: Logger;
}

/** Rejections (PS3.8 table 9-21): result, source, reason. */
const REJECTIONS = {
  callingTitle: { result: 1, source: 1, reason: 3 },
  calledTitle: { result: 1, source: 1, reason: 7 },
  localLimit: { result: 2, source: 3, reason: 2 },
} as const satisfies Record<string, Rejection>;

/** Status of a C-STORE for each error that the spool gives; any other is a processing failure. */
const STATUS_OF: Partial<Record<ErrorCode, number>> = {
  disk_full: STATUS.outOfResources,
  body_too_large: STATUS.outOfResources,
  file_exists: STATUS.duplicateInstance,
  bad_request: STATUS.dataSetDoesNotMatch,
  corrupt_image: STATUS.cannotUnderstand,
  truncated_image: STATUS.cannotUnderstand,
  unsupported_transfer_syntax: STATUS.cannotUnderstand,
  unsupported_format: STATUS.cannotUnderstand,
};

/** A deflated data set names its study and series in its deflated part; nobody sends images so. */
const SYNTAXES = new Set(
  decodable()
    .map(({ uid }) => uid)
    .filter((uid) => uid !== DEFLATED_EXPLICIT_VR_LITTLE_ENDIAN),
);

const STORAGE = "1.2.840.10008.5.1.4.1.1.";
/** Storage SOP classes of images (PS3.4 table B.5-1), by what follows their common beginning. */
const OF_IMAGES =
  /^(?:1(?:\.[123](?:\.1)?)?|2(?:\.[12])?|3\.1|4(?:\.[134])?|6\.[12]|7(?:\.[1-4])?|12\.[12](?:\.1)?|13\.1\.[1-5]|14\.[12]|20|77\.1(?:\.\d+)+|128(?:\.1)?|130|481\.1)$/;

export class DicomDoor {
  readonly #options: DicomDoorOptions;
  readonly #peers: readonly (Peer & { from: Networks | undefined })[];
  readonly #open = new Set<Socket>();
  readonly server: Server;

  constructor(options: DicomDoorOptions) {
    this.#options = options;
    this.#peers = options.peers.map((peer) => ({
      ...peer,
      from: peer.networks === undefined ? undefined : new Networks(peer.networks),
    }));
    this.server = createServer((connection) => void this.serve(connection));
  }

  get associations(): number {
    return this.#open.size;
  }

  /** Serves one connection, whose TLS has been done. */
  async serve(connection: Socket): Promise<void> {
    const began = performance.now();
    const full = this.#open.size >= this.#options.mostAssociations;
    this.#open.add(connection);
    const visit = new Visit(this.#options, full ? () => REJECTIONS.localLimit : this.#rejection(connection));
    try {
      const fault = await serveAssociation(connection, visit, this.#options);
      const ms = Math.round(performance.now() - began);
      const told = { ...visit.told, ms, ...(fault === undefined ? {} : { why: fault.message }) };
      this.#options.log[fault === undefined ? "info" : "warn"](told, "association ended");
    } catch (error) {
      this.#options.log.error({ ...visit.told, fault: faultForLog(error) }, "association failed");
    } finally {
      this.#open.delete(connection);
    }
  }

  #rejection(connection: Socket): (request: AssociateRequest) => Rejection | string {
    const address = plainAddress(connection.remoteAddress) ?? "";
    return ({ calledAe, callingAe }) => {
      if (calledAe !== this.#options.aeTitle) return REJECTIONS.calledTitle;
      const peer = this.#peers.find(
        ({ aeTitle, from }) => aeTitle === callingAe && (from === undefined || from.has(address)),
      );
      return peer?.name ?? REJECTIONS.callingTitle;
    };
  }

  /** Takes no more connections, and ends those that are open: what was not answered is sent again. */
  close(): void {
    this.server.close();
    for (const connection of this.#open) connection.destroy();
  }
}

const isImage = (uid: string): boolean =>
  uid.startsWith(STORAGE) && OF_IMAGES.test(uid.slice(STORAGE.length));

/** One association, and what is told of it when it has ended. */
class Visit implements AcceptorHandlers {
  readonly told = { peer: "unknown", objects: 0, bytes: 0, refused: {} as Record<string, number> };
  readonly #options: DicomDoorOptions;
  readonly #admit: (request: AssociateRequest) => Rejection | string;

  /** @param admit gives the peer's name, or why it is rejected */
  constructor(options: DicomDoorOptions, admit: (request: AssociateRequest) => Rejection | string) {
    this.#options = options;
    this.#admit = admit;
  }

  rejection(request: AssociateRequest): Rejection | undefined {
    const admitted = this.#admit(request);
    if (typeof admitted !== "string") {
      this.#refuse(`rejected_${admitted.source}.${admitted.reason}`);
      return admitted;
    }
    this.told.peer = admitted;
    return undefined;
  }

  taken(sopClassUid: string, proposed: readonly string[]): readonly string[] | undefined {
    if (sopClassUid === VERIFICATION) return proposed;
    return isImage(sopClassUid) ? proposed.filter((uid) => SYNTAXES.has(uid)) : undefined;
  }

  async store(object: Incoming): Promise<{ status: number; comment?: string }> {
    try {
      const kept = await this.#options.spool.keep(this.told.peer, object);
      this.told.objects += 1;
      this.told.bytes += kept.bytes;
      this.#options.kept(kept, this.told.peer);
      return { status: STATUS.success };
    } catch (error) {
      if (!(error instanceof RadserveError)) throw error;
      this.#refuse(error.code);
      return { status: STATUS_OF[error.code] ?? STATUS.processingFailure, comment: error.code };
    }
  }

  #refuse(reason: string): void {
    this.told.refused[reason] = (this.told.refused[reason] ?? 0) + 1;
  }
}
