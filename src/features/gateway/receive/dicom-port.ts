/** The port for DICOM, opened as soon as it can be, and its certificates. */
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { durations } from "../../../base/durations.js";
import { backOff } from "../../../base/back-off.js";
import { errno } from "../../../base/errno.js";
import { faultForLog } from "../../../base/log.js";
import { expiryWarning, WatchedCertificates } from "../../../files/certificates.js";
import { DOORS_TLS, type DoorsSettings } from "../settings.js";
import { DicomDoor, type DicomDoorOptions } from "./dicom-door.js";
import { doorRetry } from "../retry.js";
import type { DoorTrouble } from "./messages.js";

/** Bytes of a P-DATA-TF that peers are told. */
const MOST_DATA = 256 * 1024;

export class DicomPort {
  #door: DicomDoor | undefined;
  #certificates: WatchedCertificates | undefined;
  #fault: string | undefined;
  #tries = 0;
  #closed = false;

  constructor(
    private readonly dicom: NonNullable<DoorsSettings["dicom"]>,
    private readonly peers: DoorsSettings["peers"],
    private readonly shared: Pick<
      DicomDoorOptions,
      "spool" | "log" | "refused" | "coming" | "kept" | "ended"
    >,
  ) {}

  get associations(): number {
    return this.#door?.associations ?? 0;
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
      const delay = backOff(this.#tries, doorRetry());
      this.#fault = why || "its certificates cannot be used";
      setTimeout(() => void this.open(), delay).unref();
    }
  }

  async #listen(): Promise<void> {
    const { tls, host, port, ae_title: aeTitle, associations } = this.dicom;
    this.#certificates ??=
      tls &&
      (await WatchedCertificates.open(
        { tls_cert: tls.cert, tls_key: tls.key, tls_client_ca: tls.client_ca },
        this.shared.log,
        DOORS_TLS,
      ));
    const door = new DicomDoor({
      ...this.shared,
      aeTitle,
      mostAssociations: associations,
      mostData: MOST_DATA,
      pduTimeout: durations.pduWhole,
      idleTimeout: durations.associationIdle,
      tls: this.#certificates?.options,
      peers: Object.entries(this.peers).map(([name, { ae_title, networks }]) => ({
        name,
        aeTitle: ae_title,
        networks,
      })),
    });
    door.server.listen(port, host);
    await once(door.server, "listening");
    if ("setSecureContext" in door.server) await this.#certificates?.watch(door.server);
    this.#door = door;
    const address = door.server.address() as AddressInfo;
    this.shared.log.info(
      { port: address.port, address: address.address, tls: tls !== undefined },
      "the port for DICOM is open",
    );
  }

  troubles(): DoorTrouble[] {
    const where = "port for DICOM";
    const { refused, expiries = [] } = this.#certificates ?? {};
    return [
      ...(this.#fault === undefined
        ? []
        : [
            {
              condition: "door_closed" as const,
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
    this.#door?.close();
  }
}
