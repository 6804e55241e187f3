/**
 * Key files: one JSON file for each key, and what makes it good enough to sign and check with. A
 * folder holds keys for one purpose: tokens, or results.
 */
import {
  createPrivateKey,
  createPublicKey,
  createSecretKey,
  randomBytes,
  type KeyObject,
} from "node:crypto";
import { readdirSync, statSync } from "node:fs";
import path from "node:path";
import { z } from "zod";
import { ConfigError } from "../base/errors.js";
import { problemsOf } from "../base/validation.js";
import { errno } from "../base/errno.js";
import { storedJson } from "../base/stored-json.js";
import { createPrivately, makePrivateFolder } from "./private-file.js";
import { textOfRegularSync } from "./regular-file.js";

export type Algorithm = "HS256" | "RS256" | "ES256";

const common = {
  kid: z.string().regex(/^[A-Za-z0-9_-]{1,64}$/, "Expected 1 to 64 of A-Z, a-z, 0-9, _ and -"),
  created: z.iso.datetime("Expected a time in UTC, for example 2026-11-21T10:00:00.000Z"),
};
const pair = { public_key: z.string().min(1), private_key: z.string().min(1).optional() };

/** Asymmetric keys are in PEM. The private key is needed only where tokens are issued. */
const keyFileSchema = z.discriminatedUnion(
  "algorithm",
  [
    z.strictObject({
      ...common,
      algorithm: z.literal("HS256"),
      secret: z.base64url("Expected base64url: A-Z, a-z, 0-9, - and _, without = and line ends"),
    }),
    z.strictObject({ ...common, algorithm: z.literal("RS256"), ...pair }),
    z.strictObject({ ...common, algorithm: z.literal("ES256"), ...pair }),
  ],
  "Expected HS256, RS256 or ES256",
);
export type KeyFile = z.infer<typeof keyFileSchema>;

export interface Key {
  kid: string;
  algorithm: Algorithm;
  created: string;
  verify: KeyObject;
  /** Undefined for a public key alone: it checks tokens and issues none. */
  sign: KeyObject | undefined;
}

const SMALLEST_SECRET = 32;
const SMALLEST_MODULUS = 2048;

function hmacKey(secret: string): KeyObject {
  const bytes = Buffer.from(secret, "base64url");
  if (bytes.length < SMALLEST_SECRET)
    throw new ConfigError(
      `secret: expected at least ${SMALLEST_SECRET} bytes (base64url); found ${bytes.length}.`,
    );
  if (bytes.includes("-----BEGIN"))
    throw new ConfigError(
      "secret: expected random bytes; found a PEM key, which anybody may know.",
    );
  return createSecretKey(bytes);
}

function checkAsymmetric(algorithm: "RS256" | "ES256", key: KeyObject): void {
  const { modulusLength, namedCurve } = key.asymmetricKeyDetails ?? {};
  if (algorithm === "ES256") {
    if (key.asymmetricKeyType !== "ec" || namedCurve !== "prime256v1")
      throw new ConfigError(
        `public_key: expected a P-256 key for ES256; found ${namedCurve ?? key.asymmetricKeyType ?? "none"}.`,
      );
    return;
  }
  if (
    key.asymmetricKeyType !== "rsa" ||
    modulusLength === undefined ||
    modulusLength < SMALLEST_MODULUS
  )
    throw new ConfigError(
      `public_key: expected an RSA key of at least ${SMALLEST_MODULUS} bits for RS256; found ${modulusLength ?? key.asymmetricKeyType ?? "none"}.`,
    );
}

/** OpenSSL's own message names neither the field nor what it wants. */
function pemKey(field: string, text: string, read: (text: string) => KeyObject): KeyObject {
  try {
    return read(text);
  } catch {
    throw new ConfigError(
      `${field}: expected a key in PEM, without a passphrase; it cannot be read.`,
    );
  }
}

/** node would derive the public key from a private one, whose file anybody may read. */
function publicKey(text: string): KeyObject {
  if (text.includes("PRIVATE KEY-----"))
    throw new ConfigError(
      "public_key: expected a public key (-----BEGIN PUBLIC KEY-----); found a private one. Take it out, " +
        "and if others could read the file, make a new pair.",
    );
  return pemKey("public_key", text, createPublicKey);
}

export function keyOf(file: KeyFile): Key {
  const { kid, algorithm, created } = file;
  if (file.algorithm === "HS256") {
    const secret = hmacKey(file.secret);
    return { kid, algorithm, created, verify: secret, sign: secret };
  }
  const verify = publicKey(file.public_key);
  checkAsymmetric(file.algorithm, verify);
  if (file.private_key === undefined) return { kid, algorithm, created, verify, sign: undefined };
  const sign = pemKey("private_key", file.private_key, createPrivateKey);
  if (!createPublicKey(sign).equals(verify))
    throw new ConfigError("private_key: expected the pair of public_key; found another key.");
  return { kid, algorithm, created, verify, sign };
}

function jsonOf(text: string): unknown {
  const value = storedJson(text);
  // A parser's own message quotes the text, which may be a secret
  if (value === undefined)
    throw new ConfigError("expected JSON with each field once; it cannot be parsed.");
  return value;
}

/**
 * Reads one key file. Throws ConfigError naming the file and what is wrong with it, never what it
 * holds.
 */
export function readKeyFile(file: string): Key {
  try {
    const mode = statSync(file).mode & 0o777;
    const value = jsonOf(textOfRegularSync(file));
    const parsed = keyFileSchema.safeParse(value);
    if (!parsed.success)
      throw new ConfigError(
        problemsOf(keyFileSchema, value, parsed.error)
          // The message does not quote the file: its text could be a secret in the wrong place.
          .map(({ field, message }) => `${field}: ${message.replace(/; found .*/s, "")}`)
          .join("; "),
      );
    const key = keyOf(parsed.data);
    if (key.sign !== undefined && (mode & 0o077) !== 0)
      throw new ConfigError(
        `expected mode 600, so that no other user reads it; found ${mode.toString(8)}. Run chmod 600.`,
      );
    return key;
  } catch (error) {
    throw new ConfigError(
      `Key file ${file}: ${error instanceof Error ? error.message : "cannot be read"}`,
    );
  }
}

/**
 * The names in a folder, sorted; none if it does not exist. Throws ConfigError if it cannot be
 * listed.
 */
export function namesIn(folder: string): string[] {
  try {
    return readdirSync(folder).sort();
  } catch (error) {
    if (errno(error) === "ENOENT") return [];
    throw new ConfigError(
      `${folder}: cannot be listed (${error instanceof Error ? error.message : "unknown"}).`,
    );
  }
}

export const isKeyFile = (name: string) => name.endsWith(".json") && !name.startsWith(".");

export interface FoundKeys {
  keys: Key[];
  /** One sentence for each file that is left out, naming it and what is wrong with it. */
  problems: string[];
}

/**
 * The good keys of a folder, in the order of file names; none where it does not exist. If two have
 * one kid, the first counts. Throws ConfigError where the folder cannot be listed.
 */
export function readKeys(folder: string): FoundKeys {
  const found: FoundKeys = { keys: [], problems: [] };
  for (const name of namesIn(folder).filter(isKeyFile)) {
    const file = path.join(folder, name);
    try {
      const key = readKeyFile(file);
      if (found.keys.some(({ kid }) => kid === key.kid))
        found.problems.push(
          `Key file ${file}: another file before it has the kid ${key.kid}; each needs its own.`,
        );
      else found.keys.push(key);
    } catch (error) {
      found.problems.push(
        error instanceof Error ? error.message : `Key file ${file}: cannot be read`,
      );
    }
  }
  return found;
}

/**
 * Makes the folder where it is missing, and in it a random HS256 secret.
 * @param after time of a key that this one must be newer than, though clocks differ
 */
export async function createKey(folder: string, after = ""): Promise<Key> {
  makePrivateFolder(folder);
  const kid = randomBytes(6).toString("hex");
  const file: KeyFile = {
    kid,
    algorithm: "HS256",
    created: new Date(Math.max(Date.now(), after === "" ? 0 : Date.parse(after) + 1)).toISOString(),
    secret: randomBytes(48).toString("base64url"),
  };
  await createPrivately(path.join(folder, `${kid}.json`), `${JSON.stringify(file, null, 2)}\n`);
  return keyOf(file);
}

/** Another where the file is another, or was changed. */
export function stampOf(file: string): string {
  const found = statSync(file, { bigint: true, throwIfNoEntry: false });
  return found === undefined
    ? file
    : `${file} ${found.ino} ${found.size} ${found.mtimeNs} ${found.mode}`;
}

/** The newest key that can sign; undefined where there is none. */
export function signingKey(keys: readonly Key[]): Key | undefined {
  return keys
    .filter((key) => key.sign !== undefined)
    .sort((a, b) => b.created.localeCompare(a.created))
    .at(0);
}
