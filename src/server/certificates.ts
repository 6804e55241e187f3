/**
 * TLS of the server: the certificate, its key and the CAs of clients, read from files, checked, and read again when
 * they change. The serving process ends TLS: connections that wait while it is replaced have not begun it yet.
 */
import { createPrivateKey, X509Certificate, type KeyObject } from "node:crypto";
import { stat } from "node:fs/promises";
import tls from "node:tls";
import { durations } from "../base/durations.js";
import { ConfigError, RadserveError } from "../base/errors.js";
import { errno } from "../base/errno.js";
import { faultForLog, type Logger } from "../base/log.js";
import { textOfRegular } from "../files/regular-file.js";

export interface TlsFiles {
  tls_cert?: string | undefined;
  tls_key?: string | undefined;
  tls_client_ca?: string | undefined;
}

/** Versions and ciphers that RFC 9325 recommends (3.1 and 4.2): TLS 1.3 and 1.2, forward secrecy, AEAD. */
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
  at: Date;
}

export interface Certificates {
  context: tls.SecureContextOptions;
  /** When the first of the server's chain, and the first of the client CAs, ends. */
  expiries: Expiry[];
  /** True where every client has to show a certificate. */
  asksClients: boolean;
}

async function read(setting: string, file: string): Promise<string> {
  try {
    return await textOfRegular(file);
  } catch (error) {
    throw new ConfigError(
      `${setting}: expected a file in PEM at ${file}; it cannot be read (${error instanceof RadserveError ? error.message : errno(error)}).`,
    );
  }
}

function certificatesIn(setting: string, text: string): [X509Certificate, ...X509Certificate[]] {
  const blocks = text.match(/-----BEGIN CERTIFICATE-----[^-]*-----END CERTIFICATE-----/g) ?? [];
  try {
    const [first, ...others] = blocks.map((block) => new X509Certificate(block));
    if (first !== undefined) return [first, ...others];
  } catch {
    throw new ConfigError(`${setting}: expected certificates in PEM; one of them cannot be read.`);
  }
  throw new ConfigError(`${setting}: expected a certificate in PEM (BEGIN CERTIFICATE); found none.`);
}

async function privateKey(file: string, text: string): Promise<KeyObject> {
  const mode = (await stat(file)).mode & 0o777;
  if ((mode & 0o007) !== 0)
    throw new ConfigError(
      `RADSERVE_TLS_KEY: expected a file that not everybody may read; found mode ${mode.toString(8)}. Run chmod 600 (or 640 for a group), and if others could read it, make a new key.`,
    );
  try {
    return createPrivateKey(text);
  } catch {
    throw new ConfigError(
      "RADSERVE_TLS_KEY: expected a private key in PEM, without a passphrase; it cannot be read.",
    );
  }
}

function firstToEnd(certificate: Expiry["certificate"], chain: readonly X509Certificate[]): Expiry {
  return { certificate, at: new Date(Math.min(...chain.map(({ validTo }) => Date.parse(validTo)))) };
}

/**
 * The certificates that the settings name; undefined where they name none. Throws ConfigError where one cannot be read,
 * the key is another one's or open to everybody, or OpenSSL takes them not. One that has expired is taken:
 * `refuseExpired` says so.
 */
export async function readCertificates(files: TlsFiles): Promise<Certificates | undefined> {
  const { tls_cert: cert, tls_key: key, tls_client_ca: clientCa } = files;
  if (cert === undefined && key === undefined && clientCa === undefined) return undefined;
  if (cert === undefined || key === undefined)
    throw new ConfigError(
      `${cert === undefined ? "RADSERVE_TLS_CERT" : "RADSERVE_TLS_KEY"}: expected a file beside ${cert === undefined ? (key === undefined ? "RADSERVE_TLS_CLIENT_CA" : "RADSERVE_TLS_KEY") : "RADSERVE_TLS_CERT"}; found nothing. TLS needs a certificate and its key.`,
    );
  const texts = { cert: await read("RADSERVE_TLS_CERT", cert), key: await read("RADSERVE_TLS_KEY", key) };
  const ca = clientCa === undefined ? undefined : await read("RADSERVE_TLS_CLIENT_CA", clientCa);
  const chain = certificatesIn("RADSERVE_TLS_CERT", texts.cert);
  if (!chain[0].checkPrivateKey(await privateKey(key, texts.key)))
    throw new ConfigError(
      "RADSERVE_TLS_KEY: expected the private key of the first certificate in RADSERVE_TLS_CERT; found another key.",
    );
  const cas = ca === undefined ? undefined : certificatesIn("RADSERVE_TLS_CLIENT_CA", ca);
  const context = { ...RECOMMENDED, ...texts, ...(ca === undefined ? {} : { ca }) };
  try {
    tls.createSecureContext(context);
  } catch (error) {
    throw new ConfigError(
      `RADSERVE_TLS_CERT: expected a certificate that OpenSSL takes; it refuses this one (${errno(error) || "unknown"}).`,
    );
  }
  return {
    context,
    expiries: [firstToEnd("server", chain), ...(cas === undefined ? [] : [firstToEnd("client_ca", cas)])],
    asksClients: ca !== undefined,
  };
}

const SETTING = { server: "RADSERVE_TLS_CERT", client_ca: "RADSERVE_TLS_CLIENT_CA" } as const;

/** Throws ConfigError where a certificate's time is over. */
export function refuseExpired({ expiries }: Certificates): void {
  for (const { certificate, at } of expiries)
    if (at.getTime() <= Date.now())
      throw new ConfigError(
        `${SETTING[certificate]}: expected a certificate that is valid now; it expired on ${dateOf(at)}. Put a new one there.`,
      );
}

const dateOf = (at: Date) => at.toISOString().slice(0, 10);

/** What to tell of a certificate that ends within 30 days, or has; undefined where it does not. */
export function expiryWarning({ certificate, at }: Expiry): string | undefined {
  const days = Math.floor((at.getTime() - Date.now()) / DAY_MS);
  if (days >= SOON_DAYS) return undefined;
  return days < 0
    ? `The certificate of ${SETTING[certificate]} expired on ${dateOf(at)}; clients refuse it. Put a new one there.`
    : `The certificate of ${SETTING[certificate]} expires in ${days} day${days === 1 ? "" : "s"}, on ${dateOf(at)}. Put a new one there.`;
}

/** What is given to a TLS server at its start, beside the certificates. */
export function tlsOptions({ context, asksClients }: Certificates): tls.TlsOptions {
  return {
    ...context,
    handshakeTimeout: durations.tlsHandshake,
    requestCert: asksClients,
    rejectUnauthorized: asksClients,
  };
}

/** Looks at the files again and again, and gives a server new certificates as they come. */
export class WatchedCertificates {
  readonly #files: readonly string[];
  #stamp = "";
  /** What was found at the last look, where it was not what is in use. */
  #changed = "";
  #timer: NodeJS.Timeout | undefined;
  readonly #reminder: NodeJS.Timeout;
  #closed = false;

  private constructor(
    private readonly settings: TlsFiles,
    private current: Certificates,
    private readonly log: Logger,
  ) {
    this.#files = [settings.tls_cert, settings.tls_key, settings.tls_client_ca].filter(
      (file) => file !== undefined,
    );
    this.#reminder = setInterval(() => this.#remind(), DAY_MS).unref();
    this.#remind();
  }

  /** Undefined where the settings ask for no TLS. Throws ConfigError. */
  static async open(settings: TlsFiles, log: Logger): Promise<WatchedCertificates | undefined> {
    const first = await readCertificates(settings);
    return first === undefined ? undefined : new WatchedCertificates(settings, first, log);
  }

  get expiries(): readonly Expiry[] {
    return this.current.expiries;
  }

  get options(): tls.TlsOptions {
    return tlsOptions(this.current);
  }

  /** From now on the server has what the files say. */
  async watch(server: tls.Server): Promise<void> {
    this.#stamp = await this.#look();
    this.#schedule(server);
  }

  /** Reads the files now. What is wrong with them is logged, and the certificates of before go on. */
  async reload(server: tls.Server): Promise<void> {
    this.#stamp = await this.#look();
    try {
      const next = await readCertificates(this.settings);
      if (next === undefined) return;
      refuseExpired(next);
      server.setSecureContext(next.context);
      this.current = next;
      this.log.info(
        Object.fromEntries(next.expiries.map(({ certificate, at }) => [`${certificate}_expires`, at])),
        "certificates read again; new connections get them",
      );
      this.#remind();
    } catch (error) {
      // Paths stay out of the log: the setting says which file it is.
      const why =
        error instanceof ConfigError
          ? { reason: error.message.replace(/ at \/.*?; /, "; ") }
          : { fault: faultForLog(error) };
      this.log.error(why, "the new certificates cannot be used; those of before go on");
    }
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

  /** Certificate and key are replaced one after the other: a change counts once two looks have found the same. */
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
