/**
 * The contract (openapi.yaml) is the list of endpoints: each has its row in docs/security.md and is
 * called with tokens that are narrowed in other ways than the usual ones, or only seem to be.
 */
import { mkdirSync, readFileSync, symlinkSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { parse } from "yaml";
import { GATEWAY_SUBJECT } from "../../src/features/gateway/subject.js";
import { CLAIMS, type TokenClaim } from "../../src/server/route.js";
import { claimTries, SUBJECT } from "../support/claim-tries.js";
import { ADDON, needs } from "../support/needs.js";
import { issueToken, root } from "../support/server.js";

interface Operation {
  operationId: string;
  security?: object[];
}
const textOf = (file: string) => readFileSync(path.join(root, file), "utf8");
const { paths } = parse(textOf("openapi.yaml"), { maxAliasCount: -1 }) as {
  paths: Record<string, Record<string, Operation>>;
};
const METHODS = ["get", "put", "post", "delete", "patch", "head", "options"];
const OPERATIONS = Object.entries(paths).flatMap(([page, item]) =>
  Object.entries(item)
    .filter(([method]) => METHODS.includes(method))
    .map(([method, { operationId: id, security = [] }]) => ({
      id,
      endpoint: `${method.toUpperCase()} ${page}`,
      /** It may be answered without one where an empty requirement stands beside it. */
      needsToken: security.length > 0 && security.every((one) => Object.keys(one).length > 0),
    })),
);

/** The claims that docs/security.md names, by endpoint; undefined where it asks for no token. */
function documented(): Map<string, readonly TokenClaim[] | undefined> {
  const [, table = ""] = textOf("docs/security.md").split("<!-- claims -->");
  const rows = table.split("\n\n")[0]!.trim().split("\n").slice(2);
  return new Map(
    rows.map((row) => {
      const [, endpoint = "", token, ...cells] = row.split("|").map((cell) => cell.trim());
      const claims = CLAIMS.filter((_, at) => cells[at] === "yes");
      return [endpoint.replaceAll("`", ""), token === "yes" ? claims : undefined];
    }),
  );
}

t.test("each endpoint of the contract has its row, and each row its endpoint", (t) => {
  const rows = documented();
  t.same([...rows.keys()].sort(), OPERATIONS.map(({ endpoint }) => endpoint).sort());
  for (const { endpoint, needsToken } of OPERATIONS)
    t.equal(rows.get(endpoint) !== undefined, needsToken, `${endpoint} needs a token`);
  t.end();
});

/** What a token changes: an endpoint that names one of these claims gives it something else. */
type Narrows = readonly TokenClaim[];
/** Another subject, which has no claim `admin`. */
const A_STRANGER: Narrows = ["subject", "admin"];
const NOTHING: Narrows = [];

t.test("tokens that are narrowed otherwise, or not at all", { skip: needs(ADDON) }, async (t) => {
  const { place, full, tries, input, output } = await claimTries(t);
  // Beside jobs, image.dcm and received: the beginning of a name is no folder of that name
  for (const at of [input, output])
    for (const name of ["job", "rec", "im"]) mkdirSync(at(name), { recursive: true });
  symlinkSync(input("other"), input("link"));
  symlinkSync(output("other"), output("link"));
  const narrowed: Record<string, [Narrows, ...string[]]> = {
    "another destination": [["destinations"], "--admin", "--destination", "elsewhere"],
    "its own destination": [NOTHING, "--admin", "--destination", "pacs"],
    "two destinations": [NOTHING, "--admin", "--destination", "elsewhere", "--destination", "pacs"],
    "roots whose names are beginnings of others": [
      ["input_roots", "output_roots"],
      "--admin",
      ...["job", "rec", "im"].flatMap((name) => [
        "--input-root",
        input(name),
        "--output-root",
        output(name),
      ]),
    ],
    "roots through links": [
      ["input_roots", "output_roots"],
      "--admin",
      "--input-root",
      input("link"),
      "--output-root",
      output("link"),
    ],
    "the roots themselves, beside narrower ones": [
      NOTHING,
      "--admin",
      "--input-root",
      input("other"),
      "--input-root",
      input(),
      "--output-root",
      output("other"),
      "--output-root",
      output(),
    ],
    "everything narrowed at once": [
      CLAIMS,
      "--subject",
      "somebody",
      "--no-deliver",
      "--input-root",
      input("other"),
      "--output-root",
      output("other"),
    ],
    "the gateway's subject": [["subject"], "--subject", GATEWAY_SUBJECT],
    "nearly the gateway's subject": [A_STRANGER, "--subject", "Gateway"],
    "a subject that begins with another": [A_STRANGER, "--subject", `${SUBJECT}2`],
  };
  const tokens = new Map<string, { narrows: Narrows; token: string }>();
  for (const [name, [narrows, ...words]] of Object.entries(narrowed))
    tokens.set(name, { narrows, token: await issueToken(place, ...words) });

  const rows = documented();
  const asking = OPERATIONS.filter(({ needsToken }) => needsToken);
  t.same(
    asking.filter(({ id }) => !(id in tries)),
    [],
    "each endpoint that needs a token is called",
  );
  for (const { id, endpoint } of asking) {
    const attempt = tries[id];
    if (attempt === undefined) continue;
    const claims = rows.get(endpoint) ?? [];
    const got = new Map<string, string>();
    for (const [name, { token }] of tokens) got.set(name, await attempt(token));
    const usual = await attempt(full);
    for (const [name, { narrows }] of tokens) {
      const asks = narrows.some((claim) => claims.includes(claim));
      t.equal(
        got.get(name) !== usual,
        asks,
        `${endpoint}, ${name}: ${got.get(name)} where all is ${usual}`,
      );
    }
  }
});
