/**
 * Who is asking: the raw JWT in the Authorization header (RFC 7519), checked against the configured
 * keys only. The signature is judged before the claims: an expired token that nobody here signed is
 * "Invalid token".
 */
import { withoutEnds } from "../base/ends.js";
import { isUtf8 } from "node:buffer";
import { randomBytes } from "node:crypto";
import jwt from "jsonwebtoken";
import { z } from "zod";
import { durationText } from "../base/duration.js";
import { errors, type RadserveError, type ErrorDetails } from "../base/errors.js";
import { jsonFault } from "../base/json-fault.js";
import { keepable } from "../base/validation.js";
import type { Algorithm, Key } from "../files/key-file.js";
import type { Keyring } from "./keys.js";
import type { TokenRecord } from "./token-records.js";

export interface Caller {
  subject: string;
  admin: boolean;
  jti: string | undefined;
  /** Folders that the token narrows the server's roots to. */
  inputRoots: string[] | undefined;
  outputRoots: string[] | undefined;
  /** Destinations that it may send to; all if undefined. */
  destinations?: string[] | undefined;
  /** Set where no token of ours says who it is: a proxy signed the person in. */
  signedIn?: "oidc";
}

export interface Expectations {
  issuer?: string | undefined;
  audience?: string | undefined;
  /** Seconds that a token may live, from its `iat` and from now; undefined: any time. */
  token_max_age?: number | undefined;
}

/** Seconds by which the clock of who issued a token may be ahead of ours. */
const CLOCK_LEEWAY = 60;

const LONGEST_TOKEN = 8192;
/** Lists and objects within each other. */
const DEEPEST = 32;
/** Characters; a token with a longer jti is refused. */
export const LONGEST_JTI = 256;

/** A key that checks tokens; it has a name, unless it is the only one of its algorithm. */
export type CheckingKey = Pick<Key, "algorithm" | "verify"> & { kid: string | undefined };

const headerSchema = z.object({
  alg: z.enum(["HS256", "RS256", "ES256"]),
  kid: z.string().optional(),
  crit: z.undefined().optional(),
  b64: z.undefined().optional(),
});

// A name that the database or the audit would change on the way could become another's
const name = z.string().refine((text) => keepable(text) === text);
const folders = z.array(name.regex(/^\//)).optional();
const claimsSchema = z.object({
  sub: name.min(1).max(256),
  exp: z.number(),
  iat: z.unknown().optional(),
  nbf: z.unknown().optional(),
  jti: name.min(1).max(LONGEST_JTI).optional(),
  admin: z.boolean().optional(),
  input_roots: folders,
  output_roots: folders,
  destinations: z.array(name).optional(),
});

/** Why a token was refused, for the audit: whoever sent it is told no more than that it was. */
export class TokenRefused extends Error {
  override readonly name = "TokenRefused";

  /** @param who what the token says of itself, where its signature is right */
  constructor(
    readonly reason: string,
    readonly who: { subject?: string; jti?: string | undefined } = {},
  ) {
    super(reason);
  }
}

export function invalid(why: string | TokenRefused, details?: ErrorDetails): RadserveError {
  const cause = typeof why === "string" ? new TokenRefused(why) : why;
  return errors.unauthorized("Invalid token", details, { cause });
}

/** One part of a token: JSON in UTF-8 (RFC 7519, 7.2), in which no name stands twice (4). */
function jsonPart(part: string): unknown {
  const bytes = Buffer.from(part, "base64url");
  const text = bytes.toString("utf8");
  if (
    bytes.toString("base64url") !== part ||
    !isUtf8(bytes) ||
    jsonFault(text, DEEPEST) !== undefined
  )
    throw invalid("malformed");
  return JSON.parse(text) as unknown;
}

export type TokenHeader = z.infer<typeof headerSchema>;

/** Whether a key may have signed this header. */
export const fits = ({ algorithm, kid }: CheckingKey, header: TokenHeader): boolean =>
  algorithm === header.alg && (header.kid === undefined || kid === header.kid);

/**
 * The one key that may have signed this header: by kid, or, without kid, the only one of its
 * algorithm.
 */
function keyFor(header: TokenHeader, keys: readonly CheckingKey[]): CheckingKey {
  const fitting = keys.filter((key) => fits(key, header));
  const [key] = fitting;
  if (key === undefined || fitting.length > 1) throw invalid("unknown_key");
  return key;
}

type Claims = z.infer<typeof claimsSchema>;

/** The header of a token that has the right form. @throws "Invalid token" */
export function headerOf(token: string): TokenHeader {
  const parts = token.split(".");
  const [first = "", second = "", signature = ""] = parts;
  if (token.length > LONGEST_TOKEN || parts.length !== 3) throw invalid("malformed");
  const header = headerSchema.safeParse(jsonPart(first)).data;
  jsonPart(second);
  if (header === undefined) throw invalid("malformed");
  if (Buffer.from(signature, "base64url").toString("base64url") !== signature)
    throw invalid("malformed");
  return header;
}

/**
 * What a token says whose signature, issuer and audience are right, and whose nbf has passed, if
 * there is one.
 * @param header of this token
 * @param expected hasOtherClock: its nbf may be a little ahead of our clock
 * @throws "Invalid token"
 */
export function signedClaims(
  token: string,
  header: TokenHeader,
  keys: readonly CheckingKey[],
  { issuer, audience, hasOtherClock = false }: Expectations & { hasOtherClock?: boolean },
): unknown {
  const { verify, algorithm } = keyFor(header, keys);
  const meant = { algorithms: [algorithm], issuer, audience };
  try {
    return jwt.verify(token, verify, {
      ...meant,
      ignoreExpiration: true,
      clockTolerance: hasOtherClock ? CLOCK_LEEWAY : 0,
    });
  } catch {
    throw invalid("signature_or_issuer");
  }
}

function claimsOf(token: string, keys: readonly Key[], expected: Expectations): Claims {
  const claims = claimsSchema.safeParse(signedClaims(token, headerOf(token), keys, expected)).data;
  if (claims === undefined) throw invalid("claims");
  return claims;
}

const MOST_KNOWN = 256;
/** Claims of good tokens, by what was expected of them, as long as the keys are the same. */
const known = new WeakMap<Expectations, { keys: readonly Key[]; claims: Map<string, Claims> }>();

/** The same, judged once for a token: only what changes with time is judged each time. */
function knownClaims(token: string, keys: readonly Key[], expected: Expectations): Claims {
  let judged = known.get(expected);
  if (judged?.keys !== keys || judged.claims.size >= MOST_KNOWN)
    known.set(expected, (judged = { keys, claims: new Map() }));
  const claims = judged.claims.get(token) ?? claimsOf(token, keys, expected);
  if (claims.nbf === undefined) judged.claims.set(token, claims);
  return claims;
}

/**
 * Refuses a token that lives longer than the settings allow, by its own times or counted from now.
 */
function refuseLongLife(
  { exp, iat }: { exp: number; iat?: unknown },
  longest: number | undefined,
  who: TokenRefused["who"],
): void {
  if (longest === undefined) return;
  if (iat !== undefined && typeof iat !== "number") throw invalid(new TokenRefused("claims", who));
  const own = typeof iat === "number" ? exp - iat : 0;
  if (own <= longest && exp - Date.now() / 1000 <= longest + CLOCK_LEEWAY) return;
  throw invalid(new TokenRefused("lives_too_long", who), {
    hint: `Send a token that is valid for at most ${durationText(longest)}, as RADSERVE_TOKEN_MAX_AGE says.`,
  });
}

/** @param exp seconds since 1970 @throws "Token expired" */
export function refuseExpired(exp: number, who: TokenRefused["who"]): void {
  if (exp * 1000 <= Date.now())
    throw errors.unauthorized("Token expired", undefined, {
      cause: new TokenRefused("expired", who),
    });
}

/**
 * The value of a header. RFC 9110, 5.6.3: blanks around it are spaces and tabs; others would be
 * part of the token.
 */
export const withoutBlanks = (value: string): string => withoutEnds(value, " \t");

/**
 * Checks an Authorization header. Throws unauthorized with exactly "Token missing", "Token expired"
 * or "Invalid token"; a `Bearer ` prefix is the last, with a hint in the details, and so is a token
 * that lives longer than the settings allow. Throws revocations_unavailable for a good token where
 * the revoked ones cannot be listed.
 */
export function authenticate(
  header: string | undefined,
  keyring: Keyring,
  expected: Expectations = {},
): Caller {
  const token = withoutBlanks(header ?? "");
  if (token === "")
    throw errors.unauthorized("Token missing", undefined, { cause: new TokenRefused("missing") });
  if (/^bearer(\s|$)/i.test(token))
    throw invalid("bearer", {
      hint: 'Send the token alone, without "Bearer ", as the value of Authorization.',
    });
  if (keyring.keys().length === 0) throw keysMissing(new TokenRefused("keys_missing"));
  const claims = knownClaims(token, keyring.keys(), expected);
  const { sub, exp, iat, jti, admin, input_roots, output_roots, destinations } = claims;
  const who = { subject: sub, jti };
  if (jti !== undefined && keyring.isRevoked(jti)) throw invalid(new TokenRefused("revoked", who));
  refuseExpired(exp, who);
  refuseLongLife({ exp, iat }, expected.token_max_age, who);
  if (!keyring.listsRevoked())
    throw revocationsUnavailable(new TokenRefused("revocations_unavailable", who));
  return {
    subject: sub,
    admin: admin === true,
    jti,
    inputRoots: input_roots,
    outputRoots: output_roots,
    ...(destinations === undefined ? {} : { destinations }),
  };
}

/** No token can be checked, and the server is not ready. */
export function keysMissing(cause?: TokenRefused): RadserveError {
  return errors.keys_missing(
    "Expected keys to check tokens with; the keys folder of this node is empty. Its share is probably not mounted. Tell the " +
      "administrator of the server.",
    undefined,
    { cause },
  );
}

/**
 * Nobody can say which tokens are revoked: every request with a token is refused with it, and the
 * server is not ready.
 */
export function revocationsUnavailable(cause?: TokenRefused): RadserveError {
  return errors.revocations_unavailable(
    "Expected to see which tokens are revoked; the keys folder has lost them, and the server's log says so. " +
      "Tell the administrator of the server.",
    undefined,
    { cause },
  );
}

export interface IssueOptions extends Expectations {
  subject: string;
  lifetimeSeconds: number;
  admin?: boolean;
  inputRoots?: string[] | undefined;
  outputRoots?: string[] | undefined;
  destinations?: string[] | undefined;
}

/** Signs a token. The record is what may be kept of it. */
export function issueToken(
  key: Key & { sign: NonNullable<Key["sign"]> },
  options: IssueOptions,
): { token: string; record: TokenRecord } {
  const issued = Math.floor(Date.now() / 1000);
  const expires = issued + options.lifetimeSeconds;
  const jti = randomBytes(12).toString("hex");
  const { inputRoots: input_roots, outputRoots: output_roots, destinations } = options;
  const narrowed = { input_roots, output_roots, destinations };
  const claims = {
    sub: options.subject,
    jti,
    iat: issued,
    exp: expires,
    ...(options.admin === true ? { admin: true } : {}),
    ...(options.issuer === undefined ? {} : { iss: options.issuer }),
    ...(options.audience === undefined ? {} : { aud: options.audience }),
    ...narrowed,
  };
  const algorithm: Algorithm = key.algorithm;
  const record: TokenRecord = {
    jti,
    sub: options.subject,
    kid: key.kid,
    issued: new Date(issued * 1000).toISOString(),
    expires: new Date(expires * 1000).toISOString(),
    admin: options.admin === true,
    ...narrowed,
  };
  return { token: jwt.sign(claims, key.sign, { algorithm, keyid: key.kid }), record };
}
