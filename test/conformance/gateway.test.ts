/**
 * What other programs send through the gateway arrives with the same pixels, in every transfer
 * syntax that is read.
 */
import { execFile } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import type { AddressInfo } from "node:net";
import path from "node:path";
import { promisify } from "node:util";
import { pino } from "pino";
import t, { type Test } from "tap";
import { STATUS } from "../../src/features/gateway/dimse/command.js";
import { DicomListener } from "../../src/features/gateway/receive/dicom-listener.js";
import { receptionIn } from "../support/arriving.js";
import { RefusedSenders } from "../../src/features/gateway/receive/refused-senders.js";
import { Spool } from "../../src/features/gateway/receive/spool.js";
import { storeParts } from "../../src/features/gateway/receive/stow.js";
import { isTakenClass, isTakenSyntax } from "../../src/features/gateway/receive/taken.js";
import { inspectImage } from "../../src/inference/inspection.js";
import { readImage } from "../../src/images/read-image.js";
import { readFileMeta } from "../../src/images/dicom/dicom-file.js";
import { BIG_ENDIAN, EXPLICIT, IMPLICIT } from "../support/dicom.js";
import { filesBelow } from "../support/gateway.js";
import { commandsAre, DICOM_FILES, needs, PYTHON, pythonHas } from "../support/needs.js";

const skip = needs(DICOM_FILES);
const run = promisify(execFile);
const silent = pino({ level: "silent" });

/** Files of the conformance set whose meta information says what they are, and which are whole. */
function samples() {
  const folder = path.dirname(path.resolve(DICOM_FILES));
  const [, ...rows] = readFileSync(DICOM_FILES, "utf8").trimEnd().split("\n");
  return rows
    .map((row) => row.split("\t"))
    .filter(
      ([name = "", , expect]) => expect === "decode" && !name.startsWith("ct-series-chest/0001"),
    )
    .flatMap(([name = ""]) => {
      const file = path.join(folder, name);
      const meta = readFileMeta(readFileSync(file));
      return meta === undefined ? [] : [{ file, ...meta }];
    });
}

const UNCOMPRESSED = [IMPLICIT, EXPLICIT, BIG_ENDIAN];

/** One has no study, and one has a hash in the place of each UID. */
const WITHOUT_UIDS = ["htj2k201-rgb.dcm", "jpeg70-ct-bad-sequence.dcm"];

type Sample = ReturnType<typeof samples>[number];

/**
 * The samples, and the status of storing each; null where its context is not accepted. Some are
 * another file's object, changed.
 */
function expected(): { one: Sample; status: number | null }[] {
  const seen = new Set<string>();
  return samples().map((one) => {
    if (!isTakenClass(one.sopClassUid) || !isTakenSyntax(one.transferSyntax))
      return { one, status: null };
    if (WITHOUT_UIDS.includes(path.basename(one.file)))
      return { one, status: STATUS.dataSetDoesNotMatch };
    const isSecond = seen.has(one.sopInstanceUid);
    seen.add(one.sopInstanceUid);
    return { one, status: isSecond ? STATUS.duplicateInstance : STATUS.success };
  });
}
const kept = () => expected().flatMap(({ one, status }) => (status === STATUS.success ? one : []));

async function listener(t: Test) {
  const folder = t.testdir();
  const spool = new Spool(folder, { mostBytes: 2 ** 31, minimumFreeBytes: 0, peerShare: 1 });
  const listener = new DicomListener({
    mostData: 65_536,
    pduTimeout: 60_000,
    idleTimeout: 60_000,
    aeTitles: ["RADSERVE"],
    mostAssociations: 8,
    spool,
    reception: receptionIn(folder, spool),
    log: silent,
    coming: () => Promise.resolve(),
    kept: () => undefined,
    notesTitle: () => false,
    refused: () => undefined,
    contextRefused: () => undefined,
    callerRefused: () => undefined,
    senders: new RefusedSenders(silent),
    ended: () => undefined,
    peers: [{ name: "any", aeTitle: "ANY", networks: undefined }],
  });
  listener.server.listen(0, "127.0.0.1");
  await once(listener.server, "listening");
  t.teardown(() => listener.close());
  return { folder, spool, port: String((listener.server.address() as AddressInfo).port) };
}

const pixelsOf = async (file: string) => {
  const {
    first_frame: first,
    last_frame: last,
    frames,
  } = await inspectImage(await readImage(readFileSync(file)));
  return { first: first.sha256, last: last.sha256, frames };
};

/** Compares what arrived with what was sent; gives the transfer syntaxes that it has. */
async function compared(
  t: Test,
  folder: string,
  sent: readonly { file: string; sopInstanceUid: string; transferSyntax: string }[],
) {
  const arrived = filesBelow(path.join(folder, "series"));
  const syntaxes = new Set<string>();
  for (const { file, sopInstanceUid, transferSyntax } of sent) {
    const found = arrived.find((name) => path.basename(name) === `${sopInstanceUid}.dcm`);
    t.ok(found, `${path.basename(file)} arrived`);
    if (found === undefined) continue;
    const there = path.join(folder, "series", found);
    t.same(await pixelsOf(there), await pixelsOf(file), path.basename(file));
    const syntax = readFileMeta(readFileSync(there))?.transferSyntax ?? "";
    // DCMTK proposes and writes native pixels in what it likes
    const isNative = UNCOMPRESSED.includes(transferSyntax) && UNCOMPRESSED.includes(syntax);
    if (!isNative) t.equal(syntax, transferSyntax, "the transfer syntax that was sent");
    syntaxes.add(syntax);
  }
  return syntaxes;
}

await t.test(
  "pynetdicom: each transfer syntax",
  { skip: skip || pythonHas("pynetdicom") },
  async (t) => {
    const { folder, port } = await listener(t);
    const all = samples();
    const script = path.resolve("test/conformance/gateway_send.py");
    const { stdout } = await run(PYTHON, [script, port, ...all.map(({ file }) => file)], {
      maxBuffer: 2 ** 24,
    });
    const answers = new Map(
      stdout
        .trim()
        .split("\n")
        .map((line) => {
          const { file, status } = JSON.parse(line) as { file: string; status: number | null };
          return [file, status];
        }),
    );
    for (const { one, status } of expected())
      t.equal(answers.get(path.basename(one.file)), status, path.basename(one.file));
    const syntaxes = await compared(t, folder, kept());
    t.comment(`${kept().length} files in ${syntaxes.size} transfer syntaxes`);
    t.ok(syntaxes.size >= 12, [...syntaxes].join());
  },
);

await t.test(
  "DCMTK: echoscu, storescu and dcmsend",
  { skip: skip || commandsAre("echoscu", "storescu", "dcmsend") },
  async (t) => {
    const { folder, port } = await listener(t);
    const to = ["-aet", "ANY", "-aec", "RADSERVE", "127.0.0.1", port];
    await run("echoscu", to);
    await t.rejects(
      run("echoscu", ["-aet", "OTHER", "-aec", "RADSERVE", "127.0.0.1", port]),
      "a stranger",
    );
    const all = kept();
    // Of the dose, whose UIDs have another VR, DCMTK announces others than it has
    const [slices, others] = [
      all.filter(({ file }) => file.includes("ct-series")),
      all.filter(({ file }) => /\/(jpeg[57]|jls|j2k9[01]-us|rle(?!-rtdose))/.test(file)),
    ];
    await run("storescu", [...to, ...slices.map(({ file }) => file)]);
    await run("dcmsend", ["-dn", ...to, ...others.map(({ file }) => file)]);
    const syntaxes = await compared(t, folder, [...slices, ...others]);
    t.ok(syntaxes.size >= 7, [...syntaxes].join());
  },
);

await t.test("STOW-RS: the same files are the same objects", { skip }, async (t) => {
  const { folder, spool } = await listener(t);
  const all = samples();
  async function* body() {
    for (const { file } of all) {
      yield Buffer.from("\r\n--b\r\nContent-Type: application/dicom\r\n\r\n");
      yield await Promise.resolve(readFileSync(file));
    }
    yield Buffer.from("\r\n--b--");
  }
  const answer = await storeParts(body(), "b", {
    peer: "stow-x",
    spool,
    transfer: receptionIn(folder, spool).open("stow-x"),
    log: silent,
    coming: () => Promise.resolve(),
    kept: () => undefined,
    refused: () => undefined,
  });
  t.equal(answer.status, 202);
  t.equal(answer.body["00081199"]?.Value?.length, kept().length);
  t.equal(answer.body["00081198"]?.Value?.length, all.length - kept().length);
  await compared(t, folder, kept());
});
