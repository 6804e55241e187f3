/**
 * A small PACS for tests, which can have the faults of real ones: by DICOM's network protocol, and
 * by DICOMweb.
 */
import { once } from "node:events";
import {
  createServer as createHttpServer,
  type IncomingMessage,
  type ServerResponse,
} from "node:http";
import { createServer as createHttpsServer, type ServerOptions } from "node:https";
import { connect, createServer, type AddressInfo, type Server, type Socket } from "node:net";
import { createServer as createTlsServer, type TlsOptions } from "node:tls";
import type { Test } from "tap";
import {
  acceptedOf,
  Association,
  type DimseMessage,
} from "../../src/features/gateway/dimse/association.js";
import {
  COMMANDS,
  NO_DATA_SET,
  RESPONSE,
  type Command,
} from "../../src/features/gateway/dimse/command.js";
import {
  encodeAssociateAccept,
  encodeAssociateRequest,
  readAssociateAccept,
  readAssociateRequest,
} from "../../src/features/gateway/dimse/pdu.js";
import { PduSocket } from "../../src/features/gateway/dimse/pdu-socket.js";
import { call } from "../../src/features/gateway/dimse/requestor.js";
import { Multipart } from "../../src/features/gateway/receive/multipart.js";
import { openFile, readFileMeta } from "../../src/images/dicom/dicom-file.js";
import { dataSetBytes, fileHead, type Dataset } from "../../src/results/dicom/elements.js";

export interface Faults {
  /** Of a C-STORE; 0 stores the object. */
  status?: (sopInstanceUid: string, sopClassUid: string) => number;
  comment?: string;
  /** It says SUCCESS and stores nothing. */
  lies?: boolean;
  /** What it makes of an object that it stores. */
  spoil?: (file: Buffer) => Buffer;
  /** It breaks off before it answers the object. */
  breaks?: (sopInstanceUid: string) => boolean;
  /** It never answers. */
  hangs?: boolean;
  /**
   * The transfer syntax that it takes of those that are proposed; undefined refuses the context.
   */
  takes?: (sopClassUid: string, proposed: readonly string[]) => string | undefined;
  /**
   * Where it moves objects to, and where it reports commitments; over the same association if
   * undefined.
   */
  callBack?: () => number;
  /** It answers C-GET and C-MOVE without end that it goes on. */
  pends?: boolean;
  /** Status of C-GET, C-MOVE and N-ACTION. */
  answer?: number;
  /** Failure Reason of a commitment. */
  failure?: number;
  /** It answers C-MOVE at once, and moves the object when this resolves. */
  movesLate?: () => Promise<void>;
  /** It reports a commitment before it answers the request. */
  early?: boolean;
  /** Resolves when it may report a commitment; is given the transaction. */
  reports?: (transaction: string) => Promise<void>;
}

export interface StorePeer {
  port: number;
  /** What it has, by SOPInstanceUID. */
  objects: Map<string, Buffer>;
  /** Associations or requests so far. */
  visits: () => number;
  close: () => void;
}

const LIMITS = { mostData: 65_536, pduTimeout: 20_000, idleTimeout: 20_000 };

async function listening(
  t: Test,
  server: Server,
  objects: Map<string, Buffer>,
  visits: () => number,
): Promise<StorePeer> {
  const sockets = new Set<Socket>();
  server.on("connection", (socket: Socket) => {
    sockets.add(socket);
    socket.once("close", () => sockets.delete(socket));
    socket.on("error", () => undefined);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const close = () => {
    server.close();
    for (const socket of sockets) socket.destroy();
  };
  t.teardown(close);
  return { port: (server.address() as AddressInfo).port, objects, visits, close };
}

async function gathered(pieces: AsyncIterable<Uint8Array>): Promise<Buffer> {
  const found: Uint8Array[] = [];
  for await (const piece of pieces) found.push(Buffer.from(piece));
  return Buffer.concat(found);
}

/** A PACS whose AE title is any. */
export function dicomPeer(t: Test, faults: Faults = {}, tls?: TlsOptions): Promise<StorePeer> {
  const objects = new Map<string, Buffer>();
  let visits = 0;
  const serve = (socket: Socket) => {
    visits += 1;
    // What breaks is what the test is about
    serveOne(socket, objects, faults).catch(() => socket.destroy());
  };
  const server = tls === undefined ? createServer(serve) : createTlsServer(tls, serve);
  return listening(t, server, objects, () => visits);
}

async function serveOne(
  connection: Socket,
  objects: Map<string, Buffer>,
  faults: Faults,
): Promise<void> {
  const socket = new PduSocket(connection, LIMITS);
  const first = await socket.next();
  if (first === undefined) return;
  const request = readAssociateRequest(first.body);
  const takes = faults.takes ?? ((_: string, proposed: readonly string[]) => proposed[0]);
  const contexts = request.contexts.map(({ id, abstractSyntax, transferSyntaxes }) => {
    const transferSyntax = takes(abstractSyntax, transferSyntaxes);
    return {
      id,
      result: transferSyntax === undefined ? 4 : 0,
      transferSyntax: transferSyntax ?? "1.2.840.10008.1.2",
    };
  });
  await socket.write(
    encodeAssociateAccept({ ...request, contexts, maximumLength: LIMITS.mostData }),
  );
  const association = new Association(
    socket,
    request,
    acceptedOf(request.contexts, contexts),
    request.maximumLength,
  );
  for (;;) {
    const message = await association.receive();
    if (message === undefined) return;
    await answer(association, message, objects, faults, request.callingAe);
  }
}

async function answer(
  association: Association,
  { command, context, dataSet }: DimseMessage,
  objects: Map<string, Buffer>,
  faults: Faults,
  callingAe: string,
): Promise<void> {
  const respond = (status: number, more: Partial<Command> = {}) =>
    association.send(context.id, {
      commandField: command.commandField | RESPONSE,
      dataSetType: NO_DATA_SET,
      status,
      ...(command.messageId === undefined ? {} : { messageIdRespondedTo: command.messageId }),
      ...(faults.comment === undefined ? {} : { errorComment: faults.comment }),
      ...more,
    });
  const bytes = dataSet === undefined ? Buffer.alloc(0) : await gathered(dataSet);
  const uid = command.affectedSopInstanceUid ?? "";
  if (faults.hangs === true) return;
  if (command.commandField === COMMANDS.cStore) {
    if (faults.breaks?.(uid) === true) throw new Error("It breaks off");
    const status = faults.status?.(uid, context.abstractSyntax) ?? 0;
    const file = Buffer.concat([
      fileHead(context.abstractSyntax, uid, context.transferSyntax),
      bytes,
    ]);
    if (status === 0 && faults.lies !== true) objects.set(uid, faults.spoil?.(file) ?? file);
    return respond(status);
  }
  const asked = openFile(
    Buffer.concat([fileHead("1.2", "1.2", context.transferSyntax), bytes]),
  ).attributes;
  while (faults.pends === true) {
    await respond(0xff00);
    await new Promise((resolve) => setImmediate(resolve));
  }
  if (faults.answer !== undefined) return respond(faults.answer);
  const wanted = asked.string("SOPInstanceUID") ?? "";
  const file = objects.get(wanted);
  const meta = file && readFileMeta(file);
  switch (command.commandField) {
    case COMMANDS.cGet: {
      if (meta === undefined) return respond(0);
      const way = [...association.contexts.values()].find(
        (one) => one.abstractSyntax === meta.sopClassUid,
      );
      if (way?.transferSyntax !== meta.transferSyntax) return respond(0xb000);
      const store = { commandField: COMMANDS.cStore, messageId: 7, priority: 0, dataSetType: 0 };
      const names = { affectedSopClassUid: meta.sopClassUid, affectedSopInstanceUid: wanted };
      await association.send(way.id, { ...store, ...names }, [
        file?.subarray(meta.end) ?? Buffer.alloc(0),
      ]);
      await association.receive();
      return respond(0);
    }
    case COMMANDS.cMove: {
      if (meta === undefined) return respond(0);
      const move = async () => {
        const caller = await called(
          faults,
          command.moveDestination ?? "",
          association.calledAe,
          meta.sopClassUid,
          meta.transferSyntax,
        );
        await caller.store({
          sopClassUid: meta.sopClassUid,
          sopInstanceUid: wanted,
          transferSyntax: meta.transferSyntax,
          dataSet: [file?.subarray(meta.end) ?? Buffer.alloc(0)],
        });
        await caller.release();
      };
      if (faults.movesLate === undefined) {
        await move();
        return respond(0);
      }
      // Whoever asked may have gone meanwhile
      faults
        .movesLate()
        .then(move)
        .catch(() => undefined);
      return respond(0);
    }
    case COMMANDS.nAction: {
      if (faults.early !== true) await respond(0);
      const items = (asked.sequence("ReferencedSOPSequence") ?? []).map((referenced) => ({
        ReferencedSOPClassUID: referenced.string("ReferencedSOPClassUID") ?? "",
        ReferencedSOPInstanceUID: referenced.string("ReferencedSOPInstanceUID") ?? "",
      }));
      const isThere = ({ ReferencedSOPInstanceUID: named }: (typeof items)[number]) =>
        objects.has(named);
      const failure = faults.failure ?? (items.every((item) => isThere(item)) ? undefined : 0x0112);
      const there = faults.failure === undefined ? items.filter(isThere) : [];
      const failed = items.filter((item) => !there.includes(item));
      const report: Dataset = {
        TransactionUID: asked.string("TransactionUID") ?? "",
        ...(there.length === 0 ? {} : { ReferencedSOPSequence: there }),
        ...(failed.length === 0
          ? {}
          : {
              FailedSOPSequence: failed.map((item) => ({
                ...item,
                FailureReason: failure ?? 0x0112,
              })),
            }),
      };
      const event = {
        commandField: COMMANDS.nEventReport,
        messageId: 9,
        dataSetType: 0,
        eventTypeId: failure === undefined ? 1 : 2,
        affectedSopClassUid: context.abstractSyntax,
        affectedSopInstanceUid: "1.2.840.10008.1.20.1.1",
      };
      await faults.reports?.(asked.string("TransactionUID") ?? "");
      const way =
        faults.callBack === undefined
          ? undefined
          : await calledBack(faults, callingAe, association.calledAe);
      const over = way ?? association;
      await over.send(context.id, event, dataSetBytes(report, context.transferSyntax));
      if (way !== undefined) await way.receive();
      if (faults.early === true) await respond(0);
      return;
    }
    default:
      if ((command.commandField & RESPONSE) === 0) return respond(0);
  }
}

const called = (
  faults: Faults,
  calledAe: string,
  callingAe: string,
  abstractSyntax: string,
  syntax: string,
) =>
  call(
    { host: "127.0.0.1", port: faults.callBack?.() ?? 0 },
    { ...LIMITS, calledAe, callingAe, contexts: [{ abstractSyntax, transferSyntaxes: [syntax] }] },
  );

/** An association over which the commitment is reported, in the role of its SCP. */
async function calledBack(
  faults: Faults,
  calledAe: string,
  callingAe: string,
): Promise<Association> {
  const socket = new PduSocket(connect(faults.callBack?.() ?? 0, "127.0.0.1"), LIMITS);
  const contexts = [
    { id: 1, abstractSyntax: "1.2.840.10008.1.20.1", transferSyntaxes: ["1.2.840.10008.1.2.1"] },
  ];
  const parties = {
    calledAe,
    callingAe,
    maximumLength: 65_536,
    implementationClassUid: "1.2",
    implementationVersion: "T",
  };
  const roles = [{ sopClass: "1.2.840.10008.1.20.1", scu: false, scp: true }];
  await socket.write(encodeAssociateRequest({ ...parties, contexts, roles }));
  const pdu = await socket.next();
  const accept = readAssociateAccept(pdu?.body ?? Buffer.alloc(0));
  if (accept.roles[0]?.scp !== true) throw new Error("The role of the SCP is not accepted");
  return new Association(
    socket,
    parties,
    acceptedOf(contexts, accept.contexts),
    accept.maximumLength,
  );
}

type Instead = { status: number; type?: string; body?: Buffer } | "hang" | undefined;

export interface HttpFaults {
  /** Instead of storing: the status and the body of its answer. */
  post?: (
    uids: readonly string[],
    request: IncomingMessage,
    syntaxes: readonly string[],
  ) =>
    | { status: number; body?: unknown; headers?: Record<string, string> }
    | "hang"
    | "break"
    | undefined;
  /** Instead of giving an object. */
  get?: (uid: string) => Instead | Promise<Instead>;
  spoil?: (file: Buffer) => Buffer;
  lies?: boolean;
}

/** An item of a sequence of an answer to STOW-RS. */
export const named = (uid: string, more: Record<number | string, unknown> = {}) => ({
  "00081150": { vr: "UI", Value: ["1.2"] },
  "00081155": { vr: "UI", Value: [uid] },
  ...more,
});

/** A PACS with DICOMweb under /dicom-web. */
export function webPeer(t: Test, faults: HttpFaults = {}, tls?: ServerOptions): Promise<StorePeer> {
  const objects = new Map<string, Buffer>();
  let visits = 0;
  const serve = (request: IncomingMessage, response: ServerResponse) => {
    visits += 1;
    if (request.method === "POST") store(request, response).catch(() => response.destroy());
    else void give(request.url ?? "", response);
  };
  async function store(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const boundary = /boundary=(\S+)/.exec(request.headers["content-type"] ?? "")?.[1] ?? "";
    const files: [string, Buffer][] = [];
    for await (const part of new Multipart(request, boundary).parts()) {
      const file = await gathered(part.body);
      files.push([readFileMeta(file)?.sopInstanceUid ?? "", file]);
    }
    const uids = files.map(([uid]) => uid);
    const syntaxes = files.map(([, file]) => readFileMeta(file)?.transferSyntax ?? "");
    const fault = faults.post?.(uids, request, syntaxes);
    if (fault === "hang") return;
    if (fault === "break") {
      request.socket.destroy();
      return;
    }
    if (fault === undefined && faults.lies !== true)
      for (const [uid, file] of files) objects.set(uid, faults.spoil?.(file) ?? file);
    const body =
      fault === undefined
        ? { "00081199": { vr: "SQ", Value: uids.map((uid) => named(uid)) } }
        : fault.body;
    response.writeHead(fault?.status ?? 200, fault?.headers);
    response.end(typeof body === "string" ? body : JSON.stringify(body));
  }
  async function give(url: string, response: ServerResponse): Promise<void> {
    const uid = url.split("/").at(-1) ?? "";
    const fault = await faults.get?.(uid);
    if (fault === "hang") return;
    if (fault !== undefined) {
      response
        .writeHead(fault.status, { "Content-Type": fault.type ?? "text/plain" })
        .end(fault.body);
      return;
    }
    const file = objects.get(uid);
    if (file === undefined) response.writeHead(404).end();
    else {
      response.writeHead(200, {
        "Content-Type": 'multipart/related; type="application/dicom"; boundary="b1"',
      });
      response.write("--b1\r\nContent-Type: application/dicom\r\n\r\n");
      response.write(file);
      response.end("\r\n--b1--\r\n");
    }
  }
  const server = tls === undefined ? createHttpServer(serve) : createHttpsServer(tls, serve);
  // A connection that it closes by itself may have the next request on the way
  server.keepAliveTimeout = 0;
  return listening(t, server, objects, () => visits);
}
