/** Receipts of earlier versions that show what is known to be wrong in them. */
import { spawnSync } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import t from "tap";
import { auditPaths } from "../../../src/audit/folders.js";
import { readImage } from "../../../src/images/read-image.js";
import { KNOWN_FAULTS, knownFaults, type Evidence } from "../../../src/results/receipt/known-faults.js";
import type { Receipt } from "../../../src/results/receipt/receipt.js";
import { attributesOf, dicomFile, EXPLICIT, picture } from "../../support/dicom.js";
import { ADDON, needs } from "../../support/needs.js";
import { receiptOf } from "../../support/receipts.js";

const MAIN = resolve("dist/src/main.js");

/** A receipt of 0.5 with one model that has written a SEG. */
function earlier(change: (receipt: Receipt) => void = () => undefined): Receipt {
  const receipt = receiptOf({ week: 0, study: 1, score: 0.9 });
  receipt.radserve_version = "0.5.0";
  const seg = { path: "x.dcm.cxr.seg.dcm", media_type: "application/dicom", sha256: "0".repeat(64) };
  receipt.models[0]?.outputs.push(seg);
  change(receipt);
  return receipt;
}

const raw = picture({ rows: 8, columns: 8, samples: 1, bitsAllocated: 8, bitsStored: 8 });
const NAMES = {
  StudyInstanceUID: "1.2.1",
  SeriesInstanceUID: "1.2.2",
  SOPInstanceUID: "1.2.3",
  Modality: "CT",
};
const fileWith = (attributes: object) =>
  dicomFile({
    transferSyntax: EXPLICIT,
    attributes: attributesOf(raw, { ...NAMES, ...attributes }),
    pixels: raw.data,
  });
const imageWith = (attributes: object) => readImage(fileWith(attributes));

const NO_TRANSFORM = {
  code: "photometric_mismatch",
  message:
    "PhotometricInterpretation is YBR_ICT but the codestream has no such transform; the frames were taken as RGB.",
};

/** By the first word of the fault that it shows, which is the only one. */
const CASES: Record<string, () => Evidence | Promise<Evidence>> = {
  PhotometricInterpretation: () => ({ receipt: earlier(({ warnings }) => warnings.push(NO_TRANSFORM)) }),
  FrameOfReferenceUID: async () => ({
    receipt: earlier(),
    image: await imageWith({ FrameOfReferenceUID: "" }),
  }),
};

t.test("each fault is told of the receipts that show it, and of no others", async (t) => {
  const found: string[] = [];
  for (const [about, evidence] of Object.entries(CASES)) {
    const shown = await evidence();
    const texts = knownFaults(shown);
    t.match(texts, [new RegExp(`^${about} `)], about);
    t.equal(texts.length, 1, about);
    const { receipt } = shown;
    for (const version of ["0.6.0", "0.6.1", "0.10.0", "1.0.0"])
      t.strictSame(
        knownFaults({ ...shown, receipt: { ...receipt, radserve_version: version } }),
        [],
        version,
      );
    t.equal(knownFaults({ ...shown, receipt: { ...receipt, radserve_version: "0.4.0" } }).length, 1);
    found.push(...texts);
  }
  t.strictSame(knownFaults({ receipt: earlier() }), []);
  t.strictSame(knownFaults({ receipt: earlier(), image: await imageWith({}) }), []);
  t.strictSame(found.sort(), KNOWN_FAULTS.map(({ text }) => text).sort(), "each has evidence here");
});

t.test("verify and explain tell them", { skip: needs(ADDON) }, (t) => {
  const folder = t.testdir();
  const output = join(folder, "out");
  const state = join(folder, "state");
  for (const one of [output, state, auditPaths(state).folder]) mkdirSync(one);
  writeFileSync(auditPaths(state).namesKey, Buffer.alloc(32).toString("base64url"));
  const source = join(folder, "ct.dcm");
  writeFileSync(source, fileWith({ FrameOfReferenceUID: "" }));
  const command = (...words: string[]) => {
    const env = { ...process.env, RADSERVE_STATE_DIR: state };
    return spawnSync(process.execPath, [MAIN, ...words], { encoding: "utf8", env });
  };
  t.equal(command("infer", source, output, "--outputs", "sc").status, 0);
  const file = join(output, "ct.dcm.json");
  const now = command("verify", file, "--input", source);
  t.equal(now.status, 0, now.stdout);
  const receipt = JSON.parse(readFileSync(file, "utf8")) as Receipt;
  const before = { ...receipt, radserve_version: "0.5.0", warnings: [NO_TRANSFORM] };
  writeFileSync(file, `${JSON.stringify(before, null, 2)}\n`);
  const { status, stdout } = command("verify", file, "--input", source);
  t.equal(status, 1);
  t.match(stdout, /^known fault +Radserve 0\.5\.0 +PhotometricInterpretation YBR_RCT/m);
  t.match(stdout, /^known fault +Radserve 0\.5\.0 +FrameOfReferenceUID is empty in the source/m);
  t.match(stdout, /^cannot be replayed .* read in another way here$/m, "the source is the same");
  const without = command("verify", file, "--json").stdout;
  t.match(JSON.parse(without), { equal: false, checks: [{}, {}, {}, {}, {}, { verdict: "known_fault" }] });
  t.notMatch(without, /FrameOfReferenceUID/, "the receipt alone does not show it");
  t.match(command("explain", file).stdout, /^ {2}known fault: PhotometricInterpretation YBR_RCT/m);
  t.match(JSON.parse(command("explain", file, "--json").stdout), [{ known_faults: [/^Photometric/] }]);
  t.end();
});
