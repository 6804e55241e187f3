/** Peers that results are delivered to, and the objects that go there. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, readFileSync, realpathSync, writeFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import type { Test } from "tap";
import { destinationSchema } from "../../src/features/gateway/deliver/destination-settings.js";
import type {
  Destination,
  ObjectToSend,
  Proved,
  Sent,
} from "../../src/features/gateway/deliver/destination.js";
import { openDestination } from "../../src/features/gateway/deliver/open-destination.js";
import { sha256 } from "../../src/files/durable-files.js";
import { openFile } from "../../src/images/dicom/dicom-file.js";
import { fileHead } from "../../src/results/dicom/elements.js";
import { attributesOf, compress, dicomFile, picture, RLE, type Raw } from "./dicom.js";
import { object } from "./gateway.js";
import { endsWithTest } from "./ends-with-test.js";
import { freePort } from "./server.js";
import { until } from "./until.js";

export const DICOM_WEB_PLUGIN = "/usr/share/orthanc/plugins/libOrthancDicomWeb.so";

export interface Pacs {
  url: string;
  port: number;
  kill: (signal: NodeJS.Signals) => Promise<void>;
  /** The JSON of a page of its REST API. */
  rest: (page: string) => Promise<unknown>;
}

/** A folder that is removed with the test. */
export function testFolder(): string {
  const folder = realpathSync(mkdtempSync(path.join(os.tmpdir(), "radserve-pacs-")));
  endsWithTest(folder);
  return folder;
}

/**
 * An Orthanc that is empty, or has the storage of one before. @param change of its configuration
 */
export async function startOrthanc(
  t: Test,
  change: object = {},
  folder = testFolder(),
  environment: Record<string, string> = {},
): Promise<Pacs> {
  const [http, dicom] = [await freePort(), await freePort()];
  mkdirSync(path.join(folder, "db"), { recursive: true });
  const file = path.join(folder, "orthanc.json");
  const configuration = {
    Name: "Test",
    HttpPort: http,
    DicomPort: dicom,
    DicomAet: "ORTHANC",
    RemoteAccessAllowed: false,
    AuthenticationEnabled: false,
    StorageDirectory: path.join(folder, "db"),
    Plugins: [DICOM_WEB_PLUGIN],
    DicomAlwaysAllowGet: true,
    DicomAlwaysAllowMove: true,
    DicomCheckCalledAet: true,
    // This version does not know label maps otherwise
    UnknownSopClassAccepted: true,
    DicomWeb: { Enable: true, Root: "/dicom-web/" },
    StableAge: 1,
    ...change,
  };
  writeFileSync(file, JSON.stringify(configuration));
  const child = spawn("Orthanc", [file], {
    stdio: ["ignore", "ignore", "pipe"],
    cwd: folder,
    env: { ...process.env, ...environment },
  });
  const said: string[] = [];
  child.stderr.on("data", (data: Buffer) => said.push(data.toString()));
  const exit = once(child, "exit");
  const rest = async (page: string) => (await fetch(`http://127.0.0.1:${http}${page}`)).json();
  await until("Orthanc answers", () => {
    if (child.exitCode !== null) throw new Error(said.join("").slice(-2000));
    return rest("/system").then(
      () => true,
      () => false,
    );
  });
  const kill = async (signal: NodeJS.Signals) => {
    child.kill(signal);
    await exit;
  };
  t.teardown(() => kill("SIGKILL"));
  return { url: `http://127.0.0.1:${http}/dicom-web`, port: dicom, kill, rest };
}

/** A file as the object that is sent. */
export function objectOf(file: string): ObjectToSend {
  const bytes = readFileSync(file);
  const { attributes, transferSyntax } = openFile(bytes);
  const uid = (keyword: string) => attributes.string(keyword) ?? "";
  return {
    path: file,
    sha256: sha256(bytes),
    sop_class_uid: uid("SOPClassUID"),
    sop_instance_uid: uid("SOPInstanceUID"),
    study_instance_uid: uid("StudyInstanceUID"),
    series_instance_uid: uid("SeriesInstanceUID"),
    transfer_syntax_uid: transferSyntax.uid,
  };
}

/** A destination as the settings would have it. @param timeout in seconds */
export function destinationOf(t: Test, settings: object, timeout = 20): Destination {
  const destination = openDestination("pacs", { ...destinationSchema.parse(settings), timeout });
  t.teardown(() => destination.close());
  return destination;
}

/** What became of each object. */
export async function sentTo(
  destination: Destination,
  objects: readonly ObjectToSend[],
  signal = new AbortController().signal,
): Promise<Map<string, Sent>> {
  const told = new Map<string, Sent>();
  for await (const [uid, sent] of destination.send(objects, signal)) {
    if (told.has(uid)) throw new Error("An object is told of twice");
    told.set(uid, sent);
  }
  return told;
}

export const provedBy = (destination: Destination, object: ObjectToSend): Promise<Proved> =>
  destination.prove(object, new AbortController().signal);

const folder = { made: "" };

/** So many small objects, in files. */
export function slicesToSend(count: number): ObjectToSend[] {
  folder.made ||= testFolder();
  return Array.from({ length: count }, (_, i) => {
    const file = path.join(folder.made, `${i + 1}.dcm`);
    writeFileSync(file, object(i + 1).file);
    return objectOf(file);
  });
}

/** A colour picture in RLE Lossless, as a file, and its pixels. */
export async function pictureToSend(): Promise<{ object: ObjectToSend; raw: Raw }> {
  folder.made ||= testFolder();
  const file = path.join(folder.made, "sc.dcm");
  const raw = picture({ rows: 3, columns: 5, samples: 3, bitsAllocated: 8, bitsStored: 8 });
  const [sopClass, instance] = ["1.2.840.10008.5.1.4.1.1.7", "1.2.3.4.5"];
  const attributes = attributesOf(raw, {
    SOPClassUID: sopClass,
    SOPInstanceUID: instance,
    StudyInstanceUID: "1.2.3",
    SeriesInstanceUID: "1.2.3.4",
    PlanarConfiguration: 1,
  });
  const pixels = { fragments: [await compress("rle", raw)] };
  const bare = { preamble: false, meta: false };
  const dataSet = dicomFile({ attributes, transferSyntax: RLE, pixels, ...bare });
  writeFileSync(file, Buffer.concat([fileHead(sopClass, instance, RLE), dataSet]));
  return { object: objectOf(file), raw };
}
