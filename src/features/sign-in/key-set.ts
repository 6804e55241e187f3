/**
 * The issuer's public keys (JWKS, RFC 7517), from its address or from a file. They are looked at
 * again after ten minutes, and where a token names a key that is not known, so that keys may be
 * rotated. While they cannot be read the known ones hold for an hour.
 */
import { createPublicKey } from "node:crypto";
import { JwksClient, type SigningKey } from "jwks-rsa";
import { durations } from "../../base/durations.js";
import { errno } from "../../base/errno.js";
import { errors } from "../../base/errors.js";
import { monotonic } from "../../base/monotonic.js";
import { within } from "../../base/waiting.js";
import { textOfRegular } from "../../files/regular-file.js";
import type { CheckingKey } from "../../server/tokens.js";

/** Bits; RS256 asks for them (RFC 7518, 3.3). */
const SMALLEST_MODULUS = 2048;

/** Nothing where it is no key for RS256 or ES256, or says that it is for another algorithm. */
function checkingKey(found: SigningKey): CheckingKey[] {
  const verify = createPublicKey(found.getPublicKey());
  const { modulusLength = 0, namedCurve } = verify.asymmetricKeyDetails ?? {};
  const { asymmetricKeyType: type } = verify;
  const algorithm =
    type === "rsa" && modulusLength >= SMALLEST_MODULUS
      ? "RS256"
      : type === "ec" && namedCurve === "prime256v1"
        ? "ES256"
        : undefined;
  const alg: unknown = found.alg;
  if (algorithm === undefined || (alg !== undefined && alg !== algorithm)) return [];
  return [{ kid: found.kid, algorithm, verify }];
}

export class KeySet {
  readonly #client: JwksClient;
  #keys: readonly CheckingKey[] = [];
  /** When they came last, and when they were asked for last; by `monotonic`. */
  #came = -Infinity;
  #asked = -Infinity;
  #asking: Promise<void> | undefined;
  #fault: string | undefined;

  /** @param place an address of http or https, or a path */
  constructor(place: string) {
    const fetcher = async () => JSON.parse(await textOfRegular(place)) as { keys: unknown };
    this.#client = new JwksClient({
      jwksUri: place,
      // What is kept, and how often it is asked, is decided here
      cache: false,
      timeout: durations.signInAnswer,
      ...(place.startsWith("/") ? { fetcher } : {}),
    });
  }

  /** Why they could not be read last; undefined while they can. */
  get fault(): string | undefined {
    return this.#fault;
  }

  get count(): number {
    return this.#keys.length;
  }

  /** Asks for them where they are old, and not more often than it should. Throws nothing. */
  async look(): Promise<void> {
    const age = monotonic() - this.#came;
    if (this.#fault !== undefined || age >= durations.signInKeys) await this.#ask();
  }

  /**
   * The keys that hold now.
   * @param isKnown whether there is the one that is looked for
   * @throws RadserveError sign_in_unavailable where nobody knows them
   */
  async with(isKnown: (keys: readonly CheckingKey[]) => boolean): Promise<readonly CheckingKey[]> {
    const hold = () => monotonic() - this.#came < durations.signInKeysLast;
    if (isKnown(this.#keys) && hold()) void this.look();
    else await this.#ask();
    if (hold()) return this.#keys;
    this.#keys = [];
    throw errors.sign_in_unavailable(
      `Expected the public keys of the issuer, to check who is signed in; they cannot be read (${this.#fault ?? "no answer"}). ` +
        "Tell the administrator of the server.",
    );
  }

  async #ask(): Promise<void> {
    if (this.#asking === undefined && monotonic() - this.#asked < durations.signInAgain) return;
    this.#asked = monotonic();
    await (this.#asking ??= this.#read().finally(() => (this.#asking = undefined)));
  }

  async #read(): Promise<void> {
    let found: readonly SigningKey[] = [];
    try {
      const asked = this.#client.getSigningKeys().then((keys) => (found = keys));
      if (!(await within(asked, durations.signInAnswer))) throw new Error("no answer in time");
      const keys = found.flatMap(checkingKey);
      if (keys.length === 0) throw new Error("no key for RS256 or ES256");
      this.#keys = keys;
      this.#came = monotonic();
      this.#fault = undefined;
    } catch (error) {
      this.#fault = errno(error) || (error instanceof Error ? error.message : "no answer");
    }
  }
}
