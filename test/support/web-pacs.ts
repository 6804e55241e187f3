/**
 * A PACS with STOW-RS and WADO-RS alone, in this process, which a test lets refuse, lie or stand
 * still.
 */
import { once } from "node:events";
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { buffer } from "node:stream/consumers";
import { openFile } from "../../src/images/dicom/dicom-file.js";

/** What it does with what it is sent. */
export type Manner = "keep" | "refuse" | "lie" | "hang" | "spoil" | "hide";

export interface WebPacs {
  url: string;
  /** Objects that it has, by their SOPInstanceUIDs. */
  kept: Map<string, Buffer>;
  /** UIDs in the order in which they were sent, and read back. */
  sent: string[];
  read: string[];
  /** When each was sent for the last time (milliseconds since 1970). */
  sentAt: Map<string, number>;
  behave(manner: Manner): void;
  /** What read back is held until the test lets it go. */
  holdReading(): () => void;
  stop(): Promise<void>;
  start(): Promise<void>;
}

const END = Buffer.from("\r\n\r\n");

/** The objects in a body of STOW-RS. */
export function partsOf(body: Buffer, type: string): Buffer[] {
  const boundary = /boundary="?([^";]+)"?/.exec(type)?.[1] ?? "";
  const line = Buffer.from(`\r\n--${boundary}`);
  const parts: Buffer[] = [];
  for (let at = body.indexOf(line); at !== -1;) {
    const next = body.indexOf(line, at + line.length);
    if (next === -1) break;
    parts.push(body.subarray(body.indexOf(END, at) + END.length, next));
    at = next;
  }
  return parts;
}

export const uidOf = (file: Buffer) => openFile(file).attributes.string("SOPInstanceUID") ?? "";

export async function webPacs(t: {
  teardown: (end: () => Promise<void>) => void;
}): Promise<WebPacs> {
  let manner: Manner = "keep";
  let reading: Promise<undefined> = Promise.resolve(undefined);
  const pacs = {
    kept: new Map<string, Buffer>(),
    sent: [] as string[],
    read: [] as string[],
    sentAt: new Map<string, number>(),
  };
  const store = (files: Buffer[], response: ServerResponse) => {
    const uids = files.map(uidOf);
    pacs.sent.push(...uids);
    for (const uid of uids) pacs.sentAt.set(uid, Date.now());
    if (manner === "hang") return;
    if (manner === "keep" || manner === "hide")
      files.forEach((file, i) => pacs.kept.set(uids[i]!, file));
    // The last bytes are of the pixels or of the last item
    if (manner === "spoil")
      files.forEach((file, i) =>
        pacs.kept.set(uids[i]!, Buffer.concat([file.subarray(0, -8), Buffer.alloc(8, 7)])),
      );
    const item = (uid: string, more: object = {}) => ({
      "00081155": { vr: "UI", Value: [uid] },
      ...more,
    });
    const failed = { "00081197": { vr: "US", Value: [0x0122] } };
    const [tag, items] =
      manner === "refuse"
        ? ["00081198", uids.map((uid) => item(uid, failed))]
        : ["00081199", uids.map((uid) => item(uid))];
    response.writeHead(manner === "refuse" ? 409 : 200, {
      "Content-Type": "application/dicom+json",
    });
    response.end(JSON.stringify({ [tag]: { vr: "SQ", Value: items } }));
  };
  const serve = () =>
    createServer((request, response) => {
      void (async () => {
        if (request.method === "POST") {
          store(partsOf(await buffer(request), request.headers["content-type"] ?? ""), response);
          return;
        }
        const uid = request.url?.split("/").at(-1) ?? "";
        pacs.read.push(uid);
        await reading;
        // It files what it takes later
        const file = manner === "hide" ? undefined : pacs.kept.get(uid);
        if (file === undefined) return response.writeHead(404).end();
        response.writeHead(200, {
          "Content-Type": 'multipart/related; type="application/dicom"; boundary=next',
        });
        const head = "\r\n--next\r\nContent-Type: application/dicom\r\n\r\n";
        return response.end(
          Buffer.concat([Buffer.from(head), file, Buffer.from("\r\n--next--\r\n")]),
        );
      })();
    });
  let server = serve().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const stop = async () => {
    if (!server.listening) return;
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  };
  t.teardown(stop);
  return {
    ...pacs,
    url: `http://127.0.0.1:${port}/dicom-web`,
    behave: (next) => (manner = next),
    holdReading() {
      let go: () => void = () => undefined;
      reading = new Promise((resolve) => {
        go = () => resolve(undefined);
      });
      return () => go();
    },
    stop,
    async start() {
      server = serve().listen(port, "127.0.0.1");
      await once(server, "listening");
    },
  };
}
