/**
 * Where a peer calls back: objects that a C-MOVE asked for, and reports of its commitment. Nothing
 * else is taken.
 */
import { once } from "node:events";
import { createServer, isIP, type Socket } from "node:net";
import { durations } from "../../../base/durations.js";
import {
  serveAssociation,
  type AcceptorHandlers,
  type EventReport,
  type Incoming,
} from "../dimse/acceptor.js";
import { Admission } from "../dimse/admission.js";
import { STATUS } from "../dimse/command.js";
import {
  decodable,
  DEFLATED_EXPLICIT_VR_LITTLE_ENDIAN,
  EXPLICIT_VR_LITTLE_ENDIAN,
  IMPLICIT_VR_LITTLE_ENDIAN,
} from "../../../images/dicom/transfer-syntax.js";
import { openFile } from "../../../images/dicom/dicom-file.js";
import { fileHead } from "../../../results/dicom/elements.js";
import { gathered } from "./destination.js";
import type { DicomSettings } from "./destination-settings.js";

/**
 * Storage Commitment Push Model: the SOP class, and the one instance that it has (PS3.4 section
 * J.3).
 */
export const COMMITMENT = "1.2.840.10008.1.20.1";
export const COMMITMENT_INSTANCE = "1.2.840.10008.1.20.1.1";

/** The data set of a report of a commitment. */
export type ReportAttributes = Awaited<ReturnType<typeof readReport>>;

/**
 * A report is of the objects that a transaction asked for, 64 at most: their UIDs, and where they
 * can be retrieved.
 */
const MOST_REPORT_BYTES = 64 * 1024;
/** A deflated one could unfold to anything; every peer can send these. */
const PLAIN = [IMPLICIT_VR_LITTLE_ENDIAN, EXPLICIT_VR_LITTLE_ENDIAN];

/** @throws RadserveError for what is no data set, Error for one that is too long */
export async function readReport({ transferSyntax, dataSet }: EventReport) {
  const head = fileHead(COMMITMENT, COMMITMENT_INSTANCE, transferSyntax);
  return openFile(Buffer.concat([head, await gathered(dataSet, MOST_REPORT_BYTES)])).attributes;
}

const MOST_DATA = 256 * 1024;
/** Without an association, and with one. */
const MOST_CONNECTIONS = 16;
const MOST_ASSOCIATIONS = 16;
/** The peer is not who is expected (PS3.8 table 9-21). */
const NOT_RECOGNIZED = { result: 1, source: 1, reason: 3 };
const LOCAL_LIMIT = { result: 2, source: 3, reason: 2 };

/** Of what a C-MOVE brings: no result is deflated, and such a one could unfold to anything. */
const OF_OBJECTS = decodable()
  .map(({ uid }) => uid)
  .filter((uid) => uid !== DEFLATED_EXPLICIT_VR_LITTLE_ENDIAN);

export class CallBack {
  readonly #expected = new Map<string, (object: Incoming) => Promise<void>>();
  #reports: ((report: ReportAttributes) => Promise<boolean>) | undefined;
  readonly #open = new Set<Socket>();
  readonly #admission: Admission;
  readonly #server = createServer((socket) => {
    if (this.#admission.admit(socket)) void this.#serve(socket);
  });
  #opening: Promise<unknown> | undefined;

  constructor(
    private readonly settings: DicomSettings,
    private readonly listen: NonNullable<DicomSettings["listen"]>,
  ) {
    const { called_ae: name, host } = settings;
    const { networks } = listen;
    this.#admission = new Admission(
      networks === undefined
        ? // The peer's own address is known to be its; it may call from others, too
          [
            { name, networks: isIP(host) === 0 ? undefined : [host] },
            { name, networks: undefined },
          ]
        : [{ name, networks }],
      MOST_CONNECTIONS,
    );
    // Told to whoever opens it
    this.#server.on("error", () => (this.#opening = undefined));
  }

  /** Listens. @throws Error where the port cannot be opened */
  async open(): Promise<void> {
    if (this.#opening === undefined) {
      this.#opening = once(this.#server, "listening");
      this.#server.listen(this.listen.port, this.listen.host);
    }
    await this.#opening;
  }

  /** @param take is given the object when it comes. Whoever calls the result expects it no more. */
  expect(sopInstanceUid: string, take: (object: Incoming) => Promise<void>): () => void {
    this.#expected.set(sopInstanceUid, take);
    return () => {
      // Somebody else may expect it by now
      if (this.#expected.get(sopInstanceUid) === take) this.#expected.delete(sopInstanceUid);
    };
  }

  /** @param take says whether the report is of something that was asked for */
  takeReports(take: (report: ReportAttributes) => Promise<boolean>): void {
    this.#reports = take;
  }

  async #serve(socket: Socket): Promise<void> {
    const { calling_ae: own, called_ae: peer } = this.settings;
    const handlers: AcceptorHandlers = {
      rejection: ({ calledAe, callingAe }) => {
        if (calledAe !== own || callingAe !== peer) return NOT_RECOGNIZED;
        if (this.#open.size >= MOST_ASSOCIATIONS) return LOCAL_LIMIT;
        this.#admission.heard(socket);
        this.#open.add(socket);
        return undefined;
      },
      taken: (uid, proposed) =>
        proposed.filter((one) => (uid === COMMITMENT ? PLAIN : OF_OBJECTS).includes(one)),
      store: async (object) => {
        const take = this.#expected.get(object.sopInstanceUid);
        if (take === undefined)
          return { status: STATUS.notAuthorized, comment: "Nobody asked for it." };
        await take(object);
        return { status: STATUS.success };
      },
      event: async (report) => {
        if (this.#reports === undefined) return STATUS.processingFailure;
        // A peer may report again what was refused
        const isKnown = await this.#reports(await readReport(report));
        return isKnown ? STATUS.success : STATUS.processingFailure;
      },
    };
    try {
      await serveAssociation(socket, handlers, {
        mostData: MOST_DATA,
        pduTimeout: durations.pduWhole,
        idleTimeout: durations.associationIdle,
      });
    } catch {
      // What was expected does not come, and whoever expects it says so
    } finally {
      this.#open.delete(socket);
    }
  }

  close(): void {
    this.#server.close();
    for (const socket of [...this.#open, ...this.#admission.silent]) socket.destroy();
  }
}
