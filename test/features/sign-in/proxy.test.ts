/**
 * Sign-in as docs/page.md shows it: Chromium, nginx, oauth2-proxy and an issuer (oidc-provider),
 * with the configuration that stands there.
 */
import { spawn, spawnSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import type { BrowserContext, Page } from "playwright-core";
import t, { type Test } from "tap";
import { linesOf } from "../../support/audit.js";
import { withDurations } from "../../support/durations.js";
import { PATIENT } from "../../support/issuer.js";
import { CHROMIUM, look } from "../../support/looks.js";
import { ADDON, commandsAre, needs } from "../../support/needs.js";
import { blocksOf } from "../../support/pages.js";
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

async function startOauth2Proxy(t: Test, folder: string, config: string, port: number) {
  const file = path.join(folder, "oauth2-proxy.cfg");
  writeFileSync(file, config);
  const child = spawn("oauth2-proxy", ["--config", file], { stdio: ["ignore", "pipe", "pipe"] });
  let said = "";
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding("utf8").on("data", (text: string) => (said += text));
  const ended = once(child, "exit");
  t.teardown(async () => {
    child.kill();
    await ended;
  });
  await until("oauth2-proxy listens", async () => {
    if (child.exitCode !== null) throw new Error(said);
    return (await fetch(`http://127.0.0.1:${port}/ping`).catch(() => undefined))?.status === 200;
  });
}

function startNginx(t: Test, folder: string, config: string): void {
  const file = path.join(folder, "nginx.conf");
  const temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map(
    (name) => `${name}_temp_path ${folder}/${name};`,
  );
  const format = blocksOf("docs/operations.md").find(({ lines }) =>
    lines[0]?.startsWith("log_format "),
  );
  writeFileSync(
    file,
    `pid ${folder}/pid; error_log ${folder}/error.log; events {}
http { ${format?.lines.join("\n") ?? ""} ${temporary.join(" ")} ${config} }`,
  );
  const nginx = (...words: string[]) =>
    spawnSync("nginx", ["-p", folder, "-c", file, ...words], { encoding: "utf8" });
  const begun = nginx();
  t.equal(begun.status, 0, begun.stderr);
  t.teardown(() => nginx("-s", "stop"));
}

const skip = needs(ADDON, CHROMIUM) || commandsAre("nginx", "openssl", "oauth2-proxy");
t.test("signed in by nginx and oauth2-proxy", { skip }, async (t) => {
  const folder = mkdtempSync(path.join(os.tmpdir(), "radserve-sign-in-"));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const [front, behind] = [await freePort(), await freePort()];
  const origin = `https://127.0.0.1:${front}`;
  const issuer = await startProvider(t, origin);
  const host = new URL(issuer).host;
  const place = makePlace({
    RADSERVE_TRUSTED_PROXIES: "127.0.0.1",
    ...withDurations(PATIENT),
  });
  const places = {
    "https://login.hospital.example": issuer,
    "https%3A%2F%2Flogin.hospital.example": encodeURIComponent(issuer),
    "login.hospital.example": host,
    "https://radserve.hospital.example": origin,
    "/etc/oauth2-proxy": folder,
    "/etc/nginx": folder,
    "/var/log/nginx": folder,
    "127.0.0.1:4180": `127.0.0.1:${behind}`,
    "listen 443": `listen 127.0.0.1:${front}`,
    "/srv/images": place.input,
    "/srv/results": place.output,
  };
  const server = await startBehindProxy(t, place, folder, places);
  writeFileSync(path.join(folder, "client-secret"), SECRET);
  writeFileSync(path.join(folder, "cookie-secret"), randomBytes(16).toString("hex"));
  await startOauth2Proxy(t, folder, shown("oidc_issuer_url", places), behind);
  const elsewhere = `127.0.0.1:${await freePort()}`;
  startNginx(
    t,
    folder,
    `${shown("auth_request", { ...places, "127.0.0.1:8500": `127.0.0.1:${server.port}` })}
server {
    listen ${elsewhere} ssl;
    ssl_certificate ${folder}/radserve.crt;
    ssl_certificate_key ${folder}/radserve.key;
    default_type text/html;
    location / { return 200 "Look"; }
}`,
  );

  const { browser, context, page } = await openBrowser(t);

  await t.test("a person with a role sees the page, and their name", async (t) => {
    await page.goto(origin);
    await signInAs(page, "alice");
    await page.getByRole("navigation", { name: "Views" }).waitFor();
    t.equal(page.url(), `${origin}/`);
    await page.getByText("oidc:alice").waitFor();
    t.equal(await page.getByLabel("Token").count(), 0);
    await page.getByText("Ready", { exact: true }).waitFor();
    await look(t, page, "signed-in");
    await page.getByRole("link", { name: "Jobs" }).click();
    await page.getByRole("heading", { level: 1, name: "Jobs" }).waitFor();
    await until("the audit says so", () =>
      linesOf(place).some(
        ({ subject, signed_in }) => subject === "oidc:alice" && signed_in === "oidc",
      ),
    );
  });

  await t.test("what a client sends in the header is not handed on", async (t) => {
    const answer = await context.request.get(`${origin}/sign-in`, {
      headers: { "X-Radserve-Id-Token": "x.y.z" },
    });
    t.match(await answer.json(), { subject: "oidc:alice" });
    const stranger = await browser.newContext({ ignoreHTTPSErrors: true });
    const without = await stranger.request.get(`${origin}/models`, {
      headers: { "X-Radserve-Id-Token": "x.y.z" },
    });
    t.equal(without.status(), 401);
  });

  await t.test("another site can do nothing in the name of who is signed in", async (t) => {
    // Of the same host, so that cookies come along
    const other = await context.newPage();
    await other.goto(`https://${elsewhere}`);
    const before = server.log.length;
    await other.evaluate(`(async () => {
      const send = (page, more) =>
        fetch("${origin}" + page, { mode: "no-cors", credentials: "include", ...more });
      await send("/models").catch(() => undefined);
      await send("/single_inference", { method: "POST", body: "{}" }).catch(() => undefined);
    })()`);
    await other.goto(`${origin}/models`);
    t.match(await other.textContent("body"), /"models"/, "who types the address may look");
    await other.close();
    await until("both came", () => {
      const lines = server.log.slice(before).filter((line) => line["error"] === "other_site");
      return new Set(lines.map((line) => line["route"])).size === 2;
    });
  });

  await t.test("a token decides where there is one", async (t) => {
    const answer = await context.request.get(`${origin}/models`, {
      headers: { Authorization: "x.y.z" },
    });
    t.match(await answer.json(), { message: "Invalid token" });
  });

  await t.test("an old tab, after a sign-out and a sign-in of another person", async (t) => {
    const old = await context.newPage();
    await old.goto(`${origin}/#/jobs`);
    await old.getByText("oidc:alice").waitFor();
    await page.bringToFront();
    await page.getByRole("button", { name: "Sign out" }).click();
    await page.waitForURL(`${issuer}/session/end*`);
    await page.getByRole("button", { name: "Yes, sign me out" }).click();
    await old.bringToFront();
    await old.getByText("You are signed out.").waitFor();
    t.equal(await old.getByText("oidc:alice").count(), 0);
    await look(t, old, "signed-out");
    await old.getByRole("button", { name: "Sign in again" }).click();
    await signInAs(old, "root");
    await old.getByText("oidc:root").waitFor();

    await changePerson(context, page, origin, "guest");
    await old.bringToFront();
    await old.getByText(/Expected a role that this server knows/).waitFor();
    t.equal(await old.getByText("oidc:root").count(), 0);
  });
});

/** Somebody else signs in, in another tab. */
async function changePerson(
  context: BrowserContext,
  page: Page,
  origin: string,
  name: string,
): Promise<void> {
  await context.clearCookies();
  await page.goto(origin);
  await signInAs(page, name);
  await page.getByText(/Expected a role that this server knows/).waitFor();
}
