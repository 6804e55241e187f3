/**
 * The file that the setting `sign_in` names: which header of a trusted proxy says who is signed in,
 * whose signature it has to have, and what each role may do.
 */
import path from "node:path";
import { z } from "zod";
import { errno } from "../../base/errno.js";
import { ConfigError } from "../../base/errors.js";
import { problemsOf } from "../../base/validation.js";
import { absolute, jsonOfFile, type Config } from "../../config.js";
import { textOfRegularSync } from "../../files/regular-file.js";
import { fileOf } from "./setting.js";

/** Headers that mean something else, here or to what lies before us. */
const OTHERS =
  /^(?:authorization|accept.*|connection|content-.*|cookie|expect|forwarded|host|if-.*|origin|range|referer|sec-.*|te|trailer|transfer-encoding|upgrade|radserve-path|x-forwarded-.*|x-request-id|traceparent)$/;

const urlOf = (text: string): URL | undefined => (URL.canParse(text) ? new URL(text) : undefined);
const isOfHttp = (url: URL | undefined): url is URL => /^https?:$/.test(url?.protocol ?? "");

/** Keys that come over plain HTTP could be anybody's, but from this machine. */
function isSafe(url: URL | undefined): boolean {
  if (!isOfHttp(url) || url.username !== "" || url.password !== "") return false;
  return (
    url.protocol === "https:" || /^(?:127\.\d+\.\d+\.\d+|localhost|\[::1\])$/.test(url.hostname)
  );
}

const roleSchema = z.strictObject({
  role: z.string().min(1).describe("A value of the claim that holds roles"),
  admin: z.boolean().default(false).describe("As --admin of radserve token issue"),
  input_roots: z.array(absolute).optional().describe("As --input-root; all if absent"),
  output_roots: z.array(absolute).optional().describe("As --output-root; all if absent"),
  destinations: z
    .array(z.string().min(1))
    .optional()
    .describe("As --destination; all if absent, none if empty"),
});
export type RoleRights = z.output<typeof roleSchema>;

const schema = z
  .strictObject({
    header: z
      .string()
      .regex(/^[\w-]{1,64}$/)
      .transform((name) => name.toLowerCase())
      .refine((name) => !OTHERS.test(name), "Expected a header of its own")
      .describe("Header in which the proxy sends the signed token, alone; never Authorization"),
    issuer: z.string().min(1).describe("`iss` of the token"),
    audience: z.string().min(1).describe("`aud` of the token, or one of several"),
    jwks: z
      .string()
      .refine(
        (text) => path.isAbsolute(text) || isSafe(urlOf(text)),
        "Expected an https address (http on this machine alone), or an absolute path",
      )
      .describe("Address, or file, of the issuer's public keys (JWKS)"),
    origin: z
      .string()
      .refine(
        (text) => isOfHttp(urlOf(text)) && urlOf(text)?.origin === text,
        "Expected scheme, host and port alone, for example https://radserve.hospital.example",
      )
      .describe("Scheme, host and port under which browsers open the page"),
    subject_claim: z.string().min(1).default("sub").describe("Claim that names the person"),
    roles_claim: z.string().min(1).default("groups").describe("Claim that holds the roles"),
    roles: z.array(roleSchema).min(1).describe("What the roles may do"),
    sign_out: z.string().min(1).describe("Address that signs the person out of the proxy"),
  })
  .superRefine(({ origin, roles, sign_out }, context) => {
    if (
      URL.canParse(origin) &&
      !(URL.canParse(sign_out, origin) && isOfHttp(new URL(sign_out, origin)))
    )
      context.addIssue({
        code: "custom",
        path: ["sign_out"],
        message: "Expected a path, for example /oauth2/sign_out, or an address of http or https",
      });
    roles.forEach(({ role }, i) => {
      if (roles.findIndex((one) => one.role === role) < i)
        context.addIssue({
          code: "custom",
          path: ["roles", i, "role"],
          message: "Expected each role once",
        });
    });
  });
export type SignInSettings = z.output<typeof schema>;

/**
 * Undefined where the setting is not set.
 * @throws ConfigError naming the field that is wrong
 */
export function readSignIn(config: Config): SignInSettings | undefined {
  const named = fileOf(config);
  if (named === undefined) return undefined;
  const fail = (message: string): never => {
    throw new ConfigError(`RADSERVE_SIGN_IN: ${message}`);
  };
  if (config.trusted_proxies.length === 0)
    fail(
      "expected RADSERVE_TRUSTED_PROXIES beside it, with the proxy's address: who is signed in is believed from there alone.",
    );
  let text = "";
  try {
    text = textOfRegularSync(named);
  } catch (error) {
    fail(`expected a file at ${named}; it cannot be read (${errno(error) || "no plain file"}).`);
  }
  const value = jsonOfFile(named, text);
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  return fail(
    problemsOf(schema, value, parsed.error)
      .map(({ field, message }) => `${field === "" ? "the file" : field}: ${message}.`)
      .join(" "),
  );
}
