/**
 * The page's view of the gateway in Debian's Chromium: what came in, what waits, what nothing
 * becomes of, and what goes out.
 */
import t, { type Test } from "tap";
import type { Page } from "playwright-core";
import { CHROMIUM, look, startBrowser } from "../../support/looks.js";
import { ADDON, needs } from "../../support/needs.js";
import {
  associate,
  gatewayPlace,
  jobsOnce,
  object,
  send,
  startGateway,
} from "../../support/gateway.js";
import { ctPlace } from "../../support/bulk.js";
import { issueToken, startServer, type TestServer } from "../../support/server.js";
import { until } from "../../support/until.js";
import { webPacs } from "../../support/web-pacs.js";
import { withDurations } from "../../support/durations.js";

t.setTimeout(180_000);

const skip = needs(ADDON, CHROMIUM);

async function signedIn(t: Test, { url }: TestServer, token: string): Promise<Page> {
  const page = await (await startBrowser(t)).newPage();
  page.setDefaultTimeout(60_000);
  await page.goto(url);
  await page.getByLabel("Token").fill(token);
  await page.getByRole("button", { name: "Sign in" }).click();
  return page;
}

const region = (page: Page, name: string) => page.getByRole("region", { name, exact: true });

await t.test("the gateway, as its subject sees it", { skip }, async (t) => {
  const pacs = await webPacs(t);
  pacs.behave("refuse");
  const rule = {
    name: "ct",
    when: [{ tag: "Modality", in: ["CT"], if_absent: "refuse" }],
    quiet: "1s",
    // Of the machine's pauses: what comes over one association comes together
    pause: "1h",
    resend: "1h",
    models: ["ct-tissue"],
    outputs: ["sr"],
    output_folder: "OUT",
  };
  const { place } = gatewayPlace(
    t,
    {
      rules: [rule],
      destinations: { pacs: { type: "stow", url: pacs.url } },
      deliver: ["pacs"],
    },
    {
      ...withDurations({
        gatewayFigures: 50,
        shareCount: 200,
        gatewayRetry: 50,
        deliveryLook: 200,
      }),
      RADSERVE_FILES_BY_HTTP: "view",
    },
  );
  const { server, port, ...bulk } = await startGateway(t, place);
  const of = (study: string, more: Record<string, string> = {}) => ({
    StudyInstanceUID: study,
    SeriesInstanceUID: `${study}.1`,
    ...more,
  });
  const one = (z: number, study: string, more?: Record<string, string>) =>
    object(z, { ...of(study, more), SOPInstanceUID: `${study}.1.${z}` });
  await send(port(), [one(1, "1.2.10"), one(2, "1.2.10")]);
  const long = `2.25.${"123456789".repeat(6)}`;
  await send(port(), [one(1, long, { Modality: "MR" })]);
  const broken = await associate(port());
  t.equal((await broken.store(one(1, "1.2.30"))).status, 0);
  broken.abort();
  const refused = await associate(port());
  t.not((await refused.store(one(1, "1.2.40", { Rows: "" }))).status, 0);
  await refused.release();
  await associate(port(), { callingAe: "STRANGER" }).catch(() => undefined);
  await jobsOnce(bulk, 1);
  await server.told(({ msg }) => msg.startsWith("no rule takes"));
  await until("the report is refused", () => pacs.sent.length > 0);

  const page = await signedIn(t, server, server.token);
  const addresses: string[] = [];
  page.on("request", (request) => addresses.push(decodeURIComponent(request.url())));
  await page.getByRole("link", { name: "Gateway", exact: true }).click();
  await page.getByRole("heading", { level: 1, name: "Gateway" }).waitFor();
  const senders = region(page, "Senders").locator("tbody tr");
  await senders.getByText("ct1").waitFor();
  await until("all that came is counted", async () => {
    const text = await senders.first().innerText();
    return /^ct1\s+3\s+4\s/.test(text);
  });
  t.match(await senders.first().innerText(), /1 \(corrupt image\)/);
  await page.getByText("STRANGER").waitFor();
  const waiting = region(page, "Series that wait").locator("tbody tr");
  await waiting.getByText("1 association broken off").waitFor();
  t.match(await waiting.innerText(), /1\.2\.30\.1/);
  const unused = region(page, "Series that nothing becomes of").locator("tbody tr");
  await unused.getByText("no rule takes it").waitFor();
  t.match(await unused.innerText(), new RegExp(`${long}.1\\s+of study ${long}`));
  const deliveries = region(page, "Deliveries").locator("tbody tr");
  await deliveries.getByText("Refused").waitFor();
  t.match(await deliveries.innerText(), /pacs/);
  await look(t, page, "gateway");

  pacs.behave("keep");
  await page.getByRole("button", { name: "Send again" }).press("Enter");
  await page.getByText("Nothing waits, and nothing was set aside.").waitFor();
  t.equal(pacs.kept.size, 1);
  const told = addresses.filter((address) => /1\.2\.|2\.25\.|input\/|Received\//i.test(address));
  t.same(told, [], "no UID and no path is in an address");

  await t.test("a result says where it went, and links its job", async (t) => {
    await page.getByRole("link", { name: "Results", exact: true }).click();
    await page.locator('a[href^="#/results/"]:not([href$="failed"])').first().click();
    await page.getByRole("heading", { name: "Where it went" }).waitFor();
    await page.getByText("pacs: 1 proven").waitFor();
    await page.getByRole("link", { name: /in the gateway$/ }).waitFor();
    await look(t, page, "delivered-result");
    await page.getByRole("link", { name: "The job that it is of" }).click();
    await page.getByText("Job", { exact: true }).first().waitFor();
  });

  await t.test("and as others see it", async (t) => {
    const other = await signedIn(t, server, await issueToken(place, "--subject", "nobody"));
    await other.getByRole("link", { name: "Gateway", exact: true }).click();
    await other.getByText("What came in is shown to tokens of the subject").waitFor();
    await other.getByText("Nothing waits, and nothing was set aside.").waitFor();
    t.equal(await region(other, "Senders").count(), 0);
    await look(t, other, "gateway-other");
  });
});

await t.test("without a gateway there is no such view", { skip }, async (t) => {
  const place = ctPlace({});
  const server = await startServer(place);
  t.teardown(() => server.stop());
  const page = await signedIn(t, server, server.token);
  await page.getByRole("link", { name: "Over time" }).waitFor();
  await page.getByRole("heading", { level: 1 }).waitFor();
  t.equal(await page.getByRole("link", { name: "Gateway", exact: true }).count(), 0);
  await page.goto(`${server.url}/#/gateway`);
  await page.getByRole("heading", { level: 1, name: "All is well" }).waitFor();
});
