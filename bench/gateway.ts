/**
 * `npm run bench -- gateway [--slices 800] [--rounds 3]`: a CT of 800 slices of 512 by 512 pixels
 * comes in by storescu, beside DCMTK's storescp and the fsyncs that a spool needs, against the goal
 * of 1.2 times the two, and beside itself without the walk over elements (1.1); and goes out over
 * one association beside storescu, and by STOW-RS beside curl, against the goals of 0.7 and 0.8 of
 * their throughput. By turns; the least time counts, because other work only adds to it. It needs
 * dcmtk and curl, keeps some 2 GB for each round until its end, and takes some minutes.
 */
import { execFile, fork, spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { open } from "node:fs/promises";
import { createServer } from "node:http";
import { connect, type AddressInfo, type Server } from "node:net";
import os from "node:os";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { parseArgs, promisify } from "node:util";
import { pino } from "pino";
import type { ObjectToSend } from "../src/features/gateway/deliver/destination.js";
import { destinationSchema } from "../src/features/gateway/deliver/destination-settings.js";
import { openDestination } from "../src/features/gateway/deliver/open-destination.js";
import { DicomListener } from "../src/features/gateway/receive/dicom-listener.js";
import { receptionIn } from "../test/support/arriving.js";
import { RefusedSenders } from "../src/features/gateway/receive/refused-senders.js";
import { Spool } from "../src/features/gateway/receive/spool.js";
import { WholeObject } from "../src/features/gateway/receive/whole-object.js";
import { sha256, syncFolder } from "../src/files/durable-files.js";
import { EXPLICIT_VR_LITTLE_ENDIAN } from "../src/images/dicom/transfer-syntax.js";
import { dataSetBytes, fileHead } from "../src/results/dicom/elements.js";
import { SERVING_FLAGS } from "../src/server/serving-child.js";

const { values } = parseArgs({
  options: {
    slices: { type: "string", default: "800" },
    rounds: { type: "string", default: "3" },
    listener: { type: "string" },
    unwalked: { type: "boolean" },
    sink: { type: "string" },
  },
});
const [SLICES, ROUNDS] = [Number(values.slices), Number(values.rounds)];
const GOALS = { in: 1.2, walk: 1.1, cstore: 0.7, stow: 0.8 };
/** Of one request of STOW-RS. */
const BATCH = 100;
const CT = "1.2.840.10008.5.1.4.1.1.2";
const run = promisify(execFile);
/** DCMTK waits for late acknowledgements otherwise: 40 ms with each object. */
process.env["TCP_NODELAY"] = "1";

const instanceAt = (slice: number) => `1.2.3.4.${slice}`;

function writeSlices(folder: string): ObjectToSend[] {
  return Array.from({ length: SLICES }, (_, i) => {
    const uid = instanceAt(i + 1);
    const names = {
      SOPClassUID: CT,
      SOPInstanceUID: uid,
      StudyInstanceUID: "1.2.3",
      SeriesInstanceUID: "1.2.4",
    };
    const image = {
      SamplesPerPixel: 1,
      PhotometricInterpretation: "MONOCHROME2",
      Rows: 512,
      Columns: 512,
    };
    const bits = { BitsAllocated: 16, BitsStored: 16, HighBit: 15, PixelRepresentation: 0 };
    const pixels = { Modality: "CT", PixelData: new Uint8Array(512 * 512 * 2).fill(i) };
    const bytes = Buffer.concat([
      fileHead(CT, uid, EXPLICIT_VR_LITTLE_ENDIAN),
      ...dataSetBytes({ ...names, ...image, ...bits, ...pixels }, EXPLICIT_VR_LITTLE_ENDIAN),
    ]);
    const file = path.join(folder, `${i + 1}.dcm`);
    writeFileSync(file, bytes);
    return {
      path: file,
      sop_class_uid: CT,
      sop_instance_uid: uid,
      sha256: sha256(bytes),
      study_instance_uid: "1.2.3",
      series_instance_uid: "1.2.4",
      transfer_syntax_uid: EXPLICIT_VR_LITTLE_ENDIAN,
    };
  });
}

async function told(server: Server): Promise<void> {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  process.send?.((server.address() as AddressInfo).port);
}

/** The port for DICOM with its spool, in a process of its own. */
async function serveListener(folder: string): Promise<void> {
  // As it was before objects were walked to their end
  if (values.unwalked === true)
    Object.assign(WholeObject.prototype, { add: () => undefined, end: () => undefined });
  const spool = new Spool(folder, { mostBytes: 2 ** 31, minimumFreeBytes: 0, peerShare: 1 });
  const log = pino({ level: "silent" });
  const listener = new DicomListener({
    mostData: 262_144,
    pduTimeout: 60_000,
    idleTimeout: 60_000,
    aeTitles: ["LISTENER"],
    mostAssociations: 4,
    coming: () => Promise.resolve(),
    kept: () => undefined,
    notesTitle: () => false,
    refused: () => undefined,
    contextRefused: () => undefined,
    callerRefused: () => undefined,
    senders: new RefusedSenders(log),
    ended: () => undefined,
    spool,
    reception: receptionIn(folder, spool),
    log,
    peers: [{ name: "any", aeTitle: "ANY", networks: undefined }],
  });
  await told(listener.server);
}

/** Takes bodies and says that all slices are stored. */
async function serveSink(): Promise<void> {
  const items = Array.from({ length: SLICES }, (_, i) => ({
    "00081155": { vr: "UI", Value: [instanceAt(i + 1)] },
  }));
  const answer = JSON.stringify({ "00081199": { vr: "SQ", Value: items } });
  await told(
    createServer(
      (request, response) => void request.resume().on("end", () => response.end(answer)),
    ),
  );
}

async function startedHere(...args: string[]): Promise<{ child: ChildProcess; port: number }> {
  const words = ["--slices", String(SLICES), ...args];
  const child = fork(fileURLToPath(import.meta.url), words, { execArgv: SERVING_FLAGS });
  const [port] = (await once(child, "message")) as [number];
  return { child, port };
}

async function storescp(...args: string[]): Promise<{ child: ChildProcess; port: number }> {
  const probe = createServer().listen(0, "127.0.0.1");
  await once(probe, "listening");
  const { port } = probe.address() as AddressInfo;
  await new Promise((resolve) => probe.close(resolve));
  const child = spawn("storescp", [...args, "-pdu", "131072", String(port)], { stdio: "ignore" });
  for (;;) {
    const socket = connect(port, "127.0.0.1");
    const there = await new Promise((resolve) =>
      socket.once("connect", () => resolve(true)).once("error", () => resolve(false)),
    );
    socket.destroy();
    if (there === true) return { child, port };
    await delay(50);
  }
}

async function timed(work: () => Promise<unknown>): Promise<number> {
  const began = performance.now();
  await work();
  return performance.now() - began;
}

const storescu = (port: number, folder: string) =>
  timed(() =>
    run("storescu", [
      "-aet",
      "ANY",
      "-aec",
      "LISTENER",
      "-pdu",
      "131072",
      "127.0.0.1",
      String(port),
      "+sd",
      folder,
    ]),
  );

/** What the spool asks of the disk beside writing: each file, and its folder. */
async function fsyncs(folder: string, files: readonly ObjectToSend[]): Promise<number> {
  let spent = 0;
  for (const { path: file } of files) {
    const handle = await open(path.join(folder, path.basename(file)), "w");
    await handle.writeFile(readFileSync(file));
    spent += await timed(async () => {
      await handle.sync();
      await syncFolder(folder);
    });
    await handle.close();
  }
  return spent;
}

async function sent(objects: readonly ObjectToSend[], settings: object): Promise<number> {
  const destination = openDestination(
    "bench",
    destinationSchema.parse({ prove: false, ...settings }),
  );
  try {
    return await timed(async () => {
      let stored = 0;
      for await (const [, { state }] of destination.send(objects, new AbortController().signal))
        stored += state === "stored" ? 1 : 0;
      if (stored !== objects.length)
        throw new Error(`${objects.length - stored} objects were not stored`);
    });
  } finally {
    destination.close();
  }
}

async function curl(port: number, folder: string, bodies: readonly string[]): Promise<number> {
  return timed(async () => {
    for (const body of bodies)
      await run("curl", [
        "-sf",
        "-o",
        path.join(folder, "answer"),
        `http://127.0.0.1:${port}/studies`,
        "-H",
        "Expect:",
        "-H",
        'Content-Type: multipart/related; type="application/dicom"; boundary=b',
        "--data-binary",
        `@${body}`,
      ]);
  });
}

async function main(): Promise<void> {
  const folder = mkdtempSync(path.join(os.tmpdir(), "radserve-bench-"));
  const made = (name: string) => {
    mkdirSync(path.join(folder, name), { recursive: true });
    return path.join(folder, name);
  };
  const objects = writeSlices(made("slices"));
  const bodies = Array.from({ length: Math.ceil(SLICES / BATCH) }, (_, i) => {
    const parts = objects
      .slice(i * BATCH, (i + 1) * BATCH)
      .flatMap((object) => [
        Buffer.from("\r\n--b\r\nContent-Type: application/dicom\r\n\r\n"),
        readFileSync(object.path),
      ]);
    const file = path.join(folder, `body-${i}`);
    writeFileSync(file, Buffer.concat([...parts, Buffer.from("\r\n--b--\r\n")]));
    return file;
  });
  const least = {
    storescp: Infinity,
    fsyncs: Infinity,
    listener: Infinity,
    unwalked: Infinity,
    storescu: Infinity,
    cstore: Infinity,
    curl: Infinity,
    stow: Infinity,
  };
  const note = (name: keyof typeof least, ms: number) => (least[name] = Math.min(least[name], ms));
  try {
    for (let round = 0; round < ROUNDS; round++) {
      const theirs = await storescp("-od", made(`scp-${round}`));
      note("storescp", await storescu(theirs.port, path.join(folder, "slices")));
      theirs.child.kill();
      note("fsyncs", await fsyncs(made(`fsync-${round}`), objects));
      const ours = await startedHere("--listener", made(`spool-${round}`));
      note("listener", await storescu(ours.port, path.join(folder, "slices")));
      ours.child.kill();
      const before = await startedHere("--unwalked", "--listener", made(`unwalked-${round}`));
      note("unwalked", await storescu(before.port, path.join(folder, "slices")));
      before.child.kill();
      const taker = await storescp("--ignore");
      note("storescu", await storescu(taker.port, path.join(folder, "slices")));
      note(
        "cstore",
        await sent(objects, {
          type: "dicom",
          host: "127.0.0.1",
          port: taker.port,
          called_ae: "LISTENER",
        }),
      );
      taker.child.kill();
      const sink = await startedHere("--sink", "all");
      note("curl", await curl(sink.port, folder, bodies));
      note("stow", await sent(objects, { type: "stow", url: `http://127.0.0.1:${sink.port}` }));
      sink.child.kill();
    }
  } finally {
    // Not after each round: ext4 without a journal looks past all files that were deleted in the
    // last minutes when it makes one, and every later round would be slower
    rmSync(folder, { recursive: true });
  }
  const ms = Object.fromEntries(
    Object.entries(least).map(([name, value]) => [name, Math.round(value)]),
  );
  const ratio = {
    in: least.listener / (least.storescp + least.fsyncs),
    walk: least.listener / least.unwalked,
    out_cstore: least.storescu / least.cstore,
    out_stow: least.curl / least.stow,
  };
  const met =
    ratio.in <= GOALS.in &&
    ratio.walk <= GOALS.walk &&
    ratio.out_cstore >= GOALS.cstore &&
    ratio.out_stow >= GOALS.stow;
  console.log(`${SLICES} slices of 0.5 MB, least of ${ROUNDS}, in ms: ${JSON.stringify(ms)}`);
  console.log(`in: ${ratio.in.toFixed(2)} of storescp and the fsyncs (goal: at most ${GOALS.in})`);
  console.log(
    `walked to the end: ${ratio.walk.toFixed(2)} of the time without (goal: at most ${GOALS.walk})`,
  );
  console.log(
    `out by C-STORE: ${ratio.out_cstore.toFixed(2)} of storescu's throughput (goal: at least ${GOALS.cstore})`,
  );
  console.log(
    `out by STOW-RS: ${ratio.out_stow.toFixed(2)} of curl's (goal: at least ${GOALS.stow})`,
  );
  process.exitCode = met ? 0 : 1;
}

if (values.listener !== undefined) await serveListener(values.listener);
else if (values.sink !== undefined) await serveSink();
else await main();
