/**
 * Where results are delivered: the settings of one destination, and the files with its credentials.
 */
import { withoutEnd } from "../../../base/ends.js";
import { stat } from "node:fs/promises";
import { createSecureContext, type SecureContextOptions } from "node:tls";
import { z } from "zod";
import { durations } from "../../../base/durations.js";
import { errno } from "../../../base/errno.js";
import { ConfigError } from "../../../base/errors.js";
import { LOOPBACK, Networks, plainAddress } from "../../../base/networks.js";
import { absolute, duration, network } from "../../../config.js";
import { readCertificates, refuseOutOfDate } from "../../../files/certificates.js";
import { textOfNamed } from "../../../files/regular-file.js";
import { aeTitle } from "../dimse/ae-title.js";
import { mayChange } from "./may-change.js";
import type { ProofPolicy } from "./progress.js";
import { takes } from "./takes.js";

export const client = z
  .strictObject({
    cert: absolute.describe("Certificate in PEM, then those between it and its CA"),
    key: absolute.describe("Its private key in PEM, not readable by everybody"),
  })
  .describe("Client certificate of this server");
export const ca = absolute.describe(
  "CA certificates in PEM of the peer; those of Node.js if absent",
);
const timeout = duration
  .refine((seconds) => seconds <= 86_400, "Expected at most 1d")
  .default(60)
  .describe('The peer may be silent for so long before it counts as away, for example "60s"');

/** What is done until an object is proven, whatever the protocol. */
const proving = {
  proof_within: duration
    .refine((seconds) => seconds <= 30 * 86_400, "Expected at most 30d")
    .optional()
    .describe(
      "Time that the peer has to show an object, or to report its commitment. It is looked for again with growing pauses, and only then sent again. Default 10m, for commitment 2d",
    ),
  send_again: z
    .int()
    .min(0)
    .max(10)
    .default(2)
    .describe(
      "How often an object is sent again that the peer accepted and does not show, or shows with other pixels (default 2)",
    ),
  may_change: mayChange
    .optional()
    .describe(
      "Keywords of attributes that the peer may change, beside those of the patient and the study",
    ),
};

/** An address of HTTP; what is behind a question mark, and a password, would go into logs. */
export const plainUrl = z.url({ protocol: /^https?$/ }).refine((text) => {
  if (!URL.canParse(text)) return false;
  const { username, password, search, hash } = new URL(text);
  return [username, password, search, hash].every((part) => part === "");
}, "Expected a URL without a user, a query and a fragment; credentials stand in files that other fields name");
/** The base of a DICOMweb service. */
const base = plainUrl.transform((text) => withoutEnd(text, "/"));

const stow = z
  .strictObject({
    type: z.literal("stow"),
    ...takes,
    url: base.describe(
      "Base of the peer's DICOMweb service, for example https://pacs:8443/dicom-web",
    ),
    ca: ca.optional(),
    client: client.optional(),
    token_file: absolute
      .optional()
      .describe("File of mode 0600 with the bearer token that is sent"),
    basic_file: absolute.optional().describe("File of mode 0600 with USER:PASSWORD for HTTP Basic"),
    prove: z
      .union([z.literal("wado-rs"), z.literal(false)])
      .default("wado-rs")
      .describe("Each object is read back by WADO-RS and compared; false: nothing is proven"),
    ...proving,
    timeout,
  })
  .superRefine(({ url, ca, client, token_file, basic_file }, context) => {
    const issue = (path: string, message: string) =>
      context.addIssue({ code: "custom", path: [path], message });
    const secrets = Object.entries({ token_file, basic_file, client, ca }).filter(
      ([, one]) => one !== undefined,
    );
    if (token_file !== undefined && basic_file !== undefined)
      issue("basic_file", "Expected one of token_file and basic_file");
    if (url.startsWith("http:") && !isLoopback(new URL(url).hostname) && secrets.length > 0)
      issue("url", `Expected https beside ${secrets.map(([name]) => name).join(" and ")}`);
  });

const PROVE_MEANING =
  "c-get, c-move: each object is read back and compared; commitment: the peer commits to it; " +
  "false: nothing is proven";

const dicom = z
  .strictObject({
    type: z.literal("dicom"),
    ...takes,
    host: z.string().min(1).describe("Name or address of the peer"),
    port: z.int().min(1).max(65535),
    called_ae: aeTitle.describe("AE title of the peer"),
    calling_ae: aeTitle.default("RADSERVE").describe("AE title by which this server calls"),
    tls: z
      .strictObject({ ca: ca.optional(), client: client.optional() })
      .optional()
      .describe("The connection has TLS; the peer's certificate has to be of its host"),
    prove: z
      .union([z.enum(["c-get", "c-move", "commitment"]), z.literal(false)])
      .default("c-get")
      .describe(PROVE_MEANING),
    ...proving,
    listen: z
      .strictObject({
        port: z.int().min(1).max(65535),
        host: z.union([z.ipv4(), z.ipv6()]).default("127.0.0.1"),
        networks: z.array(network).min(1).optional().describe("From where the peer may call"),
      })
      .optional()
      .describe("Address on which the peer calls back as calling_ae, for c-move and commitment"),
    associations: z
      .int()
      .min(1)
      .max(16)
      .default(1)
      .describe("Associations that send objects at the same time"),
    timeout,
  })
  .superRefine(({ prove, listen, tls }, context) => {
    const issue = (path: string[], message: string) =>
      context.addIssue({ code: "custom", path, message });
    if (prove === "c-move" && listen === undefined)
      issue(
        ["listen"],
        "Expected a port to which the peer moves objects; it knows it by calling_ae",
      );
    if (listen !== undefined && tls !== undefined)
      issue(
        ["listen"],
        "Expected none beside tls: what comes there would come without TLS. Prove by c-get",
      );
    if (listen !== undefined && !isLoopback(listen.host) && listen.networks === undefined)
      issue(
        ["listen", "networks"],
        "Expected networks from which the peer calls, where host is not 127.0.0.1",
      );
  });

/** One destination, as it stands in the settings. */
export const destinationSchema = z.discriminatedUnion("type", [stow, dicom]);
export type DestinationSettings = z.output<typeof destinationSchema>;
export type StowSettings = Extract<DestinationSettings, { type: "stow" }>;
export type DicomSettings = Extract<DestinationSettings, { type: "dicom" }>;

/** How long a proof is waited for, and how often an object is sent again. */
export function proofPolicy({ prove, proof_within, send_again }: DestinationSettings): ProofPolicy {
  const usual = prove === "commitment" ? durations.commitmentWithin : durations.proofWithin;
  const withinMs = proof_within === undefined ? usual : 1000 * proof_within;
  return { withinMs, sendAgain: send_again };
}

const local = new Networks(LOOPBACK);
export function isLoopback(host: string): boolean {
  const address = plainAddress(host.replace(/^\[|\]$/g, ""));
  return host === "localhost" || (address !== undefined && local.has(address));
}

/** What a destination's files say, read at each use so that new ones count. */
export interface Credentials {
  tls: SecureContextOptions | undefined;
  /** Value of the header Authorization. */
  authorization: string | undefined;
}

/**
 * @throws ConfigError naming the setting whose file cannot be read, is open to others, or does not
 * hold what it should
 */
export async function readCredentials(
  name: string,
  settings: DestinationSettings,
): Promise<Credentials> {
  const at = (field: string) => `RADSERVE_GATEWAY: destinations.${name}.${field}`;
  if (settings.type === "dicom")
    return {
      tls: settings.tls && (await secureContext((field) => at(`tls.${field}`), settings.tls)),
      authorization: undefined,
    };
  const { url, token_file: token, basic_file: basic } = settings;
  return {
    tls: url.startsWith("https:") ? await secureContext(at, settings) : undefined,
    authorization:
      token !== undefined
        ? `Bearer ${await secretIn(at("token_file"), token, /^[\x21-\x7e]+$/)}`
        : basic === undefined
          ? undefined
          : `Basic ${Buffer.from(await secretIn(at("basic_file"), basic, /^[^:]+:.*$/)).toString("base64")}`,
  };
}

/** @throws ConfigError naming the setting whose file is wrong @param at the setting of a field */
export async function secureContext(
  at: (field: string) => string,
  { ca, client }: Partial<Pick<StowSettings, "ca" | "client">>,
): Promise<SecureContextOptions> {
  const names = { tls_cert: at("client.cert"), tls_key: at("client.key"), tls_client_ca: at("ca") };
  const own = await readCertificates({ tls_cert: client?.cert, tls_key: client?.key }, names);
  if (own !== undefined) refuseOutOfDate(own);
  const context: SecureContextOptions = { minVersion: "TLSv1.2", ...own?.context };
  if (ca !== undefined) context.ca = await textOfNamed(at("ca"), ca);
  try {
    createSecureContext(context);
  } catch (error) {
    throw new ConfigError(
      `${at("ca")}: expected certificates in PEM; OpenSSL refuses them (${errno(error)}).`,
    );
  }
  return context;
}

/** The text of a file that its owner alone may read. @throws ConfigError */
export async function secretIn(
  setting: string,
  file: string,
  form: RegExp,
  what = "one line with the secret",
): Promise<string> {
  const text = (await textOfNamed(setting, file)).replace(/\r?\n$/, "");
  const mode = (await stat(file)).mode & 0o777;
  if ((mode & 0o077) !== 0)
    throw new ConfigError(
      `${setting}: expected a file that its owner alone may read; found mode ${mode.toString(8)}. Run chmod 600, and if others could read it, make a new secret.`,
    );
  if (!form.test(text))
    throw new ConfigError(`${setting}: expected ${what}; found something else.`);
  return text;
}
