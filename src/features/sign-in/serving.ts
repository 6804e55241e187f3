/** Sign-in in a server: what the page asks for, and the file that is read again. */
import { z } from "zod";
import { ConfigError } from "../../base/errors.js";
import { conditionsFrom } from "../../server/condition.js";
import type { Core, ServingFeature } from "../../server/feature.js";
import { at } from "../../server/route.js";
import { FeatureName, type Running, type SignedIn } from "../../server/running-features.js";
import type { Endpoint } from "../../server/services.js";
import { fileOf } from "./setting.js";

interface Signing extends Running {
  people: SignedIn;
  /** Where the page goes to sign somebody out. */
  signOut: () => string;
}
const SIGN_IN = new FeatureName<Signing>("sign-in");

const REMEDIES = {
  sign_in_unavailable:
    "Let this machine reach the address of jwks in the file of RADSERVE_SIGN_IN, or correct it. Tokens are not affected.",
  sign_in_file_refused: "Correct the file, then send SIGHUP. Until then the one of before holds.",
};
const of = conditionsFrom(REMEDIES);

const signInSchema = z.strictObject({
  enabled: z.boolean().describe("People may be signed in by a proxy"),
  subject: z.string().nullable().describe("Who is signed in; null where nobody is"),
  sign_out: z.string().nullable().describe("Address that signs them out"),
});

const showSignIn: Endpoint = {
  answer: { SignIn: signInSchema },
  async handler(ctx, { features }) {
    const running = features.of(SIGN_IN);
    const caller = await running?.people.callerOf(ctx.req);
    ctx.body = {
      enabled: running !== undefined,
      subject: caller?.subject ?? null,
      sign_out: running?.signOut() ?? null,
    } satisfies z.input<typeof signInSchema>;
  },
};

const endpoints = [
  at("GET /sign-in", "getSignIn", {
    claims: [],
    onWorkers: true,
    tag: "operations",
    auth: "open",
    summary: "Whom a proxy signed in, for the page",
    errors: ["unauthorized", "role_missing", "other_site", "sign_in_unavailable"],
    ...showSignIn,
  }),
];

async function start({ config, log }: Core): Promise<Signing | undefined> {
  if (fileOf(config) === undefined) return undefined;
  const { readSignIn } = await import("./settings.js");
  const { SignIn } = await import("./person.js");
  const { KeySet } = await import("./key-set.js");
  const load = () => {
    const settings = readSignIn(config);
    if (settings === undefined) throw new ConfigError("RADSERVE_SIGN_IN is not set.");
    const keys = new KeySet(settings.jwks);
    void keys.look();
    return { settings, keys, signIn: new SignIn(settings, keys, config.trusted_proxies) };
  };
  let inForce = load();
  let refused: string | undefined;
  return {
    people: { callerOf: (request) => inForce.signIn.callerOf(request) },
    signOut: () => inForce.settings.sign_out,
    conditions: () => [
      ...(refused === undefined ? [] : [of("sign_in_file_refused", "sign-in", refused)]),
      ...(inForce.keys.fault === undefined
        ? []
        : [
            of(
              "sign_in_unavailable",
              "sign-in",
              `The issuer's keys cannot be read (${inForce.keys.fault}).`,
            ),
          ]),
    ],
    look: () => inForce.keys.look(),
    reload() {
      try {
        inForce = load();
        refused = undefined;
        log.info({ roles: inForce.settings.roles.length }, "the file of sign-in was read again");
      } catch (error) {
        if (!(error instanceof ConfigError)) throw error;
        refused = error.message;
        log.error(
          { why: error.message },
          "the file of sign-in is wrong: the one of before stays in force",
        );
      }
      return Promise.resolve();
    },
  };
}

export const serving: ServingFeature<Signing> = { name: SIGN_IN, endpoints, start };
