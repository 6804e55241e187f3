/**
 * What each endpoint asks of a token: every endpoint of the server with every claim, held against
 * the table that docs/security.md shows.
 */
import t from "tap";
import { servingFeatures } from "../../src/features.js";
import { CLAIMS, type TokenClaim } from "../../src/server/route.js";
import { routesOf } from "../../src/server/routes.js";
import { claimTries, SUBJECT } from "../support/claim-tries.js";
import { ADDON, needs } from "../support/needs.js";
import { issueToken } from "../support/server.js";

const ROUTES = routesOf(await servingFeatures()).filter(({ auth }) => auth === undefined);

t.test("each endpoint asks of a token what the table says", { skip: needs(ADDON) }, async (t) => {
  const { place, full, tries, input: at, output: out } = await claimTries(t);
  const narrowed: Record<TokenClaim, string> = {
    subject: await issueToken(place, "--subject", "somebody"),
    admin: await issueToken(place, "--subject", SUBJECT),
    input_roots: await issueToken(place, "--admin", "--input-root", at("other")),
    output_roots: await issueToken(place, "--admin", "--output-root", out("other")),
    destinations: await issueToken(place, "--admin", "--no-deliver"),
  };
  // A feature that is not there has no endpoints to try
  const untried = ROUTES.map(({ id }) => id).filter((id) => !(id in tries));
  t.same(untried, [], "each endpoint is tried");

  for (const { id, method, path: page, claims } of ROUTES) {
    const attempt = tries[id];
    if (attempt === undefined) continue;
    const got = new Map<TokenClaim, string>();
    for (const claim of CLAIMS) got.set(claim, await attempt(narrowed[claim]));
    const usual = await attempt(full);
    for (const claim of CLAIMS) {
      // Whoever is another has no claim admin either
      const asks = claims.includes(claim) || (claim === "subject" && claims.includes("admin"));
      const what = `${method} ${page}, ${claim}: ${got.get(claim)} where all is ${usual}`;
      t.equal(got.get(claim) !== usual, asks, what);
    }
  }
});
