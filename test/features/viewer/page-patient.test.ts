/**
 * The right patient on the page, in Debian's Chromium: what is shown changes when somebody asks for
 * it, rows and titles say whose a result is, and what failed is found.
 */
import { mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import type { BrowserContext, Page } from "playwright-core";
import t from "tap";
import { ctSeries } from "../../../scripts/demo/samples.js";
import type { FrameFacts } from "../../../src/features/viewer/messages.js";
import { ctPlace, writeSlice } from "../../support/bulk.js";
import { CHROMIUM, look, signIn, startBrowser } from "../../support/looks.js";
import { ADDON, needs } from "../../support/needs.js";
import { issueToken, startServer } from "../../support/server.js";

t.setTimeout(300_000);

t.test("the right patient", { skip: needs(ADDON, CHROMIUM) }, async (t) => {
  const place = ctPlace({ RADSERVE_FILES_BY_HTTP: "view,download" });
  const server = await startServer(place);
  t.teardown(() => server.stop());
  const folder = path.join(place.output, "ward");
  mkdirSync(folder);
  let z = 0;
  const infer = async (name: string, of: Record<string, string>, output = folder) => {
    const input = path.join(place.input, name);
    writeSlice(input, (z += 1), of);
    const body = { input_image_path: input, output_folder_path: output };
    const answer = await server.post("/single_inference", body);
    t.equal(answer.status, 200, name);
    return ((await answer.json()) as { receipt_path: string }).receipt_path;
  };
  const one = (n: number) => ({
    PatientID: `PAT-${n}`,
    PatientName: `Doe^Number ${n}`,
    StudyDate: `2026112${n}`,
    StudyInstanceUID: `1.2.826.0.1.${n}`,
    AccessionNumber: `ACC-${n}`,
    SeriesDescription: "Thorax 5 mm",
  });
  const began = Date.now();
  await infer("1.dcm", one(1));
  await infer("2.dcm", one(2));
  const browser = await startBrowser(t);
  const contextIn = (timezoneId: string): Promise<BrowserContext> =>
    browser.newContext({ timezoneId });
  const page: Page = await (await contextIn("America/Los_Angeles")).newPage();
  await signIn(page, server, "#/results");
  const rows = page.getByRole("region", { name: "Results" }).locator("tbody tr");
  const title = page.locator("h1.path");
  const picture = page.locator(".stage-inner .picture");
  const show = page.getByRole("button", { name: "Show", exact: true });
  const clear = page.getByRole("button", { name: "Clear" });

  await t.test("rows say whose a result is, and where it lies", async (t) => {
    await rows.nth(1).waitFor();
    const [first, second] = await rows.allInnerTexts();
    t.match(first, /Doe Number 2\s+PAT-2\s+2026-11-22\s+Thorax 5 mm\s+2\.dcm\s+\S*output\/ward/);
    t.match(second, /Doe Number 1\s+PAT-1/);
    await page.getByText("of your time zone, America/Los_Angeles").waitFor();
    await look(t, page, "results-whose");
  });

  await t.test("a list stands still until somebody asks for what is new", async (t) => {
    await infer("3.dcm", one(3));
    const more = page.getByRole("button", { name: "Show 1 more" });
    await more.waitFor();
    t.match(await rows.allInnerTexts(), [/PAT-2/, /PAT-1/], "no row has moved");
    await more.click();
    await rows.nth(2).waitFor();
    t.match(await rows.allInnerTexts(), [/PAT-3/, /PAT-2/, /PAT-1/]);
    t.equal(await more.count(), 0);
  });

  await t.test("a patient is found by the whole number, in any case and pasted", async (t) => {
    await page.getByLabel("Patient ID").fill("  pat-1 ");
    await show.click();
    await page.getByText("PAT-3").waitFor({ state: "detached" });
    await rows.first().waitFor();
    t.match(await rows.allInnerTexts(), [/PAT-1/]);
    await page.getByLabel("Patient ID").fill("PAT");
    await show.click();
    await page.getByText("The whole number is compared").waitFor();
    await clear.click();
    await rows.nth(2).waitFor();
  });

  await t.test("a day is the day of the reader", async (t) => {
    const other = await (await contextIn("Pacific/Kiritimati")).newPage();
    await signIn(other, server, "#/results");
    const listed = other.getByRole("region", { name: "Results" }).locator("tbody tr");
    await listed.nth(2).waitFor();
    const dayOf = (time: number) =>
      other.evaluate<string>(`new Intl.DateTimeFormat("sv-SE").format(new Date(${time}))`);
    // A day may end while the test runs
    const [first, last] = [await dayOf(began), await dayOf(Date.now())];
    const before = await dayOf(began - 86_400_000);
    for (const [from, to, count] of [
      [first, last, 3],
      [before, before, 0],
    ] as const) {
      await other.getByLabel("From").fill(from);
      await other.getByLabel("To", { exact: true }).fill(to);
      const answered = other.waitForResponse((answer) => answer.url().endsWith("/results/search"));
      await other.getByRole("button", { name: "Show", exact: true }).click();
      const { results } = (await (await answered).json()) as { results: unknown[] };
      t.equal(results.length, count, `${from} to ${to}`);
    }
    await other.context().close();
  });

  await t.test("a result names its patient, and its title nobody", async (t) => {
    await page.getByRole("link", { name: "2.dcm" }).click();
    await picture.waitFor();
    t.match(await page.locator(".whose").innerText(), /Doe Number 2, PAT-2.*2026-11-22.*ACC-2/s);
    t.match(await page.locator(".corners .nw").innerText(), /Doe Number 2\s+PAT-2/);
    t.match(await page.title(), /^CT of 2026-11-22, result of .* – Radserve$/);
    t.notMatch(await page.title(), /Doe|PAT|ACC|2\.dcm/);
  });

  await t.test("Back and a page that the browser kept show the same", async (t) => {
    const address = page.url();
    await infer("4.dcm", one(4));
    await page.goto("about:blank");
    await page.goBack();
    await picture.waitFor();
    t.equal(page.url(), address);
    t.match(await page.locator(".whose").innerText(), /PAT-2/);
    await page.getByRole("link", { name: "All results" }).click();
    await rows.first().waitFor();
    await page.getByLabel("Patient ID").fill("PAT-1");
    await show.click();
    await page.getByRole("link", { name: "1.dcm" }).click();
    await picture.waitFor();
    await page.goBack();
    await rows.first().waitFor();
    t.equal(await page.getByLabel("Patient ID").inputValue(), "PAT-1", "the list as it was left");
    await page.goBack();
    await picture.waitFor();
    t.match(await page.locator(".whose").innerText(), /PAT-2/);
  });

  await t.test("an answer that comes after another was asked for shows nothing", async (t) => {
    let release: () => void = () => undefined;
    const held = new Promise<void>((resolve) => (release = resolve));
    await page.route(/results\/find/, async (route) => {
      if (/"id"/.test(route.request().postData() ?? "")) await held;
      await route.continue().catch(() => undefined);
    });
    await page.goto(`${server.url}/#/results`);
    await clear.click();
    await page.getByRole("link", { name: "1.dcm" }).click();
    await title.getByText("Result").waitFor();
    await page.goBack();
    await page.unroute(/results\/find/);
    await page.getByRole("link", { name: "3.dcm" }).click();
    await picture.waitFor();
    release();
    t.match(await page.locator(".whose").innerText(), /PAT-3/);
    await page
      .getByRole("button", { name: "Invert" })
      .or(page.getByLabel("Invert"))
      .first()
      .check();
    t.match(await page.locator(".whose").innerText(), /PAT-3/);
  });

  await t.test("a link of a RIS leads to the result, and leaves no number behind", async (t) => {
    const other = await page.context().newPage();
    await signIn(other, server, "#/results?accession=acc-2");
    await other.locator(".stage-inner .picture").waitFor();
    t.match(await other.locator(".whose").innerText(), /PAT-2/);
    t.match(other.url(), /#\/results\/[\w-]{23,}$/);
    await infer("2b.dcm", one(2));
    await other.goto(`${server.url}/#/results?study=1.2.826.0.1.2`);
    const listed = other.getByRole("region", { name: "Results" }).locator("tbody tr");
    await listed.nth(1).waitFor();
    t.match(await listed.allInnerTexts(), [/2b\.dcm/, /2\.dcm/], "several are a list");
    t.equal(other.url(), `${server.url}/#/results`);
    await other.goto(`${server.url}/#/results?accession=NOBODY`);
    await other.getByText("There is no result of what the link asks for").waitFor();
    t.notMatch(other.url(), /NOBODY/);
    const wrong = other.getByRole("alert").getByText("Expected a link that asks by study or");
    for (const [asked, found] of [
      ["patient=PAT-2", '"patient"'],
      ["Accession=ACC-2", '"Accession"'],
      ["accession=ACC-1&accession=ACC-2", '"accession"'],
      ["study=&accession=", "nothing"],
    ] as const) {
      await other.goto(`${server.url}/#/results?${asked}`);
      await wrong.getByText(`found ${found}`).waitFor();
      t.equal(other.url(), `${server.url}/#/results`);
    }
    await other.goto(`${server.url}/#/results?study=&accession=%20acc-2b%20`);
    await other.getByText("There is no result of what the link asks for").waitFor();
    t.equal(await wrong.count(), 0);
    await other.goto(`${server.url}/#/results?study=1.2.826.0.1.1%20&accession=`);
    await other.locator(".whose").getByText("PAT-1").waitFor();
    const narrow = await issueToken(place, "--output-root", path.join(place.output, "elsewhere"));
    mkdirSync(path.join(place.output, "elsewhere"));
    const third = await (await browser.newContext()).newPage();
    await signIn(third, { url: server.url, token: narrow }, "#/results?accession=acc-1");
    await third.getByText("that this token may see").waitFor();
    await third.context().close();
    await other.close();
  });

  await t.test("a link of a RIS does not lead to one of which another is away", async (t) => {
    const other = await page.context().newPage();
    const icu = path.join(place.output, "icu");
    mkdirSync(icu);
    await infer("7.dcm", one(7), icu);
    await infer("7b.dcm", one(7));
    renameSync(icu, `${icu}-away`);
    mkdirSync(icu);
    await signIn(other, server, "#/results?accession=ACC-7");
    const lacks = other.getByRole("alert").getByText("1 result cannot be read now.");
    await lacks.waitFor();
    const listed = other.getByRole("region", { name: "Results" }).locator("tbody tr");
    await listed.first().waitFor();
    t.match(await listed.allInnerTexts(), [/7b\.dcm/]);
    t.equal(other.url(), `${server.url}/#/results`);
    rmSync(icu, { recursive: true });
    renameSync(`${icu}-away`, icu);
    await other.goto(`${server.url}/#/results?accession=ACC-7`);
    await listed.nth(1).waitFor();
    await lacks.waitFor({ state: "detached" });
    await other.close();
  });

  await t.test("a link of a RIS that is opened again is asked for again", async (t) => {
    const other = await page.context().newPage();
    const late = "#/results?accession=LATE";
    await signIn(other, server, late);
    const listed = other.getByRole("region", { name: "Results" }).locator("tbody tr");
    const nothing = other.getByRole("alert").getByText("There is no result of what the link asks");
    await nothing.waitFor();
    await infer("late.dcm", { ...one(6), AccessionNumber: "LATE" });
    await listed.getByText("PAT-6", { exact: true }).waitFor();
    await nothing.waitFor({ state: "detached" });
    await other.goto(`${server.url}/${late}`);
    await other.locator(".stage-inner .picture").waitFor();
    t.match(await other.locator(".whose").innerText(), /PAT-6/);
    const study = `${server.url}/#/results?study=1.2.826.0.1.2`;
    await other.goto(study);
    await listed.nth(1).waitFor();
    await other.getByLabel("Path or UID").fill("1.2.826.0.1.1");
    await other.getByRole("button", { name: "Show", exact: true }).click();
    await listed.getByText("PAT-1", { exact: true }).waitFor();
    await other.goto(study);
    await listed.getByText("2b.dcm").waitFor();
    t.match(await listed.allInnerTexts(), [/2b\.dcm/, /2\.dcm/], "not the search between");
    t.equal(other.url(), `${server.url}/#/results`, "the number has left the address again");
    await other.close();
  });

  await t.test("an image that names another patient by now is told of", async (t) => {
    const file = path.join(place.input, "1.dcm");
    const bytes = readFileSync(file);
    const at = bytes.indexOf("PAT-1");
    writeFileSync(
      file,
      Buffer.concat([bytes.subarray(0, at), Buffer.from("PAT-9"), bytes.subarray(at + 5)]),
    );
    await page.goto(`${server.url}/#/results`);
    await page.getByRole("link", { name: "1.dcm" }).click();
    await page.getByRole("alert").getByText("Another patient.").waitFor();
    t.match(await page.getByRole("alert").innerText(), /PAT-9 now.*PAT-1/s);
    await look(t, page, "another-patient");
    writeFileSync(file, bytes);
  });

  await t.test("so is an image that names nobody by now, and one that named nobody", async (t) => {
    const warningOf = async (name: string, before: object, now: object): Promise<string> => {
      await infer(name, { ...one(5), ...before });
      writeSlice(path.join(place.input, name), z, { ...one(5), ...now });
      await page.goto(`${server.url}/#/results`);
      await page.getByRole("link", { name, exact: true }).click();
      await picture.waitFor();
      return (await page.getByRole("alert").allInnerTexts()).join();
    };
    const empty = { PatientID: "" };
    t.match(await warningOf("gone.dcm", {}, empty), /^No patient\..*nobody now.*named PAT-5\./s);
    t.match(
      await warningOf("came.dcm", empty, {}),
      /^Another patient\..*PAT-5 now.*named nobody\./s,
    );
    t.equal(await warningOf("none.dcm", empty, empty), "");
  });

  await t.test("a value of five digits is told whole", async (t) => {
    await infer("bright.dcm", { ...one(9), RescaleIntercept: "12345", RescaleSlope: "1" });
    await page.goto(`${server.url}/#/results`);
    await page.getByRole("link", { name: "bright.dcm" }).click();
    const answered = page.waitForResponse(/results\/frame/);
    await picture.waitFor();
    const { values } = (await (await answered).json()) as FrameFacts;
    t.equal(values?.intercept, 12345);
    const box = (await page.locator(".stage .picture").boundingBox())!;
    const told = page.locator(".corners").getByText(/^\(\d+, \d+\) \d/);
    const seen: string[] = [];
    for (const part of [0.1, 0.3, 0.5, 0.7, 0.9]) {
      await page.mouse.move(box.x + box.width * part, box.y + box.height * part);
      seen.push(await told.innerText());
    }
    t.match(seen.join(), /\) \d{4}[1-9]\b/, "not rounded to tens");
  });

  await t.test("a result that is replaced while it is open", async (t) => {
    const input = path.join(place.input, "grows");
    mkdirSync(input);
    const slices = ctSeries(10, 12, 64);
    const add = (from: number, to: number) =>
      slices.slice(from, to).forEach((bytes, i) => {
        writeFileSync(path.join(input, `${from + i}.dcm`), bytes);
      });
    const infer = async () => {
      const body = { input_image_path: input, output_folder_path: folder, group: "series" };
      const answer = await server.post("/single_inference", body);
      t.match(await answer.json(), { status: "completed", reused: false });
    };
    const slider = page.getByRole("slider", { name: "Slice" });
    const marks = page.locator(".stage img.marks");
    const told = page.getByRole("alert").getByText("The result was replaced since it was opened.");
    const renew = page.getByRole("button", { name: "Show the new result" });
    add(2, 10);
    await infer();
    await page.goto(`${server.url}/#/results`);
    await page.getByRole("link", { name: "grows", exact: true }).click();
    await marks.waitFor();
    t.equal(await slider.getAttribute("max"), "8");
    const opened = await page.locator(".stage").getAttribute("data-frame");
    const other = opened === "2" ? "3" : "2";
    add(0, 2);
    await infer();
    await slider.fill(other);
    await told.first().waitFor();
    t.equal(await page.locator(".stage").getAttribute("data-frame"), "", "nothing of the new one");
    t.equal(await marks.count(), 0);
    await page.getByRole("button", { name: "Verify" }).click();
    await told.nth(1).waitFor();
    const save = page.getByRole("button", { name: /^Save grows/ });
    for (const one of await save.all()) {
      const answered = page.waitForResponse(/\/files\?/);
      await one.click();
      t.equal((await answered).status(), 409, "a file of the new one is not saved");
    }
    await page.getByText("or this file of it was changed").waitFor();
    await look(t, page, "replaced");
    await renew.first().click();
    await marks.waitFor();
    t.equal(await slider.getAttribute("max"), "10");
    await slider.fill(other);
    await page.locator(`.stage[data-frame='${other}'] img.marks`).waitFor();
    t.equal(await told.count(), 0);
  });

  await t.test("what failed is listed with its reason, and can be sent again", async (t) => {
    const cut = path.join(place.input, "cut.dcm");
    writeFileSync(cut, readFileSync(path.join(place.input, "1.dcm")).subarray(0, -8));
    const body = { input_image_path: cut, output_folder_path: folder };
    t.equal((await server.post("/single_inference", body)).status, 422);
    await page.goto(`${server.url}/#/results`);
    await page.getByRole("link", { name: "Failed", exact: true }).click();
    const failed = page.getByRole("region", { name: "Failed requests" });
    await failed.getByRole("rowheader", { name: "cut.dcm" }).waitFor();
    t.match(await failed.innerText(), /Truncated image/);
    await look(t, page, "failed");
    writeFileSync(cut, readFileSync(path.join(place.input, "1.dcm")));
    await failed.getByRole("button", { name: "Send again" }).click();
    await page.getByRole("button", { name: "Send the image" }).click();
    await picture.waitFor();
    await page.goto(`${server.url}/#/results/failed`);
    await page.getByText("None is known.").waitFor();
    t.pass();
  });

  await t.test("who signs in next does not see what was looked for", async (t) => {
    await page.goto(`${server.url}/#/results`);
    await page.getByLabel("Patient ID").fill("PAT-2");
    await show.click();
    await page.getByRole("link", { name: "2.dcm", exact: true }).click();
    await picture.waitFor();
    await page.getByRole("button", { name: "Sign out" }).click();
    await page.getByLabel("Token").fill(server.token);
    await page.getByRole("button", { name: "Sign in" }).click();
    await page.getByRole("heading", { level: 1, name: "All is well" }).waitFor();
    await page.getByRole("link", { name: "Results", exact: true }).click();
    await rows.first().waitFor();
    t.equal(await page.getByLabel("Patient ID").inputValue(), "");
  });

  await t.test("a token as it is pasted from a mail", async (t) => {
    const other = await (await browser.newContext()).newPage();
    const broken = `"Bearer ${server.token.slice(0, 60)}\n  ${server.token.slice(60)}"`;
    await signIn(other, { url: server.url, token: broken.replaceAll('"', "") });
    await other.getByRole("button", { name: "Sign out" }).click();
    await other.getByLabel("Token").fill("none “quoted”");
    await other.getByRole("button", { name: "Sign in" }).click();
    await other.getByRole("alert").getByText("A token has letters").waitFor();
    t.pass();
    await other.context().close();
  });
});
