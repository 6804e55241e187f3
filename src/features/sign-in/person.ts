/**
 * Who is signed in: the token that a trusted proxy sends in a header of its own (OpenID Connect
 * Core 1.0, 3.1.3.7), and what the roles in it may do.
 */
import type { IncomingMessage } from "node:http";
import { z } from "zod";
import { errors } from "../../base/errors.js";
import { Networks, plainAddress } from "../../base/networks.js";
import { keepable } from "../../base/validation.js";
import { ownValue } from "../../base/own-value.js";
import {
  fits,
  headerOf,
  invalid,
  refuseExpired,
  signedClaims,
  TokenRefused,
  withoutBlanks,
  type Caller,
} from "../../server/tokens.js";
import type { KeySet } from "./key-set.js";
import { isFromOwnSite } from "./own-site.js";
import type { RoleRights, SignInSettings } from "./settings.js";

/**
 * Before the name that the issuer knows a person by: a person is never the subject of a token that
 * was made here, whatever name somebody chose there.
 */
const PREFIX = "oidc:";

const claimsSchema = z.record(z.string(), z.unknown());
const subjectSchema = z
  .string()
  .min(1)
  .max(250)
  .refine((text) => keepable(text) === text);
const rolesSchema = z.union([
  z.undefined().transform(() => []),
  z.string().transform((role) => [role]),
  z.array(z.string()),
]);

type Rights = Pick<Caller, "admin" | "inputRoots" | "outputRoots" | "destinations">;

/** What any of the roles may do; undefined where there is none. */
function rightsOf([first, ...others]: readonly RoleRights[]): Rights | undefined {
  if (first === undefined) return undefined;
  const all = [first, ...others];
  const joined = (lists: readonly (readonly string[] | undefined)[]) =>
    lists.some((list) => list === undefined) ? undefined : lists.flatMap((list) => list ?? []);
  return {
    admin: all.some(({ admin }) => admin),
    inputRoots: joined(all.map((one) => one.input_roots)),
    outputRoots: joined(all.map((one) => one.output_roots)),
    destinations: joined(all.map((one) => one.destinations)),
  };
}

export class SignIn {
  readonly #trusted: Networks;

  /** @param proxies addresses and networks whose word is taken */
  constructor(
    private readonly settings: SignInSettings,
    private readonly keys: KeySet,
    proxies: readonly string[],
  ) {
    this.#trusted = new Networks(proxies);
  }

  /**
   * The person of a request that no token came with; undefined where no trusted proxy says who it
   * is.
   * @throws RadserveError unauthorized, role_missing, other_site, sign_in_unavailable
   */
  async callerOf(request: IncomingMessage): Promise<Caller | undefined> {
    const { header, origin, roles_claim, roles } = this.settings;
    const peer = plainAddress(request.socket.remoteAddress);
    if (peer === undefined || !this.#trusted.has(peer)) return undefined;
    const [token = "", ...others] = (request.headersDistinct[header] ?? []).map(withoutBlanks);
    if (others.length > 0) throw invalid("several");
    if (token === "") return undefined;
    const { subject, held } = await this.#personOf(token);
    const refusal = (reason: string) => ({ cause: new TokenRefused(reason, { subject }) });
    if (!isFromOwnSite(request, origin))
      throw errors.other_site(
        `Expected a request of the page at ${origin}; found one that another site made, or that does not say where it comes from. Programs send a token in Authorization.`,
        undefined,
        refusal("other_site"),
      );
    const rights = rightsOf(roles.filter(({ role }) => held.has(role)));
    if (rights === undefined)
      throw errors.role_missing(
        `Expected a role that this server knows, in the claim ${roles_claim}; found none. Ask the administrator of the server.`,
        undefined,
        refusal("role_missing"),
      );
    return { subject, jti: undefined, signedIn: "oidc", ...rights };
  }

  async #personOf(token: string): Promise<{ subject: string; held: ReadonlySet<string> }> {
    const { issuer, audience, subject_claim, roles_claim } = this.settings;
    const form = headerOf(token);
    const keys = await this.keys.with((known) => known.some((key) => fits(key, form)));
    const claims = claimsSchema.safeParse(
      signedClaims(token, form, keys, { issuer, audience, hasOtherClock: true }),
    ).data;
    if (claims === undefined) throw invalid("claims");
    const name = subjectSchema.safeParse(ownValue(claims, subject_claim)).data;
    const held = rolesSchema.safeParse(ownValue(claims, roles_claim)).data;
    const exp = z.number().safeParse(ownValue(claims, "exp")).data;
    if (name === undefined || held === undefined || exp === undefined) throw invalid("claims");
    const subject = PREFIX + name;
    refuseExpired(exp, { subject });
    return { subject, held: new Set(held) };
  }
}
