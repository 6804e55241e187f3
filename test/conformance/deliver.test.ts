/**
 * Every kind of object that is written goes to the PACS of others and is read back: Orthanc, DCMTK,
 * pynetdicom and PixelMed. A table says what each of them took and by what it was proven.
 */
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import path from "node:path";
import t, { type Test } from "tap";
import type { ObjectToSend } from "../../src/features/gateway/deliver/destination.js";
import { compareObjects } from "../../src/features/gateway/deliver/proof.js";
import { sopClassName } from "../../src/images/dicom/dictionary.js";
import { RLE_LOSSLESS, transferSyntax } from "../../src/images/dicom/transfer-syntax.js";
import { ADDON, commandsAre, DICOM_FILES, needs, PYTHON, pythonHas } from "../support/needs.js";
import {
  destinationOf,
  DICOM_WEB_PLUGIN,
  objectOf,
  provedBy,
  sentTo,
  startOrthanc,
  testFolder,
} from "../support/pacs.js";
import { freePort } from "../support/server.js";
import { until } from "../support/until.js";
import { objectsOf, specialShop } from "./special.js";

const JARS = "/usr/share/java";
const skip = needs(ADDON, DICOM_FILES);
const noOrthanc = needs(DICOM_WEB_PLUGIN) || commandsAre("Orthanc");
const LABEL_MAP = "1.2.840.10008.5.1.4.1.1.66.7";

/** Objects of every kind, of one frame and of many. */
async function everyKind(t: Test): Promise<ObjectToSend[]> {
  const shop = await specialShop();
  t.teardown(() => shop.close());
  const made = [
    await shop.make("segmenter", "ct-series-chest/000021.dcm"),
    await shop.make("fractional", "rle-mr-multiframe12.dcm"),
    await shop.make("detector", "jpeg70-us-rgb-2frame.dcm"),
    await shop.makeForms("segmenter", "ct-series-chest/000021.dcm"),
  ];
  return made.flatMap(objectsOf).map(objectOf);
}

const nameOf = ({ sop_class_uid: uid, transfer_syntax_uid: syntax }: ObjectToSend) =>
  `${sopClassName(uid)}, ${transferSyntax(syntax).name}`;

const isCompressed = (uid: string) => transferSyntax(uid).coding !== "native";

/** Sends and proves each; gives a row of the table for each. */
async function delivered(
  t: Test,
  peer: string,
  objects: readonly ObjectToSend[],
  settings: object,
): Promise<void> {
  const destination = destinationOf(t, settings, 60);
  const told = await sentTo(destination, objects);
  for (const object of objects) {
    const sent = told.get(object.sop_instance_uid);
    t.match(sent, { state: "stored" }, `${peer}: ${nameOf(object)}`);
    const proved = await provedBy(destination, object);
    t.match(proved, { state: "proven" }, `${peer}: ${nameOf(object)}`);
    t.comment(
      `${peer} | ${nameOf(object)} | ${sent?.state ?? ""} | ${JSON.stringify({ ...proved, at: undefined })}`,
    );
  }
  const [object] = objects;
  const missing = await provedBy(destination, { ...object!, sop_instance_uid: "1.2.3.4.5" });
  t.match(missing, { state: "missing" }, `${peer} does not have what it was not sent`);
}

/** Compares what lies in a folder with what was sent. */
async function compared(
  t: Test,
  peer: string,
  folder: string,
  objects: readonly ObjectToSend[],
): Promise<void> {
  const files = readdirSync(folder, { recursive: true, withFileTypes: true }).filter((entry) =>
    entry.isFile(),
  );
  const found = files.map((entry) => objectOf(path.join(entry.parentPath, entry.name)));
  for (const object of objects) {
    const there = found.find((one) => one.sop_instance_uid === object.sop_instance_uid);
    t.ok(there, `${peer} has ${nameOf(object)}`);
    if (there === undefined) continue;
    const comparison = await compareObjects(readFileSync(object.path), readFileSync(there.path));
    t.same(comparison, { equal: true, coerced: [], changed_by: [] }, `${peer}: ${nameOf(object)}`);
    t.comment(
      `${peer} | ${nameOf(object)} | stored as ${transferSyntax(there.transfer_syntax_uid).name} | equal`,
    );
  }
}

/** A program that listens on a port, as soon as it does. */
async function listening(
  t: Test,
  port: number,
  command: string,
  args: readonly string[],
): Promise<void> {
  const child = spawn(command, args, { stdio: ["pipe", "ignore", "ignore"] });
  const exit = once(child, "exit");
  t.teardown(async () => {
    child.kill("SIGKILL");
    await exit;
  });
  await until(`${command} listens`, async () => {
    if (child.exitCode !== null) throw new Error(`${command} has ended with ${child.exitCode}`);
    const socket = connect(port, "127.0.0.1");
    const there = await Promise.race([
      once(socket, "connect").then(
        () => true,
        () => false,
      ),
      once(socket, "error").then(() => false),
    ]);
    socket.destroy();
    return there;
  });
}

await t.test("every kind of object", { skip }, async (t) => {
  const objects = await everyKind(t);
  t.comment([...new Set(objects.map(nameOf))].join("; "));
  t.ok(new Set(objects.map(({ sop_class_uid: uid }) => uid)).size >= 5);

  await t.test("Orthanc", { skip: noOrthanc }, async (t) => {
    const back = await freePort();
    const modalities = { DicomModalities: { radserve: ["RADSERVE", "127.0.0.1", back] } };
    const pacs = await startOrthanc(t, modalities);
    await delivered(t, "Orthanc, STOW-RS and WADO-RS", objects, { type: "stow", url: pacs.url });
    const dicom = { type: "dicom", host: "127.0.0.1", port: pacs.port, called_ae: "ORTHANC" };
    const again = await startOrthanc(t, modalities);
    const to = { ...dicom, port: again.port };
    await delivered(t, "Orthanc, C-STORE and C-GET", objects, to);
    for (const prove of ["c-move", "commitment"]) {
      const destination = { ...to, prove, listen: { port: back } };
      await t.test(prove, (t) =>
        delivered(t, `Orthanc, C-STORE and ${prove}`, objects, destination),
      );
    }
  });

  await t.test("pynetdicom", { skip: pythonHas("pynetdicom") }, async (t) => {
    const [port, back, folder] = [await freePort(), await freePort(), testFolder()];
    const script = path.resolve("test/conformance/deliver_peer.py");
    await listening(t, port, PYTHON, [script, String(port), folder, String(back), "none"]);
    const to = { type: "dicom", host: "127.0.0.1", port, called_ae: "PYNET" };
    await delivered(t, "pynetdicom, C-STORE and C-GET", objects, to);
    await compared(t, "pynetdicom", folder, objects);
    for (const prove of ["c-move", "commitment"])
      await t.test(prove, (t) =>
        delivered(t, `pynetdicom, C-STORE and ${prove}`, objects, {
          ...to,
          prove,
          listen: { port: back },
        }),
      );
  });

  await t.test(
    "pynetdicom that lies, and with a full disk",
    { skip: pythonHas("pynetdicom") },
    async (t) => {
      const script = path.resolve("test/conformance/deliver_peer.py");
      const ways = {
        lies: { sent: "stored", proved: "missing" },
        disk: { sent: "away", proved: "missing" },
      };
      for (const [fault, { sent, proved }] of Object.entries(ways)) {
        const port = await freePort();
        await listening(t, port, PYTHON, [script, String(port), testFolder(), "1", fault]);
        const settings = { type: "dicom", host: "127.0.0.1", port, called_ae: "PYNET" };
        const destination = destinationOf(t, settings);
        const told = await sentTo(destination, objects);
        t.ok(
          [...told.values()].every(({ state }) => state === sent),
          fault,
        );
        t.match(await provedBy(destination, objects[0]!), { state: proved }, fault);
      }
    },
  );

  await t.test("DCMTK's storescp", { skip: commandsAre("storescp") }, async (t) => {
    // 3.6.7 does not know label maps
    const known = objects.filter(({ sop_class_uid: uid }) => uid !== LABEL_MAP);
    for (const [syntaxes, option] of [
      ["all", "+xa"],
      ["Implicit VR alone", "+xi"],
    ] as const) {
      const [port, folder] = [await freePort(), testFolder()];
      await listening(t, port, "storescp", [option, "-od", folder, String(port)]);
      const settings = { type: "dicom", host: "127.0.0.1", port, called_ae: "ANY", prove: false };
      const told = await sentTo(destinationOf(t, settings), objects);
      const taken = known.filter(
        ({ transfer_syntax_uid: uid }) => option === "+xa" || !isCompressed(uid),
      );
      for (const object of objects) {
        const sent = told.get(object.sop_instance_uid);
        // A picture in RLE Lossless is decompressed for who takes no RLE
        const isPicture = known.includes(object) && object.transfer_syntax_uid === RLE_LOSSLESS;
        const expected =
          isPicture || taken.includes(object)
            ? { state: "stored" }
            : { state: "refused", reason: /does not take/ };
        t.match(sent, expected, `${syntaxes}: ${nameOf(object)}`);
      }
      await compared(t, `storescp (${syntaxes})`, folder, taken);
      t.match(await provedBy(destinationOf(t, settings), objects[0]!), { state: "not_provable" });
    }
  });

  await t.test("DCMTK's dcmqrscp", { skip: commandsAre("dcmqrscp") }, async (t) => {
    const [port, back, folder] = [await freePort(), await freePort(), testFolder()];
    mkdirSync(path.join(folder, "db"));
    const file = path.join(folder, "dcmqrscp.cfg");
    writeFileSync(
      file,
      [
        `NetworkTCPPort = ${port}\nMaxPDUSize = 16384\nMaxAssociations = 16`,
        `HostTable BEGIN\nradserve = (RADSERVE, 127.0.0.1, ${back})\nHostTable END`,
        "VendorTable BEGIN\nVendorTable END",
        `AETable BEGIN\nQR ${folder}/db RW (500, 1024mb) ANY\nAETable END\n`,
      ].join("\n"),
    );
    await listening(t, port, "dcmqrscp", ["+xr", "-c", file]);
    const known = objects.filter(({ sop_class_uid: uid }) => uid !== LABEL_MAP);
    const to = { type: "dicom", host: "127.0.0.1", port, called_ae: "QR" };
    await delivered(t, "dcmqrscp, C-STORE and C-GET", known, to);
    // It moves what is not compressed alone
    const plain = known.filter(({ transfer_syntax_uid: uid }) => !isCompressed(uid));
    await t.test("c-move", (t) =>
      delivered(t, "dcmqrscp, C-STORE and c-move", plain, {
        ...to,
        prove: "c-move",
        listen: { port: back },
      }),
    );
  });

  await t.test(
    "PixelMed",
    { skip: needs(`${JARS}/pixelmed.jar`) || commandsAre("java") },
    async (t) => {
      const [port, folder] = [await freePort(), testFolder()];
      const jars = readdirSync(JARS).filter((name) => name.endsWith(".jar"));
      const classPath = jars.map((name) => path.join(JARS, name)).join(":");
      const main = "com.pixelmed.network.StorageSOPClassSCPDispatcher";
      const args = ["-cp", classPath, main, String(port), "PIXELMED", folder, "NONSECURE", "ANY"];
      await listening(t, port, "java", ["-XX:+UseSerialGC", ...args]);
      const settings = {
        type: "dicom",
        host: "127.0.0.1",
        port,
        called_ae: "PIXELMED",
        prove: false,
      };
      const told = await sentTo(destinationOf(t, settings), objects);
      const taken = objects.filter(
        ({ sop_instance_uid: uid }) => told.get(uid)?.state === "stored",
      );
      t.comment(JSON.stringify([...told.values()]));
      t.ok(taken.length > 0);
      await compared(t, "PixelMed", folder, taken);
    },
  );
});

await t.test(
  "Orthanc refuses, fills its disk, is killed, and comes back",
  { skip: skip || noOrthanc },
  async (t) => {
    const folder = testFolder();
    const [fault, shim, disk] = ["fault", "failing-disk.so", "db"].map((name) =>
      path.join(folder, name),
    ) as [string, string, string];
    execFileSync("cc", [
      "-shared",
      "-fPIC",
      "-o",
      shim,
      path.resolve("test/support/failing-disk.c"),
    ]);
    const environment = { LD_PRELOAD: shim, TEST_DISK: disk, TEST_FAULT: fault };
    const pacs = await startOrthanc(t, { DicomCheckCalledAet: true }, folder, environment);
    const shop = await specialShop();
    t.teardown(() => shop.close());
    const objects = objectsOf(await shop.make("segmenter", "ct-series-chest/000021.dcm")).map(
      objectOf,
    );
    const ways = {
      "STOW-RS": { type: "stow", url: pacs.url },
      "C-STORE": { type: "dicom", host: "127.0.0.1", port: pacs.port, called_ae: "ORTHANC" },
    };
    writeFileSync(fault, "28");
    for (const [name, settings] of Object.entries(ways)) {
      const destination = destinationOf(t, settings);
      for (const [, sent] of await sentTo(destination, objects)) {
        t.not(sent.state, "stored", `${name}: the disk is full`);
        t.comment(`${name}, full disk: ${JSON.stringify(sent)}`);
      }
      t.match(await provedBy(destination, objects[0]!), { state: "missing" });
    }
    rmSync(fault);
    const stranger = destinationOf(t, { ...ways["C-STORE"], called_ae: "OTHER" });
    t.match([...(await sentTo(stranger, objects)).values()][0], {
      state: "away",
      reason: /called AE title/,
    });
    for (const settings of Object.values(ways))
      t.match(
        [...(await sentTo(destinationOf(t, settings), objects)).values()],
        objects.map(() => ({ state: "stored" })),
      );
    await pacs.kill("SIGKILL");
    for (const [name, settings] of Object.entries(ways))
      t.match(
        [...(await sentTo(destinationOf(t, settings), objects)).values()],
        objects.map(() => ({ state: "away" })),
        name,
      );
    const back = await startOrthanc(t, {}, folder);
    for (const object of objects)
      t.match(await provedBy(destinationOf(t, { type: "stow", url: back.url }), object), {
        state: "proven",
      });
  },
);
