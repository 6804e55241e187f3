/**
 * Where a peer calls back: objects that a C-MOVE asked for, and reports of its commitment. Nothing
 * else is taken.
 */
import { once } from "node:events";
import { createServer, type Socket } from "node:net";
import { durations } from "../../../base/durations.js";
import { Networks, plainAddress } from "../../../base/networks.js";
import {
  serveAssociation,
  type AcceptorHandlers,
  type EventReport,
  type Incoming,
} from "../dimse/acceptor.js";
import { STATUS } from "../dimse/command.js";
import { decodable } from "../../../images/dicom/transfer-syntax.js";
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
export type Report = Awaited<ReturnType<typeof readReport>>;

const MOST_REPORT_BYTES = 1024 * 1024;

/** @throws RadserveError for what is no data set, Error for one that is too long */
export async function readReport({ transferSyntax, dataSet }: EventReport) {
  const head = fileHead(COMMITMENT, COMMITMENT_INSTANCE, transferSyntax);
  return openFile(Buffer.concat([head, await gathered(dataSet, MOST_REPORT_BYTES)])).attributes;
}

const MOST_DATA = 256 * 1024;
const MOST_CONNECTIONS = 16;
/** The peer is not who is expected (PS3.8 table 9-21). */
const NOT_RECOGNIZED = { result: 1, source: 1, reason: 3 };

export class CallBack {
  readonly #expected = new Map<string, (object: Incoming) => Promise<void>>();
  readonly #reports = new Set<(report: Report) => void>();
  readonly #open = new Set<Socket>();
  readonly #server = createServer((socket) => void this.#serve(socket));
  #opening: Promise<unknown> | undefined;

  constructor(
    private readonly settings: DicomSettings,
    private readonly listen: NonNullable<DicomSettings["listen"]>,
  ) {
    this.#server.maxConnections = MOST_CONNECTIONS;
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
    return () => this.#expected.delete(sopInstanceUid);
  }

  expectReport(take: (report: Report) => void): () => void {
    this.#reports.add(take);
    return () => this.#reports.delete(take);
  }

  async #serve(socket: Socket): Promise<void> {
    this.#open.add(socket);
    const { calling_ae: own, called_ae: peer } = this.settings;
    const address = plainAddress(socket.remoteAddress) ?? "";
    const networks = this.listen.networks && new Networks(this.listen.networks);
    const handlers: AcceptorHandlers = {
      rejection: ({ calledAe, callingAe }) =>
        calledAe === own && callingAe === peer && networks?.has(address) !== false
          ? undefined
          : NOT_RECOGNIZED,
      taken: (_, proposed) => proposed.filter((uid) => decodable().some((one) => one.uid === uid)),
      store: async (object) => {
        const take = this.#expected.get(object.sopInstanceUid);
        if (take === undefined)
          return { status: STATUS.notAuthorized, comment: "Nobody asked for it." };
        await take(object);
        return { status: STATUS.success };
      },
      event: async (report) => {
        const read = await readReport(report);
        for (const take of this.#reports) take(read);
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
    for (const socket of this.#open) socket.destroy();
  }
}
