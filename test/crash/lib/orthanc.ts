/**
 * An Orthanc that is killed and comes again with what it has, behind a server that notes what is
 * sent to it and when.
 */
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import os from "node:os";
import path from "node:path";
import { buffer } from "node:stream/consumers";
import { setTimeout as delay } from "node:timers/promises";
import type { Test } from "tap";
import { startOrthanc, type Pacs } from "../../support/pacs.js";
import { partsOf, uidOf } from "../../support/web-pacs.js";

const AWAY_MS = 1_000;

export class CrashOrthanc {
  readonly #folder = mkdtempSync(path.join(os.tmpdir(), "radserve-orthanc-"));
  readonly #ends: (() => unknown)[] = [];
  readonly #front = createServer((request, response) => {
    // As if the PACS had died: the connection breaks off
    this.#pass(request, response).catch(() => response.destroy());
  });
  #pacs: Pacs | undefined;
  #starting: Promise<void> | undefined;
  /** UIDs in the order in which they were sent. */
  readonly sent: string[] = [];
  /** When each was sent for the last time (milliseconds since 1970). */
  readonly sentAt = new Map<string, number>();

  static async start(): Promise<CrashOrthanc> {
    const orthanc = new CrashOrthanc();
    orthanc.#front.listen(0, "127.0.0.1");
    await once(orthanc.#front, "listening");
    await orthanc.#run();
    return orthanc;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#front.address() as AddressInfo).port}/dicom-web`;
  }

  /** kill -9, and another start soon after; false while it is away. */
  kill(): boolean {
    const pacs = this.#pacs;
    if (pacs === undefined) return false;
    this.#pacs = undefined;
    this.#starting = (async () => {
      await pacs.kill("SIGKILL");
      await delay(AWAY_MS);
      await this.#run();
    })();
    return true;
  }

  /** The SOPInstanceUIDs of what it has. */
  async instances(): Promise<Set<string>> {
    await this.#starting;
    const all = (await this.#pacs?.rest("/instances?expand")) as {
      MainDicomTags: { SOPInstanceUID: string };
    }[];
    return new Set(all.map(({ MainDicomTags: { SOPInstanceUID: uid } }) => uid));
  }

  async stop(): Promise<void> {
    await this.#starting;
    this.#front.close();
    this.#front.closeAllConnections();
    for (const end of this.#ends) await end();
    rmSync(this.#folder, { recursive: true });
  }

  async #run(): Promise<void> {
    const ends = { teardown: (end: () => unknown) => void this.#ends.push(end) } as unknown as Test;
    this.#pacs = await startOrthanc(ends, {}, this.#folder);
  }

  async #pass(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { method = "GET", headers, url = "" } = request;
    const body = await buffer(request);
    const type = headers["content-type"] ?? "";
    if (method === "POST")
      for (const uid of partsOf(body, type).map(uidOf)) {
        this.sent.push(uid);
        this.sentAt.set(uid, Date.now());
      }
    if (this.#pacs === undefined) throw new Error("The PACS is away.");
    const answer = await fetch(new URL(url, this.#pacs.url), {
      method,
      headers: {
        accept: headers.accept ?? "*/*",
        ...(type === "" ? {} : { "content-type": type }),
      },
      ...(method === "POST" ? { body: new Uint8Array(body) } : {}),
    });
    const bytes = Buffer.from(await answer.arrayBuffer());
    response.writeHead(answer.status, { "content-type": answer.headers.get("content-type") ?? "" });
    response.end(bytes);
  }
}
