/**
 * The file that the setting `sign_in` names: which header of a trusted proxy says who is signed in,
 * whose signature it has to have, and what each role may do.
 */
import path from "node:path";
import { z } from "zod";
import { ConfigError } from "../../base/errors.js";
import { absolute, readNamedFile, type Config } from "../../config.js";
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

const HEADER_MEANING =
  "Header that holds the signed token alone, never Authorization; believed from " +
  "RADSERVE_TRUSTED_PROXIES, which have to replace what a client sends in it";
const JWKS_MEANING =
  "Address or file of the issuer's public keys, for RS256 or ES256. A new key is found when a token " +
  "names it; known ones hold for an hour while the address does not answer";
const ORIGIN_MEANING =
  "Scheme, host and port of the page in browsers; requests that other sites make are refused " +
  "(other_site)";
const ROLES_MEANING =
  "What each role may do: admin, input_roots, output_roots and destinations, as options of radserve " +
  "token issue. Several roles add up; without one the answer is 403 role_missing. After a change: SIGHUP";

const schema = z
  .strictObject({
    $schema: z.string().optional(),
    header: z
      .string()
      .regex(/^[\w-]{1,64}$/)
      .transform((name) => name.toLowerCase())
      .refine((name) => !OTHERS.test(name), "Expected a header of its own")
      .describe(HEADER_MEANING),
    issuer: z.string().min(1).describe("`iss` of the token; `exp` and `nbf` are checked, too"),
    audience: z.string().min(1).describe("`aud` of the token, or one of several"),
    jwks: z
      .string()
      .refine(
        (text) => path.isAbsolute(text) || isSafe(urlOf(text)),
        "Expected an https address (http on this machine alone), or an absolute path",
      )
      .describe(JWKS_MEANING),
    origin: z
      .string()
      .refine(
        (text) => isOfHttp(urlOf(text)) && urlOf(text)?.origin === text,
        "Expected scheme, host and port alone, for example https://radserve.hospital.example",
      )
      .describe(ORIGIN_MEANING),
    subject_claim: z
      .string()
      .min(1)
      .default("sub")
      .describe(
        "Claim that names the person (default sub); jobs and the audit have it with oidc: before it",
      ),
    roles_claim: z
      .string()
      .min(1)
      .default("groups")
      .describe("Claim that holds the roles (default groups)"),
    roles: z.array(roleSchema).min(1).describe(ROLES_MEANING),
    sign_out: z.string().min(1).describe("Where the page's button leads that signs out"),
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
/** The published schema of the file. */
export const signInJsonSchema = (): Record<string, unknown> => ({
  ...z.toJSONSchema(schema, { io: "input" }),
  title: "Radserve sign-in",
  description: "The file that RADSERVE_SIGN_IN names.",
});
export type SignInSettings = z.output<typeof schema>;

/**
 * Undefined where the setting is not set.
 * @throws ConfigError naming the field that is wrong
 */
export function readSignIn(config: Config): SignInSettings | undefined {
  const named = fileOf(config);
  if (named === undefined) return undefined;
  if (config.trusted_proxies.length === 0)
    throw new ConfigError(
      "RADSERVE_SIGN_IN: expected RADSERVE_TRUSTED_PROXIES beside it, with the proxy's address: who is signed in is believed from there alone.",
    );
  return readNamedFile("RADSERVE_SIGN_IN", named, schema);
}
