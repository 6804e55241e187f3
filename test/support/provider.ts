/** Who signs people in (oidc-provider), and blocks of docs/page.md, for tests of proxies. */
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import path from "node:path";
import Provider from "oidc-provider";
import type { Browser, BrowserContext, Page } from "playwright-core";
import type { Test } from "tap";
import { TestCa } from "./certificates.js";
import { startBrowser } from "./looks.js";
import { blocksOf } from "./pages.js";
import { freePort, startServer, type Place, type TestServer } from "./server.js";
import { LONGEST_WAIT_MS } from "./until.js";

const PAGE = "docs/page.md";
/** A block of the page, with other places in it. */
export function shown(first: string, places: Readonly<Record<string, string>>): string {
  const block = blocksOf(PAGE).find(({ lines }) => lines.join("\n").includes(first));
  if (block === undefined) throw new Error(`${PAGE} has no block with ${first}`);
  return Object.entries(places).reduce(
    (text, [from, to]) => text.replaceAll(from, to),
    block.lines.join("\n"),
  );
}

const GROUPS: Readonly<Record<string, string[]>> = {
  alice: ["radiology"],
  root: ["radserve-administrators"],
  guest: ["visitors"],
};
export const SECRET = "a-secret-of-the-client-that-is-long";

/** They choose a name, and any password does. @returns its address */
export async function startProvider(t: Test, origin: string): Promise<string> {
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  const provider = new Provider(url, {
    clients: [
      {
        client_id: "radserve",
        client_secret: SECRET,
        redirect_uris: [`${origin}/oauth2/callback`],
        post_logout_redirect_uris: [`${origin}/`],
      },
    ],
    cookies: { keys: [SECRET] },
    claims: { openid: ["sub"], groups: ["groups"] },
    // The proxies read the ID token alone
    conformIdTokenClaims: false,
    findAccount: (_, id) => ({
      accountId: id,
      claims: () => ({ sub: id, groups: GROUPS[id] ?? [] }),
    }),
  });
  const server = provider.listen(port, "127.0.0.1");
  await once(server, "listening");
  t.teardown(() => {
    server.close();
    server.closeAllConnections();
  });
  return url;
}

/**
 * A server that believes who a proxy says is signed in, as the page shows it, and in `folder` the
 * proxy's certificate.
 * @param places what stands for the page's own in this test
 */
export async function startBehindProxy(
  t: Test,
  place: Place,
  folder: string,
  places: Readonly<Record<string, string>>,
): Promise<TestServer> {
  const signIn = path.join(folder, "sign-in.json");
  writeFileSync(signIn, shown('"header"', places));
  place.environment["RADSERVE_SIGN_IN"] = signIn;
  const server = await startServer(place);
  t.teardown(() => server.stop());
  const { cert, key } = new TestCa().issue().pem;
  writeFileSync(path.join(folder, "radserve.crt"), cert);
  writeFileSync(path.join(folder, "radserve.key"), key);
  return server;
}

/** A browser that trusts the certificates of tests, with a page in it. */
export async function openBrowser(
  t: Test,
): Promise<{ browser: Browser; context: BrowserContext; page: Page }> {
  const browser = await startBrowser(t);
  const context = await browser.newContext({ ignoreHTTPSErrors: true });
  context.setDefaultTimeout(LONGEST_WAIT_MS);
  return { browser, context, page: await context.newPage() };
}

/** Chooses a name where the issuer asks for it, and agrees. */
export async function signInAs(page: Page, name: string): Promise<void> {
  await page.locator("input[name=login]").fill(name);
  await page.locator("input[name=password]").fill("any");
  await page.locator("button[type=submit]").click();
  await page.getByRole("button", { name: "Continue" }).click();
}
