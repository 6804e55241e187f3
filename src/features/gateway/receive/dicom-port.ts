/** The port for DICOM, opened as soon as it can be, and its certificates. */
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { durations } from "../../../base/durations.js";
import { backOff } from "../../../base/back-off.js";
import { errno } from "../../../base/errno.js";
import { faultForLog } from "../../../base/log.js";
import { LONGEST_TIMER_MS } from "../../../base/waiting.js";
import { expiryWarning, WatchedCertificates } from "../../../files/certificates.js";
import { GATEWAY_TLS, type GatewaySettings } from "../settings.js";
import { DicomListener, type DicomListenerOptions, type Peer } from "./dicom-listener.js";
import { gatewayRetry } from "../retry.js";
import type { ReceptionTrouble } from "./trouble.js";

/** An association that a rule still waits for is not ended. */
const idleTimeout = (pause: number): number =>
  Math.min(Math.max(durations.associationIdle, pause), LONGEST_TIMER_MS);

/** Bytes of a P-DATA-TF that peers are told. */
const MOST_DATA = 256 * 1024;

export class DicomPort {
  #listener: DicomListener | undefined;
  #certificates: WatchedCertificates | undefined;
  #fault: string | undefined;
  #tries = 0;
  #closed = false;

  constructor(
    private dicom: NonNullable<GatewaySettings["dicom"]>,
    private peers: GatewaySettings["peers"],
    private readonly shared: Pick<
      DicomListenerOptions,
      | "spool"
      | "reception"
      | "notesTitle"
      | "log"
      | "refused"
      | "contextRefused"
      | "callerRefused"
      | "senders"
      | "coming"
      | "kept"
      | "ended"
    > & {
      /** Milliseconds for which rules wait for more over an open association, at most. */
      longestPause: () => number;
    },
  ) {}

  get associations(): number {
    return this.#listener?.associations ?? 0;
  }

  /** Who may call, and which titles: of associations that are asked for from now on. */
  reload(dicom: GatewaySettings["dicom"], peers: GatewaySettings["peers"]): void {
    this.peers = peers;
    this.dicom = { ...this.dicom, ae_title: dicom?.ae_title ?? this.dicom.ae_title };
    this.#listener?.reload(this.#peers(), this.dicom.ae_title);
  }

  #peers(): Peer[] {
    return Object.entries(this.peers).map(
      ([name, { ae_title, networks, aborts, private_classes }]) => ({
        name,
        aeTitle: ae_title,
        networks,
        aborts: aborts === true,
        privateClasses: private_classes === true,
      }),
    );
  }

  async open(): Promise<void> {
    if (this.#closed) return;
    try {
      await this.#listen();
      this.#fault = undefined;
    } catch (error) {
      const why = errno(error);
      if (this.#tries === 0)
        this.shared.log.error(
          {
            port: this.dicom.port,
            ...(why === "" ? { fault: faultForLog(error) } : { errno: why }),
          },
          "the port for DICOM cannot be opened; it is tried again",
        );
      this.#tries += 1;
      const delay = backOff(this.#tries, gatewayRetry());
      this.#fault = why || "its certificates cannot be used";
      setTimeout(() => void this.open(), delay).unref();
    }
  }

  async #listen(): Promise<void> {
    const { tls, host, port, ae_title: aeTitles, associations } = this.dicom;
    this.#certificates ??=
      tls &&
      (await WatchedCertificates.open(
        { tls_cert: tls.cert, tls_key: tls.key, tls_client_ca: tls.client_ca },
        this.shared.log,
        GATEWAY_TLS,
      ));
    const { longestPause } = this.shared;
    const listener = new DicomListener({
      ...this.shared,
      aeTitles,
      mostAssociations: associations,
      mostData: MOST_DATA,
      pduTimeout: durations.pduWhole,
      // Asked at each use: rules are read again
      get idleTimeout() {
        return idleTimeout(longestPause());
      },
      tls: this.#certificates?.options,
      peers: this.#peers(),
    });
    listener.server.listen(port, host);
    await once(listener.server, "listening");
    if ("setSecureContext" in listener.server) await this.#certificates?.watch(listener.server);
    this.#listener = listener;
    const address = listener.server.address() as AddressInfo;
    this.shared.log.info(
      { port: address.port, address: address.address, tls: tls !== undefined },
      "the port for DICOM is open",
    );
  }

  troubles(): ReceptionTrouble[] {
    const where = "port for DICOM";
    const { refused, expiries = [] } = this.#certificates ?? {};
    return [
      ...(this.#fault === undefined
        ? []
        : [
            {
              condition: "dicom_port_closed" as const,
              where,
              message: `The port for DICOM is closed: ${this.#fault}.`,
            },
          ]),
      ...(refused === undefined
        ? []
        : [{ condition: "certificate_refused" as const, where, message: refused }]),
      ...expiries.flatMap((expiry) => {
        const message = expiryWarning(expiry);
        return message === undefined
          ? []
          : [{ condition: "certificate_expires" as const, where, message }];
      }),
    ];
  }

  close(): void {
    this.#closed = true;
    this.#certificates?.close();
    this.#listener?.close();
  }
}
