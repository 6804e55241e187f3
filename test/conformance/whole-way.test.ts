/**
 * The whole way of docs/gateway.md, as it stands there: a CT goes to an empty Orthanc, from there
 * to the gateway, and its SEG and SR come back to the Orthanc, proven, where OHIF shows them.
 * RADSERVE_OHIF names the package of OHIF (npm pack @ohif/app).
 */
import { spawn } from "node:child_process";
import {
  chmodSync,
  copyFileSync,
  cpSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  writeFileSync,
} from "node:fs";
import path from "node:path";
import t from "tap";
import { startBrowser } from "../support/looks.js";
import { gatewayPlace, filesBelow, startGateway } from "../support/gateway.js";
import { ADDON, commandsAre, DICOM_FILES, needs, without } from "../support/needs.js";
import { DICOM_WEB_PLUGIN } from "../support/pacs.js";
import { freePort } from "../support/server.js";
import { LONGEST_WAIT_MS, until } from "../support/until.js";

const OHIF = process.env["RADSERVE_OHIF"];
const PICTURES = process.env["RADSERVE_PICTURES"];
const SLICES = 3;
/** Then the segmentation is clicked at again. */
const VIEWER_ASKS_MS = 10_000;
const skip =
  needs(ADDON, DICOM_FILES, DICOM_WEB_PLUGIN, "/usr/bin/chromium") ||
  commandsAre("Orthanc", "storescu", "nginx", "curl") ||
  without(OHIF === undefined ? "The package that RADSERVE_OHIF names" : undefined);

await t.test("a CT is sent, and OHIF shows the segmentation", { skip }, async (t) => {
  const page = readFileSync("docs/gateway.md", "utf8");
  const [http, dicom, web] = [await freePort(), await freePort(), await freePort()];
  const { place, file } = gatewayPlace(t);
  const folder = place.directory;
  // The workers of nginx are another user
  chmodSync(folder, 0o755);
  let port = 0;
  const block = (name: string) =>
    String(new RegExp(`\\n\`\`\`${name}\\n([^]*?)\\n\`\`\``).exec(page)?.[1])
      .replaceAll("/srv/images/in", place.input)
      .replaceAll("/srv/images/out", place.output)
      .replaceAll("8042", String(http))
      .replaceAll("4242", String(dicom))
      .replaceAll("3000", String(web))
      .replaceAll("11112", String(port))
      .replaceAll('"10s"', '"1s"');
  writeFileSync(file, block("json way"));
  const gateway = await startGateway(t, place);
  port = gateway.port();
  for (const [name, text] of Object.entries({
    "orthanc.json": block("json orthanc"),
    "forward.lua": block("lua forward"),
    "app-config.js": block("js ohif"),
    "nginx.conf": block("nginx conf"),
  }))
    writeFileSync(path.join(folder, name), text);
  const series = path.resolve("../shared/dicom/ct-series-chest");
  mkdirSync(path.join(folder, "series"));
  for (const name of readdirSync(series).sort().slice(0, SLICES))
    cpSync(path.join(series, name), path.join(folder, "series", name));
  copyFileSync(OHIF ?? "", path.join(folder, "ohif-app-3.12.10.tgz"));
  const commands = block("console elsewhere: Orthanc[^\\n]*")
    .replace(/^\$ /gm, "")
    .replace(/^npm pack .*$/m, "");
  const shell = spawn("bash", ["-euo", "pipefail", "-c", `${commands}\necho arrived\nwait`], {
    cwd: folder,
    env: place.environment,
    stdio: ["ignore", "pipe", "ignore"],
    detached: true,
  });
  t.teardown(() => process.kill(-(shell.pid ?? 0), "SIGKILL"));
  let said = "";
  for await (const piece of shell.stdout) if ((said += String(piece)).includes("arrived")) break;
  t.match(said, /arrived/);
  const modalities = async () => {
    const answer = await fetch(`http://localhost:${http}/dicom-web/series`);
    const found = (await answer.json()) as Record<string, { Value: string[] }>[];
    return found.map((one) => one["00080060"]?.Value[0]).sort();
  };
  await until("three series are in the archive", async () => (await modalities()).length === 3);
  t.same(await modalities(), ["CT", "SEG", "SR"]);
  const told = () =>
    filesBelow(place.output)
      .filter((name) => name.endsWith(".delivery.json"))
      .map((name) => readFileSync(path.join(place.output, name), "utf8"));
  await until(
    "all deliveries are closed",
    () => told().length > 0 && told().every((text) => text.includes('"open": false')),
  );
  t.ok(told().every((text) => !/"state": "(?!proven)/.test(text)));

  const browser = await startBrowser(t);
  const viewer = await browser.newPage({ viewport: { width: 1400, height: 900 } });
  viewer.setDefaultTimeout(LONGEST_WAIT_MS);
  const studies = await fetch(`http://localhost:${http}/dicom-web/studies`);
  const [study] = (await studies.json()) as Record<string, { Value: string[] }>[];
  await viewer.goto(
    `http://localhost:${web}/viewer?StudyInstanceUIDs=${study?.["0020000D"]?.Value[0] ?? ""}`,
  );
  await viewer.getByText("Confirm and hide").click();
  await viewer.getByText("Skip all").click();
  const thumbnail = viewer
    .locator('[data-cy="study-browser-thumbnail-no-image"]', { hasText: "SEG" })
    .first();
  const yes = viewer.getByText("Yes", { exact: true });
  // On a busy machine the viewer takes two clicks for single ones, or none before it has the CT
  await until("the viewer asks whether to open the segmentation", async () => {
    if (!(await yes.isVisible())) await thumbnail.dblclick();
    return yes.waitFor({ timeout: VIEWER_ASKS_MS }).then(
      () => true,
      () => false,
    );
  });
  await yes.click();
  await viewer.getByText("Do you want to open this Segmentation?").waitFor({ state: "hidden" });
  await viewer.locator('[data-cy="panelSegmentation-btn"]').click();
  await viewer.getByText("bone").first().waitFor();
  if (PICTURES !== undefined) await viewer.screenshot({ path: path.join(PICTURES, "ohif.png") });
});
