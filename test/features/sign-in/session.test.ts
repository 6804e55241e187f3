/**
 * A session that ends while the page is open, in Debian's Chromium behind a proxy that signs people
 * in: the page says so, the same person goes on where they were, and another sees nothing of it.
 */
import http from "node:http";
import path from "node:path";
import type { Page } from "playwright-core";
import t, { type Test } from "tap";
import { ctPlace, writeSlice } from "../../support/bulk.js";
import { withDurations } from "../../support/durations.js";
import { httpPeer } from "../../support/http-peer.js";
import { HEADER, issuerKey, PATIENT, startIssuer, writeSignIn } from "../../support/issuer.js";
import { CHROMIUM, look, startBrowser } from "../../support/looks.js";
import { ADDON, needs } from "../../support/needs.js";
import { freePort, startServer } from "../../support/server.js";
import { LONGEST_WAIT_MS, until } from "../../support/until.js";

t.setTimeout(600_000);

/** What a proxy answers to requests of the page without a session. */
type Answers = "401" | "elsewhere" | "its own page";

/** A proxy whose session is a cookie, and whose page to sign in is at another site. */
interface Proxy {
  url: string;
  answers: Answers;
}

const LOGIN = `<!doctype html><title>Login</title>
<a href="/callback?as=alice">alice</a> <a href="/callback?as=bob">bob</a>`;

async function startProxy(t: Test, behind: number, sign: (name: string) => string): Promise<Proxy> {
  const proxy: Proxy = { url: "", answers: "401" };
  const { url } = await httpPeer(t, (request, response) => {
    const { pathname, searchParams } = new URL(request.url ?? "/", proxy.url);
    const [, name] = /person=(\w+)/.exec(request.headers.cookie ?? "") ?? [];
    const cookie = `person=${searchParams.get("as") ?? ""}; Path=/`;
    const login = () => response.setHeader("Content-Type", "text/html").end(LOGIN);
    if (pathname === "/login") return void login();
    if (pathname === "/callback")
      return void response.writeHead(302, { Location: "/", "Set-Cookie": cookie }).end();
    if (name !== undefined) {
      const headers = { ...request.headers, [HEADER]: sign(name) };
      const { method, url: at } = request;
      // Each over a connection of its own, which nobody ends while the next request is on its way
      const to = { port: behind, path: at, method, headers, agent: false };
      const onward = http.request(to, (answer) => {
        response.writeHead(answer.statusCode ?? 502, answer.headers);
        answer.pipe(response);
      });
      onward.on("error", () => response.destroy());
      return void request.pipe(onward);
    }
    request.resume();
    const isPage = request.headers.accept?.includes("text/html") === true;
    if (!isPage && proxy.answers === "401") return void response.writeHead(401).end();
    if (!isPage && proxy.answers === "its own page") return void login();
    const other = proxy.url.replace("127.0.0.1", "localhost");
    response.writeHead(302, { Location: `${isPage ? "" : other}/login` }).end();
  });
  proxy.url = url;
  return proxy;
}

/** Presses the one button, and signs in where it leads. */
async function signInAgain(page: Page, name: string): Promise<Page> {
  const opening = page.context().waitForEvent("page");
  await page.getByRole("button", { name: "Sign in again" }).click();
  const tab = await opening;
  await tab.getByRole("link", { name }).click();
  return tab;
}

/** The same person signs in again; the tab for that closes by itself. */
async function comeBack(page: Page): Promise<void> {
  const tab = await signInAgain(page, "alice");
  await until("the tab closes", () => tab.isClosed());
}

/** The session ends, and the page finds that out by itself. */
async function endSession(page: Page): Promise<void> {
  await page.context().clearCookies();
  await page.getByRole("heading", { name: "You are signed out" }).waitFor();
}

t.test("a session that ends", { skip: needs(ADDON, CHROMIUM) }, async (t) => {
  const key = issuerKey("one");
  const issuer = await startIssuer(t, key);
  const place = ctPlace({
    RADSERVE_FILES_BY_HTTP: "view,upload",
    RADSERVE_TRUSTED_PROXIES: "127.0.0.1",
    RADSERVE_SIGN_IN: "",
    ...withDurations(PATIENT),
    RADSERVE_PORT: String(await freePort()),
  });
  place.environment["RADSERVE_SIGN_IN"] = path.join(place.directory, "sign-in.json");
  const behind = Number(place.environment["RADSERVE_PORT"]);
  const proxy = await startProxy(t, behind, (sub) => issuer.token(key, { sub }));
  const role = { role: "readers", input_roots: [place.input], output_roots: [place.output] };
  writeSignIn(place, issuer, { origin: proxy.url, roles: [role] });
  const server = await startServer(place);
  t.teardown(() => server.stop());
  const input = path.join(place.input, "chest.dcm");
  writeSlice(input, 1, { PatientID: "PAT-7", PatientName: "Doe^Seven" });
  const inferred = await server.post("/single_inference", {
    input_image_path: input,
    output_folder_path: place.output,
  });
  t.equal(inferred.status, 200);
  const other = path.join(place.input, "other.dcm");
  writeSlice(other, 2, { PatientID: "PAT-8", AccessionNumber: "ACC-8" });
  const second = await server.post("/single_inference", {
    input_image_path: other,
    output_folder_path: place.output,
  });
  t.equal(second.status, 200);

  const browser = await startBrowser(t);
  const open = async () => {
    const context = await browser.newContext();
    context.setDefaultTimeout(LONGEST_WAIT_MS);
    const page = await context.newPage();
    await page.goto(proxy.url);
    await page.getByRole("link", { name: "alice" }).click();
    await page.getByText("oidc:alice").waitFor();
    return { context, page };
  };

  for (const answers of ["401", "elsewhere", "its own page"] as const)
    await t.test(`the proxy answers ${answers}: the same person goes on`, async (t) => {
      const { context, page } = await open();
      await page.getByRole("link", { name: "Results", exact: true }).click();
      await page.getByLabel("Patient ID").fill("pat-7");
      proxy.answers = answers;
      await endSession(page);
      t.notOk(await page.getByText("PAT-7").isVisible(), "nothing is shown meanwhile");
      if (answers === "401") await look(t, page, "session-ended");
      await comeBack(page);
      t.equal(await page.getByLabel("Patient ID").inputValue(), "pat-7", "what was typed is there");

      await context.close();
    });

  await t.test("the same person comes back to the same result", async (t) => {
    const { context, page } = await open();
    await page.goto(`${proxy.url}/#/results`);
    await page.getByRole("link", { name: "chest.dcm" }).click();
    await page.locator(".stage-inner .picture").waitFor();
    const at = page.url();
    await endSession(page);
    await comeBack(page);
    await page.locator(".whose").waitFor();
    t.equal(page.url(), at, "the same result");
    t.match(await page.locator(".whose").innerText(), /PAT-7/);
    await context.close();
  });

  for (const answers of ["401", "elsewhere", "its own page"] as const)
    await t.test(`the proxy answers ${answers}: an upload is none`, async () => {
      const { context, page } = await open();
      await page.goto(`${proxy.url}/#/send`);
      await page.getByLabel("Image, or folder of one series").fill(`${place.input}/more/`);
      proxy.answers = answers;
      const files = page.getByLabel("Files", { exact: true });
      const file = path.join(place.directory, "one.dcm");
      writeSlice(file);
      await page.context().clearCookies();
      await files.setInputFiles(file);
      await page.getByRole("heading", { name: "You are signed out" }).waitFor();
      await comeBack(page);
      await page.getByRole("button", { name: "Send the other 1" }).click();
      await page.getByText("Uploaded 1 file").waitFor();
      await context.close();
    });

  await t.test("another person sees nothing of it", async (t) => {
    const { context, page } = await open();
    await page.goto(`${proxy.url}/#/results`);
    await page.getByRole("link", { name: "chest.dcm" }).click();
    await page.locator(".whose").waitFor();
    await endSession(page);
    const tab = await signInAgain(page, "bob");
    await tab.getByText("oidc:bob").waitFor();
    await page.getByText("oidc:bob").waitFor();
    for (const one of [tab, page]) {
      t.match(one.url(), /\/(#\/)?$/, "the overview");
      t.notMatch(await one.content(), /PAT-7|alice/);
    }
    await tab.close();

    await page.goto(`${proxy.url}/#/results`);
    await page.getByRole("link", { name: "chest.dcm" }).click();
    await page.locator(".whose").waitFor();
    await endSession(page);
    await page.reload();
    await page.getByRole("link", { name: "alice" }).click();
    await page.getByText("oidc:alice").waitFor();
    t.match(page.url(), /\/#\/$/, "nor in the same tab");
    await context.close();
  });

  await t.test("who reloads the page comes back, too", async (t) => {
    const { context, page } = await open();
    await page.goto(`${proxy.url}/#/results`);
    await page.getByRole("link", { name: "chest.dcm" }).click();
    await page.locator(".whose").waitFor();
    const at = page.url();
    await endSession(page);
    await page.reload();
    await page.getByRole("link", { name: "alice" }).click();
    await page.locator(".whose").waitFor();
    t.equal(page.url(), at);
    await context.close();
  });

  await t.test("a link to another patient is shown, and not the place of before", async (t) => {
    const { context, page } = await open();
    const link = "#/results?accession=ACC-8";
    const openFirst = async () => {
      await page.goto(`${proxy.url}/#/results`);
      await page.getByRole("link", { name: "chest.dcm" }).click();
      await page.locator(".whose").waitFor();
      await endSession(page);
    };
    const showsOther = async (one: Page, what: string) => {
      await one.locator(".whose").waitFor();
      t.match(await one.locator(".whose").innerText(), /PAT-8/, what);
    };
    await openFirst();
    await page.goto("about:blank");
    await context.addCookies([{ name: "person", value: "alice", url: proxy.url }]);
    await page.goto(`${proxy.url}/${link}`);
    await showsOther(page, "opened after they signed in elsewhere");

    await openFirst();
    await page.goto(`${proxy.url}/${link}`);
    await context.addCookies([{ name: "person", value: "alice", url: proxy.url }]);
    await showsOther(page, "opened while the session was over");

    await openFirst();
    await page.goto(`${proxy.url}/${link}`);
    await page.goto("about:blank");
    await context.addCookies([{ name: "person", value: "alice", url: proxy.url }]);
    await page.goBack();
    await showsOther(page, "and loaded again");
    await context.close();
  });

  await t.test("a sign-out in one tab leaves nothing in another", async (t) => {
    const { context, page } = await open();
    await page.goto(`${proxy.url}/#/results`);
    await page.getByRole("link", { name: "chest.dcm" }).click();
    await page.locator(".whose").waitFor();
    const other = await context.newPage();
    await other.goto(proxy.url);
    await other.getByRole("button", { name: "Sign out" }).click();
    await page.getByText("You are signed out.").waitFor();
    t.notMatch(await page.content(), /PAT-7|alice/);
    t.match(page.url(), /\/#\/$/);
    await context.close();
  });
});
