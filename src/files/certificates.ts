/**
 * TLS of the server: the certificate, its key and the CAs of clients, read from files, checked, and
 * read again when they change. The serving process ends TLS: connections that wait while it is
 * replaced have not begun it yet.
 */
import { createPrivateKey, X509Certificate, type KeyObject } from "node:crypto";
import { stat } from "node:fs/promises";
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Duplex } from "node:stream";
import type { Socket } from "node:net";
import type tls from "node:tls";
import { durations } from "../base/durations.js";
import { ConfigError, PassingFault } from "../base/errors.js";
import { errno } from "../base/errno.js";
import { faultForLog, type Logger } from "../base/log.js";
import { endsOf } from "../base/networks.js";
import { textOfNamed } from "./regular-file.js";

export interface TlsFiles {
  tls_cert?: string | undefined;
  tls_key?: string | undefined;
  tls_client_ca?: string | undefined;
}

/** What messages call the three files. */
export type TlsNames = Readonly<Record<keyof TlsFiles, string>>;

const OF_HTTP: TlsNames = {
  tls_cert: "RADSERVE_TLS_CERT",
  tls_key: "RADSERVE_TLS_KEY",
  tls_client_ca: "RADSERVE_TLS_CLIENT_CA",
};

/**
 * Versions and ciphers that RFC 9325 recommends (3.1 and 4.2): TLS 1.3 and 1.2, forward secrecy,
 * AEAD.
 */
const RECOMMENDED = {
  minVersion: "TLSv1.2",
  maxVersion: "TLSv1.3",
  ciphers: [
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_AES_128_GCM_SHA256",
    "ECDHE-ECDSA-AES128-GCM-SHA256",
    "ECDHE-RSA-AES128-GCM-SHA256",
    "ECDHE-ECDSA-AES256-GCM-SHA384",
    "ECDHE-RSA-AES256-GCM-SHA384",
    "ECDHE-ECDSA-CHACHA20-POLY1305",
    "ECDHE-RSA-CHACHA20-POLY1305",
  ].join(":"),
  honorCipherOrder: true,
} as const satisfies tls.SecureContextOptions;

const DAY_MS = 86_400_000;
/** From so many days before its end on, a certificate is told of. */
const SOON_DAYS = 30;

export interface Expiry {
  certificate: "server" | "client_ca";
  /** What messages call its file. */
  name: string;
  at: Date;
}

/** When certificates can be used, in milliseconds since 1970, and when the first of them ends. */
interface Validity extends Expiry {
  from: number;
  until: number;
}

export interface Certificates {
  context: tls.SecureContextOptions;
  /**
   * Checks validity: every certificate of the server's chain must be valid, and at least one client
   * CA.
   */
  validities: Validity[];
  /** By whose certificates clients are let in; undefined where they need none. */
  clientCas: readonly X509Certificate[] | undefined;
}

const read = (setting: string, file: string) => textOfNamed(setting, file, "a file in PEM");

function certificatesIn(setting: string, text: string): [X509Certificate, ...X509Certificate[]] {
  const blocks = text.match(/-----BEGIN CERTIFICATE-----[^-]*-----END CERTIFICATE-----/g) ?? [];
  // OpenSSL takes the whole ones at the beginning and says nothing of the rest.
  if (/-----|-\s*$/.test(text.replace(/-----BEGIN ([A-Z0-9 ]+)-----[^-]*-----END \1-----/g, "")))
    throw new ConfigError(
      `${setting}: expected whole certificates in PEM; the last one is cut short. Write the file under another name, and move it into its place.`,
    );
  try {
    const [first, ...others] = blocks.map((block) => new X509Certificate(block));
    if (first !== undefined) return [first, ...others];
  } catch {
    throw new ConfigError(`${setting}: expected certificates in PEM; one of them cannot be read.`);
  }
  throw new ConfigError(
    `${setting}: expected a certificate in PEM (BEGIN CERTIFICATE); found none.`,
  );
}

async function privateKey(name: string, file: string, text: string): Promise<KeyObject> {
  const mode = (await stat(file)).mode & 0o777;
  if ((mode & 0o007) !== 0)
    throw new ConfigError(
      `${name}: expected a file that not everybody may read; found mode ${mode.toString(8)}. Run chmod 600 (or 640 for a group), and if others could read it, make a new key.`,
    );
  try {
    return createPrivateKey(text);
  } catch {
    throw new ConfigError(
      `${name}: expected a private key in PEM, without a passphrase; it cannot be read.`,
    );
  }
}

const beginTimes = (all: readonly X509Certificate[]) =>
  all.map(({ validFrom }) => Date.parse(validFrom));
const endTimes = (all: readonly X509Certificate[]) => all.map(({ validTo }) => Date.parse(validTo));

function validityOf(
  certificate: Expiry["certificate"],
  name: string,
  all: readonly X509Certificate[],
): Validity {
  const firstEnd = Math.min(...endTimes(all));
  const at = new Date(firstEnd);
  if (certificate === "server")
    return { certificate, name, at, from: Math.max(...beginTimes(all)), until: firstEnd };
  const valid = all.filter(({ validTo }) => Date.parse(validTo) > Date.now());
  const usable = valid.length === 0 ? all : valid;
  return {
    certificate,
    name,
    at,
    from: Math.min(...beginTimes(usable)),
    until: Math.max(...endTimes(usable)),
  };
}

/**
 * The certificates that the settings name; undefined where they name none. Throws ConfigError where
 * one cannot be read, the key is another one's or open to everybody, or OpenSSL takes them not. One
 * that has expired is taken: `refuseOutOfDate` says so.
 */
export async function readCertificates(
  files: TlsFiles,
  names = OF_HTTP,
): Promise<Certificates | undefined> {
  const { tls_cert: cert, tls_key: key, tls_client_ca: clientCa } = files;
  if (cert === undefined && key === undefined && clientCa === undefined) return undefined;
  if (cert === undefined || key === undefined)
    throw new ConfigError(
      `${names[cert === undefined ? "tls_cert" : "tls_key"]}: expected a file beside ${names[cert === undefined ? (key === undefined ? "tls_client_ca" : "tls_key") : "tls_cert"]}; found nothing. TLS needs a certificate and its key.`,
    );
  const texts = { cert: await read(names.tls_cert, cert), key: await read(names.tls_key, key) };
  const ca = clientCa === undefined ? undefined : await read(names.tls_client_ca, clientCa);
  const chain = certificatesIn(names.tls_cert, texts.cert);
  if (!chain[0].checkPrivateKey(await privateKey(names.tls_key, key, texts.key)))
    throw new ConfigError(
      `${names.tls_key}: expected the private key of the first certificate in ${names.tls_cert}; found another key.`,
    );
  const cas = ca === undefined ? undefined : certificatesIn(names.tls_client_ca, ca);
  // OpenSSL ends a chain at a root alone: nobody would be let in.
  if (cas?.every((one) => !one.checkIssued(one)) === true)
    throw new ConfigError(
      `${names.tls_client_ca}: expected CAs up to a root, which issued itself; found only CAs below one. Add the root.`,
    );
  const context = { ...RECOMMENDED, ...texts, ...(ca === undefined ? {} : { ca }) };
  try {
    // Loaded only here: Node.js then parses, in a thread, all the authorities that it knows
    process.getBuiltinModule("node:tls").createSecureContext(context);
  } catch (error) {
    throw new ConfigError(
      `${names.tls_cert}: expected a certificate that OpenSSL takes; it refuses this one (${errno(error) || "unknown"}).`,
    );
  }
  return {
    context,
    validities: [
      validityOf("server", names.tls_cert, chain),
      ...(cas === undefined ? [] : [validityOf("client_ca", names.tls_client_ca, cas)]),
    ],
    clientCas: cas,
  };
}

/** Throws PassingFault where the time of certificates is over, or has not come: clocks are set. */
export function refuseOutOfDate({ validities }: Certificates): void {
  for (const { name, from, until } of validities) {
    if (from <= Date.now() && Date.now() < until) continue;
    const when =
      until <= Date.now()
        ? `expired on ${dateOf(until)}`
        : `begins on ${new Date(from).toISOString()}`;
    throw new PassingFault(
      `${name}: expected a certificate that is valid now; it ${when}. Put another one there.`,
    );
  }
}

const dateOf = (at: Date | number) => new Date(at).toISOString().slice(0, 10);

/** Whether there is a CA among these that is not among those. */
function isOneGone(these: readonly X509Certificate[], those: readonly X509Certificate[]): boolean {
  const left = new Set(those.map(({ fingerprint256 }) => fingerprint256));
  return these.some(({ fingerprint256 }) => !left.has(fingerprint256));
}

/**
 * Whether one of the CAs has issued the client's certificate itself. Certificates between the two
 * are not looked at: on the side of the server Node.js does not give them.
 */
function isOf(socket: tls.TLSSocket, cas: readonly X509Certificate[]): boolean {
  const shown = socket.getPeerX509Certificate();
  return (
    shown !== undefined && cas.some((ca) => shown.checkIssued(ca) && shown.verify(ca.publicKey))
  );
}

/**
 * The warning about a certificate that ends within 30 days or has ended; undefined for any other.
 */
export function expiryWarning({ name, at }: Expiry): string | undefined {
  const days = Math.floor((at.getTime() - Date.now()) / DAY_MS);
  if (days >= SOON_DAYS) return undefined;
  return days < 0
    ? `The certificate of ${name} expired on ${dateOf(at)}; clients refuse it. Put a new one there.`
    : `The certificate of ${name} expires in ${days} day${days === 1 ? "" : "s"}, on ${dateOf(at)}. Put a new one there.`;
}

/** The options of a TLS server at its start. */
export function tlsOptions({ context, clientCas }: Certificates): tls.TlsOptions {
  return {
    ...context,
    handshakeTimeout: durations.tlsHandshake,
    requestCert: clientCas !== undefined,
    rejectUnauthorized: clientCas !== undefined,
  };
}

/** Looks at the files again and again, and gives a server new certificates as they come. */
export class WatchedCertificates {
  readonly #files: readonly string[];
  #stamp = "";
  /** Stamps of the files at the last look, if they were not those of the certificates in use. */
  #changed = "";
  #refused: string | undefined;
  #timer: NodeJS.Timeout | undefined;
  readonly #reminder: NodeJS.Timeout;
  #closed = false;
  readonly #sockets = new Set<tls.TLSSocket>();
  /** Connections whose handshake used earlier certificates. */
  readonly #old = new WeakSet<Duplex>();
  /** Ends of the connections whose handshake has begun and not ended. */
  readonly #handshakes = new Set<string>();
  /** Those of them that began while a CA counted that is gone. */
  #late = new Set<string>();

  private constructor(
    private readonly settings: TlsFiles,
    private current: Certificates,
    private readonly log: Logger,
    private readonly names: TlsNames,
  ) {
    this.#files = [settings.tls_cert, settings.tls_key, settings.tls_client_ca].filter(
      (file) => file !== undefined,
    );
    this.#reminder = setInterval(() => this.#remind(), DAY_MS).unref();
    this.#remind();
  }

  /** Undefined where the settings ask for no TLS. Throws ConfigError. */
  static async open(
    settings: TlsFiles,
    log: Logger,
    names = OF_HTTP,
  ): Promise<WatchedCertificates | undefined> {
    const first = await readCertificates(settings, names);
    return first === undefined ? undefined : new WatchedCertificates(settings, first, log, names);
  }

  get expiries(): readonly Expiry[] {
    return this.current.validities;
  }

  /** Why the files of now are not what is in use; without a path. */
  get refused(): string | undefined {
    return this.#refused;
  }

  get options(): tls.TlsOptions {
    return tlsOptions(this.current);
  }

  /** From now on the server has what the files say. */
  async watch(server: tls.Server): Promise<void> {
    server.on("connection", (socket: Socket) => {
      const ends = endsOf(socket);
      this.#handshakes.add(ends);
      socket.once("close", () => [this.#handshakes, this.#late].forEach((all) => all.delete(ends)));
    });
    server.on("secureConnection", (socket) => {
      const ends = endsOf(socket);
      this.#handshakes.delete(ends);
      if (this.#late.delete(ends) && !this.#admits(socket)) return;
      this.#sockets.add(socket);
      socket.once("close", () => this.#sockets.delete(socket));
    });
    // An old connection ends with an answer, so that no request is lost.
    server.prependListener("request", ({ socket }: IncomingMessage, response: ServerResponse) => {
      if (this.#old.has(socket)) response.setHeader("Connection", "close");
    });
    this.#stamp = await this.#look();
    this.#schedule(server);
  }

  /**
   * Reads the files now. What is wrong with them is logged, and the certificates of before go on.
   */
  async reload(server: tls.Server): Promise<void> {
    this.#stamp = await this.#look();
    try {
      const next = await readCertificates(this.settings, this.names);
      if (next === undefined) return;
      refuseOutOfDate(next);
      server.setSecureContext(next.context);
      const isCaGone = isOneGone(this.current.clientCas ?? [], next.clientCas ?? []);
      this.current = next;
      this.#refused = undefined;
      const expires = next.validities.map(({ certificate, at }) => [`${certificate}_expires`, at]);
      this.log.info(
        { ...Object.fromEntries(expires), closed: this.#endOld(isCaGone) },
        "certificates read again; new connections get them",
      );
      this.#remind();
    } catch (error) {
      // Paths stay out of the log: the setting says which file it is.
      const reason =
        error instanceof ConfigError ? error.message.replace(/ at \/.*?; /, "; ") : undefined;
      this.#refused = reason ?? "The new certificates cannot be used.";
      this.log.error(
        reason === undefined ? { fault: faultForLog(error) } : { reason },
        "the new certificates cannot be used; the previous ones stay in use",
      );
    }
  }

  /**
   * @param isCaGone a CA of before is none any more
   * @returns how many clients were shut out, because no CA of now has issued their certificates
   */
  #endOld(isCaGone: boolean): number {
    if (isCaGone) this.#late = new Set(this.#handshakes);
    // One that is closed already has no certificate any more.
    const open = [...this.#sockets].filter(({ destroyed }) => !destroyed);
    for (const socket of open) this.#old.add(socket);
    return isCaGone ? open.filter((socket) => !this.#admits(socket)).length : 0;
  }

  /** Closes the connection of a client that is none of the CAs of now. */
  #admits(socket: tls.TLSSocket): boolean {
    const admitted = isOf(socket, this.current.clientCas ?? []);
    if (!admitted) socket.destroy();
    return admitted;
  }

  close(): void {
    this.#closed = true;
    clearTimeout(this.#timer);
    clearInterval(this.#reminder);
  }

  #schedule(server: tls.Server): void {
    if (this.#closed) return;
    this.#timer = setTimeout(() => {
      void this.#follow(server).finally(() => this.#schedule(server));
    }, durations.certificatesLook).unref();
  }

  /**
   * Certificate and key are replaced one after the other: a change counts once two looks have found
   * the same.
   */
  async #follow(server: tls.Server): Promise<void> {
    const found = await this.#look();
    const settled = found === this.#changed;
    this.#changed = found;
    if (settled && found !== this.#stamp) await this.reload(server);
  }

  async #look(): Promise<string> {
    const stamps = this.#files.map((file) =>
      stat(file).then(
        ({ ino, size, mtimeMs, ctimeMs }) => [ino, size, mtimeMs, ctimeMs].join(" "),
        (error: unknown) => errno(error),
      ),
    );
    return (await Promise.all(stamps)).join("\n");
  }

  #remind(): void {
    for (const expiry of this.expiries) {
      const warning = expiryWarning(expiry);
      if (warning !== undefined) this.log.warn(warning);
    }
  }
}
