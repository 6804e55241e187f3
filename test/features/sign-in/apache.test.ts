/**
 * Sign-in as docs/page.md shows it: Chromium, Apache with mod_auth_openidc, and an issuer
 * (oidc-provider).
 */
import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import t, { type Test } from "tap";
import { linesOf } from "../../support/audit.js";
import { withDurations } from "../../support/durations.js";
import { PATIENT } from "../../support/issuer.js";
import { CHROMIUM } from "../../support/looks.js";
import { ADDON, commandsAre, needs } from "../../support/needs.js";
import {
  openBrowser,
  SECRET,
  shown,
  signInAs,
  startBehindProxy,
  startProvider,
} from "../../support/provider.js";
import { freePort, makePlace } from "../../support/server.js";
import { until } from "../../support/until.js";

t.setTimeout(300_000);

const MODULES = "/usr/lib/apache2/modules";
/** What Debian's a2enmod switches on. */
const LOADED =
  "mpm_event authn_core authz_core authz_user headers proxy proxy_http ssl auth_openidc".split(" ");

async function startApache(t: Test, folder: string, config: string, port: number): Promise<void> {
  const file = path.join(folder, "apache.conf");
  const modules = LOADED.map((name) => `LoadModule ${name}_module ${MODULES}/mod_${name}.so`);
  writeFileSync(
    file,
    `ServerRoot ${folder}
PidFile ${folder}/pid
DefaultRuntimeDir ${folder}
User www-data
Group www-data
Listen 127.0.0.1:${port}
ErrorLog ${folder}/error.log
${modules.join("\n")}
${config}`,
  );
  const child = spawn("apache2", ["-f", file, "-DFOREGROUND"], {
    stdio: ["ignore", "ignore", "pipe"],
  });
  let said = "";
  child.stderr.setEncoding("utf8").on("data", (text: string) => (said += text));
  const ended = once(child, "exit");
  t.teardown(async () => {
    child.kill();
    await ended;
  });
  const log = path.join(folder, "error.log");
  await until("Apache serves", () => {
    const text = existsSync(log) ? readFileSync(log, "utf8") : "";
    if (child.exitCode !== null) throw new Error(said + text);
    return Promise.resolve(text.includes("resuming normal operations"));
  });
}

const skip =
  needs(ADDON, CHROMIUM, `${MODULES}/mod_auth_openidc.so`) || commandsAre("apache2", "openssl");
t.test("signed in by Apache and mod_auth_openidc", { skip }, async (t) => {
  const folder = mkdtempSync(path.join(os.tmpdir(), "radserve-apache-"));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const front = await freePort();
  const origin = `https://127.0.0.1:${front}`;
  const issuer = await startProvider(t, origin);
  const place = makePlace({
    RADSERVE_TRUSTED_PROXIES: "127.0.0.1",
    ...withDurations(PATIENT),
  });
  const places = {
    "https://login.hospital.example": issuer,
    "https://radserve.hospital.example": origin,
    "https%3A%2F%2Flogin.hospital.example%2Fsession%2Fend": "",
    "/oauth2/sign_out?rd=": `/oauth2/callback?logout=${encodeURIComponent(`${origin}/`)}`,
    "radserve.hospital.example": "127.0.0.1",
    "/etc/apache2": folder,
    "/var/log/apache2": folder,
    "*:443": `127.0.0.1:${front}`,
    "/srv/images": place.input,
    "/srv/results": place.output,
  };
  const server = await startBehindProxy(t, place, folder, places);
  writeFileSync(
    path.join(folder, "radserve-secrets.conf"),
    `OIDCClientSecret ${SECRET}\nOIDCCryptoPassphrase ${randomBytes(16).toString("hex")}\n`,
  );
  const config = shown("OIDCClientID", {
    ...places,
    "127.0.0.1:8500": `127.0.0.1:${server.port}`,
  });
  await startApache(t, folder, config, front);

  const { browser, context, page } = await openBrowser(t);

  await t.test("a person with a role sees the page, and their name", async (t) => {
    await page.goto(origin);
    await signInAs(page, "alice");
    await page.getByText("oidc:alice").waitFor();
    await page.getByText("Ready", { exact: true }).waitFor();
    t.equal(new URL(page.url()).origin, origin);
    await page.getByRole("link", { name: "Jobs" }).click();
    await page.getByRole("heading", { level: 1, name: "Jobs" }).waitFor();
    await until("the audit says so", () =>
      linesOf(place).some(
        ({ subject, signed_in }) => subject === "oidc:alice" && signed_in === "oidc",
      ),
    );
  });

  await t.test("what a client sends in the headers is not handed on", async (t) => {
    for (const name of ["X-Radserve-Id-Token", "OIDC_id_token", "OIDC-id-token"]) {
      const headers = { [name]: "x.y.z" };
      const answer = await context.request.get(`${origin}/sign-in`, { headers });
      t.match(await answer.json(), { subject: "oidc:alice" }, name);
      const stranger = await browser.newContext({ ignoreHTTPSErrors: true });
      const asked = { headers, maxRedirects: 0 };
      const without = await stranger.request.get(`${origin}/models`, asked);
      t.ok([302, 401].includes(without.status()), name);
      await stranger.close();
    }
  });

  await t.test("a session that ends, and the same person again", async () => {
    await page.getByRole("link", { name: "Send", exact: true }).click();
    await page.getByLabel("Image, or folder of one series").fill("/srv/images/typed");
    await context.clearCookies({ name: /mod_auth_openidc/ });
    await page.getByRole("heading", { name: "You are signed out" }).waitFor();
    const opening = context.waitForEvent("page");
    await page.getByRole("button", { name: "Sign in again" }).click();
    const tab = await opening;
    await until("the tab closes", () => tab.isClosed());
    await page.getByRole("heading", { level: 1, name: "Send" }).waitFor();
    const typed = await page.getByLabel("Image, or folder of one series").inputValue();
    t.equal(typed, "/srv/images/typed");
  });

  await t.test("who signs out is asked for a name", async (t) => {
    await page.getByRole("button", { name: "Sign out" }).click();
    await page.getByRole("button", { name: "Yes, sign me out" }).click();
    await page.locator("input[name=login]").waitFor();
    t.equal(new URL(page.url()).origin, issuer);
    await signInAs(page, "guest");
    await page.getByText(/Expected a role that this server knows/).waitFor();
  });
});
