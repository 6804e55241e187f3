/**
 * What the page writes into addresses: opaque names alone, which show the same result after Back
 * and a reload, whatever was written meanwhile.
 */
import { mkdirSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { ctPlace, writeSlice } from "../../support/bulk.js";
import { CHROMIUM, signIn, startBrowser } from "../../support/looks.js";
import { ADDON, needs } from "../../support/needs.js";
import { startServer } from "../../support/server.js";

t.setTimeout(180_000);

t.test("no path and no patient is in an address", { skip: needs(ADDON, CHROMIUM) }, async (t) => {
  const place = ctPlace({ RADSERVE_FILES_BY_HTTP: "view,download" });
  const server = await startServer(place);
  t.teardown(() => server.stop());
  const infer = async (name: string, z: number) => {
    const input = path.join(place.input, name);
    writeSlice(input, z, { PatientID: "SECRET-4711" });
    const output = path.join(place.output, "Doe^Jane");
    mkdirSync(output, { recursive: true });
    const body = { input_image_path: input, output_folder_path: output };
    t.equal((await server.post("/single_inference", body)).status, 200, name);
  };
  await infer("Doe^Jane-1.dcm", 1);
  await infer("Doe^Jane-2.dcm", 2);

  const page = await (await startBrowser(t)).newPage();
  const addresses: string[] = [];
  page.on("request", (request) => addresses.push(decodeURIComponent(request.url())));
  await signIn(page, server, "#/results");
  await page.getByLabel("Patient ID").fill("SECRET-4711");
  await page.getByLabel("Path or UID").fill("Doe^Jane");
  await page.getByRole("button", { name: "Show", exact: true }).click();
  const title = page.locator("h1.path");
  await page.getByRole("link", { name: "Doe^Jane-1.dcm" }).click();
  await page.locator(".stage-inner .picture").waitFor();
  t.equal(await title.textContent(), "Doe^Jane-1.dcm");
  await page.getByRole("button", { name: "Verify" }).click();
  await page.getByText("Verified: every file").waitFor();
  const save = page.waitForEvent("download");
  await page.getByRole("button", { name: /^Save/ }).first().click();
  await save;
  const address = page.url();

  await page.getByRole("link", { name: "All results" }).click();
  await page.getByRole("link", { name: "Doe^Jane-2.dcm" }).waitFor();
  await infer("Doe^Jane-3.dcm", 3);
  await page.getByRole("button", { name: "Show", exact: true }).click();
  await page.getByRole("link", { name: "Doe^Jane-3.dcm" }).waitFor();
  await page.goBack();
  await page.locator(".stage-inner .picture").waitFor();
  t.equal(page.url(), address);
  t.equal(await title.textContent(), "Doe^Jane-1.dcm", "Back shows the same result");
  await infer("Doe^Jane-4.dcm", 4);
  await page.reload();
  await page.locator(".stage-inner .picture").waitFor();
  t.equal(await title.textContent(), "Doe^Jane-1.dcm", "and so does a reload");

  await page.goto(`${server.url}/#/send`);
  const typed = path.join(place.input, "Doe");
  // Asked for early: the answer may be there before this process goes on
  const answered = page.waitForResponse(
    (answer) =>
      answer.url().endsWith("/paths") &&
      (answer.request().postData() ?? "").includes(JSON.stringify(typed)),
  );
  await page
    .getByLabel(/Image|Input/)
    .first()
    .pressSequentially(typed);
  await answered;
  const told = [...addresses, address].filter((one) => /Doe|SECRET|output|input\//.test(one));
  t.same(told, []);
});
