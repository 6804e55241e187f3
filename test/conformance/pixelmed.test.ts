/**
 * Reports against PixelMed's DicomSRValidator, which IHE's Connectathon uses: sources of six
 * modalities, with the kinds of models in turn, and the models that ship. It takes seconds a
 * report, so not every file.
 */
import { execFile } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { basename, join, resolve } from "node:path";
import { promisify } from "node:util";
import t from "tap";
import { readImage } from "../../src/images/read-image.js";
import { ADDON, commandsAre, DICOM_FILES, needs } from "../support/needs.js";
import { refusedErrors } from "../support/validators.js";
import { workshop } from "./objects.js";
import { specialShop } from "./special.js";

const JARS = "/usr/share/java";
const skip = needs(ADDON, DICOM_FILES, `${JARS}/pixelmed.jar`) || commandsAre("java");
const KINDS = ["test-segmenter", "test-classifier", "test-detector", "test-overlapping"];
const MODALITIES = 6;
/** It is over before code that is compiled better pays: half of the processor time. */
const SHORT_RUN = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"];
const LIMITS = ["xpathExprOpLimit", "xpathTotalOpLimit", "xpathExprGrpLimit"].map(
  (l) => `-Djdk.xml.${l}=0`,
);

async function validate(report: string): Promise<string> {
  const jars = readdirSync(JARS).filter((name) => name.endsWith(".jar"));
  const classPath = jars.map((name) => join(JARS, name)).join(":");
  const tool = "com.pixelmed.validate.DicomSRValidator";
  const { stdout, stderr } = await promisify(execFile)(
    "java",
    ["-Xss64m", ...SHORT_RUN, ...LIMITS, "-cp", classPath, tool, report],
    { maxBuffer: 2 ** 26 },
  );
  return stdout + stderr;
}

t.test("PixelMed's validator has no errors", { skip }, async (t) => {
  const shop = await workshop();
  t.teardown(() => shop.close());
  const reports: string[] = [];
  const seen = new Set<string>();
  for (const path of shop.sources) {
    const modality = (await readImage(readFileSync(path))).source.modality ?? "";
    if (seen.has(modality) || seen.size === MODALITIES) continue;
    const [made] = await shop.make(path, [KINDS[seen.size % KINDS.length]!], ["sr", "seg"]);
    if (made?.objects.sr === undefined) continue;
    seen.add(modality);
    reports.push(made.objects.sr);
  }
  for (const [model, file] of [
    ["ct-tissue", "ct-series-chest/000021.dcm"],
    ["burned-in-text", "ele-us-burnedin.dcm"],
  ] as const) {
    const [made] = await shop.make(resolve("../shared/dicom", file), [model], ["sr", "seg"]);
    reports.push(made!.objects.sr!);
  }
  // Whole series, a report that follows another, probabilities, heat maps and measured values;
  // colour and many frames
  const special = await specialShop();
  t.teardown(() => special.close());
  for (const [model, source, follows] of [
    ["volume", "ct-series-chest", true],
    ["volume-fractional", "ct-series-chest", false],
    ["fractional", "rle-mr-multiframe12.dcm", false],
    ["regression", "rle-mr-multiframe12.dcm", false],
    ["heatmap", "ele-us-burnedin.dcm", false],
    ["detector", "jpeg70-us-rgb-2frame.dcm", false],
  ] as const)
    reports.push((await special.make(model, source, follows)).sr!);
  t.ok(reports.length >= 14, `${reports.length} reports`);
  const queue = [...reports];
  const worker = async () => {
    for (let report = queue.shift(); report !== undefined; report = queue.shift()) {
      const output = await validate(report);
      t.match(output, /IOD validation complete/, `${basename(report)} was validated`);
      t.strictSame(refusedErrors("PixelMed", output), [], basename(report));
    }
  };
  await Promise.all([worker(), worker()]);
});
