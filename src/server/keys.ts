/**
 * The folder of keys: one JSON file a key, a record of each issued token (never the token), and a mark for each
 * revoked one. Many machines may share the folder; every change is one atomic file operation, and every reader
 * looks at it several times a second.
 */
import {
  createHash,
  createPrivateKey,
  createPublicKey,
  createSecretKey,
  randomBytes,
  type KeyObject,
} from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, statSync } from "node:fs";
import { link, mkdir, open, readdir, readFile, unlink } from "node:fs/promises";
import path from "node:path";
import { z } from "zod";
import { ConfigError } from "../base/errors.js";
import { problemsOf } from "../base/validation.js";
import { errno } from "../base/errno.js";

export const ALGORITHMS = ["HS256", "RS256", "ES256"] as const;
export type Algorithm = (typeof ALGORITHMS)[number];

const common = {
  kid: z.string().regex(/^[A-Za-z0-9_-]{1,64}$/, "Expected 1 to 64 of A-Z, a-z, 0-9, _ and -"),
  created: z.iso.datetime("Expected a time in UTC, for example 2026-11-21T10:00:00.000Z"),
};
const pair = { public_key: z.string().min(1), private_key: z.string().min(1).optional() };

/** PEM for the asymmetric ones; the private key is needed only where tokens are issued. */
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
type KeyFile = z.infer<typeof keyFileSchema>;

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
    throw new ConfigError("secret: expected random bytes; found a PEM key, which anybody may know.");
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
  if (key.asymmetricKeyType !== "rsa" || modulusLength === undefined || modulusLength < SMALLEST_MODULUS)
    throw new ConfigError(
      `public_key: expected an RSA key of at least ${SMALLEST_MODULUS} bits for RS256; found ${modulusLength ?? key.asymmetricKeyType ?? "none"}.`,
    );
}

/** OpenSSL's own message names neither the field nor what it wants. */
function pemKey(field: string, text: string, read: (text: string) => KeyObject): KeyObject {
  try {
    return read(text);
  } catch {
    throw new ConfigError(`${field}: expected a key in PEM, without a passphrase; it cannot be read.`);
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

function keyOf(file: KeyFile): Key {
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
  try {
    return JSON.parse(text) as unknown;
  } catch {
    // The parser's own message quotes the text, which may be a secret.
    throw new ConfigError("expected JSON; it cannot be parsed.");
  }
}

/** Reads one key file. Throws ConfigError naming the file and what is wrong with it, never what it holds. */
export function readKeyFile(file: string): Key {
  try {
    const mode = statSync(file).mode & 0o777;
    const value = jsonOf(readFileSync(file, "utf8"));
    const parsed = keyFileSchema.safeParse(value);
    if (!parsed.success)
      throw new ConfigError(
        problemsOf(keyFileSchema, value, parsed.error)
          // What was found stays out: it could be a secret in the wrong place.
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
    throw new ConfigError(`Key file ${file}: ${error instanceof Error ? error.message : "cannot be read"}`);
  }
}

const isKeyFile = (name: string) => name.endsWith(".json") && !name.startsWith(".");

export interface FoundKeys {
  keys: Key[];
  /** One sentence for each file that is left out, naming it and what is wrong with it. */
  problems: string[];
}

/**
 * The good keys of a folder, in the order of file names; none where it does not exist. Of two with one kid the first
 * counts. Throws ConfigError where the folder cannot be listed.
 */
export function readKeys(folder: string): FoundKeys {
  const found: FoundKeys = { keys: [], problems: [] };
  for (const name of namesIn(folder).filter(isKeyFile)) {
    const file = path.join(folder, name);
    try {
      const key = readKeyFile(file);
      if (found.keys.some(({ kid }) => kid === key.kid)) found.problems.push(kidTwice(file, key));
      else found.keys.push(key);
    } catch (error) {
      found.problems.push(error instanceof Error ? error.message : `Key file ${file}: cannot be read`);
    }
  }
  return found;
}

/** Refuses a folder that has no usable key, saying what is wrong with each file. */
export function someKeys(folder: string, { keys, problems }: FoundKeys): [Key, ...Key[]] {
  const [first, ...others] = keys;
  if (first !== undefined) return [first, ...others];
  throw new ConfigError(
    [
      `Expected a key in ${folder}; found ${problems.length === 0 ? "none" : "no usable one"}.`,
      ...problems,
    ].join("\n"),
  );
}

function kidTwice(file: string, { kid }: Key): string {
  return `Key file ${file}: another file before it has the kid ${kid}; each needs its own.`;
}

function namesIn(folder: string): string[] {
  try {
    return readdirSync(folder).sort();
  } catch (error) {
    if (errno(error) === "ENOENT") return [];
    throw new ConfigError(
      `${folder}: cannot be listed (${error instanceof Error ? error.message : "unknown"}).`,
    );
  }
}

/** Writes a file that appears whole or not at all, readable by its owner alone. Throws EEXIST where the name is taken. */
async function createPrivately(file: string, text: string): Promise<void> {
  const temporary = path.join(
    path.dirname(file),
    `.${path.basename(file)}.${randomBytes(6).toString("hex")}`,
  );
  const handle = await open(temporary, "wx", 0o600);
  try {
    await handle.writeFile(text);
    await handle.sync();
  } finally {
    await handle.close();
  }
  try {
    await link(temporary, file);
  } finally {
    await unlink(temporary);
  }
}

/**
 * Makes the folder where it is missing, and in it a random HS256 secret.
 * @param after time of a key that this one must be newer than, though clocks differ
 */
export async function createKey(folder: string, after = ""): Promise<Key> {
  mkdirSync(folder, { recursive: true, mode: 0o700 });
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

const tokenRecordSchema = z.object({
  jti: z.string(),
  sub: z.string(),
  kid: z.string(),
  issued: z.string(),
  expires: z.string(),
  admin: z.boolean(),
  input_roots: z.array(z.string()).optional(),
  output_roots: z.array(z.string()).optional(),
});

/** What is kept of an issued token. */
export type TokenRecord = z.infer<typeof tokenRecordSchema>;

/** File name of a token's record and of its revocation: any jti, also another issuer's, makes a safe one. */
function nameOf(jti: string): string {
  return createHash("sha256").update(jti).digest("hex");
}

const issuedIn = (folder: string) => path.join(folder, "tokens");
const revokedIn = (folder: string) => path.join(folder, "revoked");

export async function recordToken(folder: string, record: TokenRecord): Promise<void> {
  await mkdir(issuedIn(folder), { recursive: true, mode: 0o700 });
  await createPrivately(
    path.join(issuedIn(folder), nameOf(record.jti)),
    `${JSON.stringify(record, null, 2)}\n`,
  );
}

/** Issued tokens, oldest first, each with whether it was revoked. */
export async function listTokens(folder: string): Promise<(TokenRecord & { revoked: boolean })[]> {
  const revoked = new Set(namesIn(revokedIn(folder)));
  const names = namesIn(issuedIn(folder)).filter((name) => !name.startsWith("."));
  const records = await Promise.all(
    names.map(async (name) => {
      const text = await readFile(path.join(issuedIn(folder), name), "utf8");
      return { ...tokenRecordSchema.parse(JSON.parse(text)), revoked: revoked.has(name) };
    }),
  );
  return records.sort((a, b) => a.issued.localeCompare(b.issued));
}

/** Marks a token as revoked; every server that reads the folder refuses it within a second. */
export async function revokeToken(
  folder: string,
  jti: string,
): Promise<{ known: boolean; already: boolean }> {
  await mkdir(revokedIn(folder), { recursive: true, mode: 0o700 });
  const known = namesIn(issuedIn(folder)).includes(nameOf(jti));
  try {
    await createPrivately(path.join(revokedIn(folder), nameOf(jti)), "");
    return { known, already: false };
  } catch (error) {
    if (errno(error) === "EEXIST") return { known, already: true };
    throw error;
  }
}

export interface Keyring {
  keys(): readonly Key[];
  isRevoked(jti: string): boolean;
}

const LOOK_EVERY_MS = 300;

/**
 * The keys and revocations of a running server. It lists the folder again and again instead of watching it, because
 * change notifications do not cross network folders and directory times are coarse there.
 */
export class WatchedKeys implements Keyring {
  #keys: Key[] = [];
  #files = new Map<string, { stamp: string; key: Key | undefined }>();
  #revoked = new Set<string>();
  #timer: NodeJS.Timeout | undefined;
  #closed = false;
  #unreadable = false;

  /** Broken key files are reported and left out. Throws ConfigError where no usable key is left at the start. */
  constructor(
    private readonly folder: string,
    private readonly report: (message: string) => void,
  ) {
    this.#reread(namesIn(folder).filter(isKeyFile));
    someKeys(folder, { keys: this.#keys, problems: [] });
    this.#revoked = new Set(namesIn(revokedIn(folder)));
    this.#schedule();
  }

  keys(): readonly Key[] {
    return this.#keys;
  }

  isRevoked(jti: string): boolean {
    return this.#revoked.has(nameOf(jti));
  }

  close(): void {
    this.#closed = true;
    clearTimeout(this.#timer);
  }

  #schedule(): void {
    if (this.#closed) return;
    this.#timer = setTimeout(() => {
      void this.#look().finally(() => this.#schedule());
    }, LOOK_EVERY_MS);
    this.#timer.unref();
  }

  /** Where the folder cannot be read, what was known stays in force. */
  async #look(): Promise<void> {
    try {
      const names = await readdir(this.folder);
      const revoked = names.includes("revoked") ? await readdir(revokedIn(this.folder)) : [];
      this.#revoked = new Set(revoked);
      this.#reread(names.filter(isKeyFile).sort());
      this.#unreadable = false;
    } catch (error) {
      if (this.#unreadable) return;
      this.#unreadable = true;
      const code = errno(error) || "unknown";
      this.report(`The keys folder cannot be read (${code}); the keys known before stay in force.`);
    }
  }

  /** Key files are read again only when their size or times changed. */
  #reread(names: string[]): void {
    const before = this.#files;
    this.#files = new Map();
    const byKid = new Map<string, Key>();
    for (const name of names) {
      const file = path.join(this.folder, name);
      const found = statSync(file, { throwIfNoEntry: false });
      if (found === undefined) continue;
      const stamp = `${found.ino} ${found.size} ${found.mtimeMs} ${found.mode}`;
      const known = before.get(name);
      const fresh = known?.stamp !== stamp;
      const key = fresh ? this.#tryRead(file) : known.key;
      this.#files.set(name, { stamp, key });
      if (key === undefined) continue;
      if (!byKid.has(key.kid)) byKid.set(key.kid, key);
      else if (fresh) this.report(kidTwice(file, key));
    }
    this.#keys = [...byKid.values()];
  }

  #tryRead(file: string): Key | undefined {
    try {
      return readKeyFile(file);
    } catch (error) {
      this.report(error instanceof Error ? error.message : "A key file cannot be read.");
      return undefined;
    }
  }
}
