/**
 * Files that are given by hand, in Debian's Chromium: chosen, dropped, in folders and in ZIP files.
 */
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { crc32, deflateRawSync } from "node:zlib";
import t from "tap";
import { ctSeries } from "../../../scripts/demo/samples.js";
import { ctPlace } from "../../support/bulk.js";
import { CHROMIUM, look, signIn, startBrowser } from "../../support/looks.js";
import { ADDON, needs } from "../../support/needs.js";
import { startServer } from "../../support/server.js";

t.setTimeout(300_000);

/** A ZIP file (PKWARE APPNOTE 6.3.10). */
function zipOf(
  files: readonly { name: string; bytes: Uint8Array; damaged?: true; locked?: true }[],
) {
  const parts: Buffer[] = [];
  const list: Buffer[] = [];
  let at = 0;
  for (const { name, bytes, damaged, locked } of files) {
    const packed = deflateRawSync(bytes);
    const named = Buffer.from(name);
    const head = Buffer.alloc(26);
    head.writeUInt16LE(20, 0);
    head.writeUInt16LE(locked === true ? 1 : 0, 2);
    head.writeUInt16LE(8, 4);
    head.writeUInt32LE((crc32(bytes) ^ (damaged === true ? 1 : 0)) >>> 0, 10);
    head.writeUInt32LE(packed.length, 14);
    head.writeUInt32LE(bytes.length, 18);
    head.writeUInt16LE(named.length, 22);
    const local = Buffer.concat([Buffer.from("PK\x03\x04"), head, named, packed]);
    const rest = Buffer.alloc(14);
    rest.writeUInt32LE(at, 10);
    list.push(Buffer.concat([Buffer.from("PK\x01\x02\x14\x00"), head, rest, named]));
    parts.push(local);
    at += local.length;
  }
  const directory = Buffer.concat(list);
  const end = Buffer.alloc(22);
  end.write("PK\x05\x06", "latin1");
  end.writeUInt16LE(files.length, 8);
  end.writeUInt16LE(files.length, 10);
  end.writeUInt32LE(directory.length, 12);
  end.writeUInt32LE(at, 16);
  return Buffer.concat([...parts, directory, end]);
}

t.test("files by hand", { skip: needs(ADDON, CHROMIUM) }, async (t) => {
  const place = ctPlace({ RADSERVE_FILES_BY_HTTP: "view,upload" });
  const server = await startServer(place);
  t.teardown(() => server.stop());
  const own = path.join(place.directory, "own");
  const slices = ctSeries(4, 12, 64);
  mkdirSync(path.join(own, "study", "series"), { recursive: true });
  slices.forEach((bytes, i) => writeFileSync(path.join(own, "study", "series", `${i}.dcm`), bytes));
  writeFileSync(path.join(own, "study", ".DS_Store"), "x");
  writeFileSync(path.join(own, "notes.txt"), "CT of Tuesday");
  const page = await (await startBrowser(t)).newPage();
  // Asked for early: the browser shows its own chooser until it has heard of that
  const choosing = page.waitForEvent("filechooser", { timeout: 120_000 });
  await signIn(page, server, "#/send");
  const files = page.getByLabel("Files", { exact: true });
  const input = page.getByLabel(/^(Image, or folder of one series|Folder with images)$/);
  const said = page.getByRole("status").getByText(/^Uploaded/);
  const refused = page.getByRole("alert");
  const send = () => page.getByRole("button", { name: "Send the image" }).click();

  await t.test("chosen by keys alone", async (t) => {
    await files.focus();
    await page.keyboard.press("Enter");
    await (await choosing).setFiles(path.join(own, "study", "series", "0.dcm"));
    await said.getByText("Uploaded 1 file.").waitFor();
    const at = await input.inputValue();
    t.match(at, /\/dropped-\w+\/0\.dcm$/);
    t.same(readFileSync(at), Buffer.from(slices[0]!));
    await look(t, page, "by-hand");
  });

  await t.test("a folder with what lies below it", async (t) => {
    await page.getByLabel("A folder", { exact: true }).setInputFiles(path.join(own, "study"));
    await said.getByText("Uploaded 4 files.").waitFor();
    const at = await input.inputValue();
    t.match(at, /\/study\/series$/);
    t.equal(at.split("/dropped-").length, 2, "not among what was given before");
    t.same(readdirSync(at), ["0.dcm", "1.dcm", "2.dcm", "3.dcm"], "without what the desktop left");
    await send();
    await page.locator(".stage img.marks").waitFor();
  });

  await t.test("a ZIP file, whose damaged and locked files are named", async (t) => {
    const bytes = slices[1]!;
    writeFileSync(
      path.join(own, "pack.zip"),
      zipOf([
        { name: "a/1.dcm", bytes },
        { name: "../../a/2.dcm", bytes: slices[2]! },
        { name: "a/broken.dcm", bytes, damaged: true },
        { name: "a/locked.dcm", bytes, locked: true },
        { name: "__MACOSX/a/._1.dcm", bytes },
      ]),
    );
    await files.setInputFiles(path.join(own, "pack.zip"));
    await said.getByText("Uploaded 2 files.").waitFor();
    const at = await input.inputValue();
    t.match(at, /\/pack\/a$/);
    t.same(readdirSync(at), ["1.dcm", "2.dcm"]);
    t.same(readFileSync(path.join(at, "1.dcm")), Buffer.from(bytes));
    t.match(await refused.innerText(), /2 files not uploaded[\s\S]*locked\.dcm: It has a password/);
    t.match(
      await refused.innerText(),
      /broken\.dcm: It is no whole ZIP file: a file in it is damaged/,
    );
    await look(t, page, "by-hand-refused");
    writeFileSync(
      path.join(own, "cut.zip"),
      readFileSync(path.join(own, "pack.zip")).subarray(0, -40),
    );
    await files.setInputFiles(path.join(own, "cut.zip"));
    await refused.getByText("its end is missing").waitFor();
  });

  await t.test("what the server refuses, in its words, beside what it takes", async (t) => {
    await files.setInputFiles([
      path.join(own, "notes.txt"),
      path.join(own, "study", "series", "3.dcm"),
    ]);
    await said.getByText("Uploaded 1 file.").waitFor();
    t.match(
      await refused.innerText(),
      /1 file not uploaded\s+notes\.txt: The file is neither DICOM nor/,
    );
    t.match(await input.inputValue(), /\/3\.dcm$/);
  });

  /** What a browser gives for a folder, which no script can make: an entry with entries. */
  const drop = (names: string) =>
    page.evaluate(`(() => {
      const bytes = new Uint8Array(${JSON.stringify(Array.from(slices[0]!.subarray(0, 2000)))});
      const file = (name) => ({ isFile: true, fullPath: "/dropped/" + name,
        file: (give) => give(new File([bytes], name)) });
      const left = (${names}).map(file);
      const folder = { isFile: false, fullPath: "/dropped", createReader: () => ({
        readEntries: (give) => give(left.splice(0, 100)) }) };
      const event = new DragEvent("drop", { bubbles: true, cancelable: true });
      Object.defineProperty(event, "dataTransfer", { value:
        { types: ["Files"], files: [], items: [{ webkitGetAsEntry: () => folder }] } });
      document.body.dispatchEvent(event);
    })()`);
  const many = (name: string) => `Array.from({ length: 20_100 }, (_, i) => "${name}" + i)`;

  await t.test("a folder that is dropped", async (t) => {
    await drop(`["1.dcm", "2.dcm"]`);
    await said.getByText("Uploaded 2 files.").waitFor();
    t.match(await input.inputValue(), /\/dropped$/);
  });

  await t.test("one with hidden twins is taken whole, and one with too many not", async (t) => {
    await drop(`["1.dcm", ...${many("._")}, "2.dcm", "3.dcm"]`);
    await said.getByText("Uploaded 3 files.").waitFor();
    t.same(readdirSync(await input.inputValue()), ["1.dcm", "2.dcm", "3.dcm"]);
    await drop(many(""));
    await page.getByText("Expected at most 20000 files at a time; found more.").waitFor();
  });

  await t.test(
    "a connection that breaks: what is left is sent when somebody says so",
    async (t) => {
      await page.route("**/files", async (route) => {
        if (decodeURIComponent(route.request().headers()["radserve-path"] ?? "").endsWith("2.dcm"))
          await route.abort("connectionreset");
        else await route.continue();
      });
      await page
        .getByLabel("A folder", { exact: true })
        .setInputFiles(path.join(own, "study", "series"));
      const resume = page.getByRole("button", { name: /^Send the other \d$/ });
      await resume.waitFor();
      t.match(await page.getByRole("alert").innerText(), /No connection/);
      t.notMatch(await page.getByRole("alert").innerText(), /tries again/);
      await page.unroute("**/files");
      await resume.click();
      await said.getByText("Uploaded 4 files.").waitFor();
      t.equal(readdirSync(await input.inputValue()).length, 4);
    },
  );
});
