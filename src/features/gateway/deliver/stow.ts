/**
 * A destination that speaks DICOMweb: objects go there by STOW-RS (PS3.18 section 10.5), and are
 * read back by WADO-RS (10.4).
 */
import { Agent as PlainAgent, request as plainRequest, type IncomingMessage } from "node:http";
import { Agent as TlsAgent, request as tlsRequest, type RequestOptions } from "node:https";
import { z } from "zod";
import { durations } from "../../../base/durations.js";
import { RadserveError } from "../../../base/errors.js";
import { IMPLICIT_VR_LITTLE_ENDIAN, RLE_LOSSLESS } from "../../../images/dicom/transfer-syntax.js";
import { boundaryIn } from "../content-type.js";
import { Multipart } from "../receive/multipart.js";
import {
  bytesToSend,
  gathered,
  mostReadBack,
  NOT_ASKED,
  patience,
  type Destination,
  type ObjectToSend,
  type Proved,
  type Sent,
} from "./destination.js";
import { readCredentials, type StowSettings } from "./destination-settings.js";
import { proofBy } from "./proof.js";
import { explicitFile, plainFile } from "./recode.js";
import { sentBy, statusText } from "./store-status.js";

/** One request has so many objects and bytes at most, but one object always. */
const MOST_OBJECTS = 100;
const MOST_BYTES = 8 * 1024 * 1024;
/** Objects that are read beside each other: a thread waits for the disk several times with each. */
const READ_AHEAD = 4;
const MOST_ANSWER_BYTES = 16 * 1024 * 1024;

/**
 * Statuses of HTTP by which a peer says something about what was sent; all others are about itself,
 * or who calls.
 */
const OF_CONTENT = [400, 406, 409, 411, 413, 415, 422];

/** Failure Reason: transfer syntax not supported (PS3.18 table 10.5.3-1). */
const NO_SUCH_SYNTAX = 0xc122;

const uids = z.object({ Value: z.tuple([z.string().trim()]) });
const item = z.object({
  "00081155": uids,
  "00081196": z
    .object({ Value: z.tuple([z.number()]) })
    .optional()
    .catch(undefined),
  "00081197": z
    .object({ Value: z.tuple([z.number()]) })
    .optional()
    .catch(undefined),
});
/** Items that cannot be read name no object. */
const items = z
  .object({ Value: z.array(item.or(z.unknown().transform(() => undefined))).default([]) })
  .optional();
/** The Store Instances Response Module (PS3.18 annex I), in the DICOM JSON Model. */
const answerSchema = z.object({ "00081198": items, "00081199": items });

/** Text of a file in a path of the peer: digits and dots, also where a component begins with 0. */
const NAMED = /^\d[\d.]{0,63}$/;

interface HttpAnswer {
  status: number;
  /** Content-Type, and Content-Encoding; empty where the peer names none. */
  type: string;
  coding: string;
  body: IncomingMessage;
}

interface LoadedObject {
  object: ObjectToSend;
  bytes: Buffer;
}

export class StowDestination implements Destination {
  readonly #agent: PlainAgent | TlsAgent;

  constructor(
    private readonly name: string,
    private readonly settings: StowSettings,
  ) {
    const Agent = settings.url.startsWith("https:") ? TlsAgent : PlainAgent;
    this.#agent = new Agent({ keepAlive: true });
  }

  async *send(
    objects: readonly ObjectToSend[],
    signal: AbortSignal,
  ): AsyncGenerator<[string, Sent]> {
    const batches = loaded(objects);
    // The next one is read while this one is sent
    let next = batches.next();
    for (let batch = await next; batch.done !== true; batch = await next) {
      next = batches.next();
      yield* batch.value.unsent;
      if (batch.value.objects.length > 0) yield* this.#sendAll(batch.value.objects, signal);
    }
  }

  /** Sends objects; those that are not taken in their own transfer syntax, as plain ones. */
  async *#sendAll(
    batch: readonly LoadedObject[],
    signal: AbortSignal,
  ): AsyncGenerator<[string, Sent]> {
    const known = new Map(batch.map((one) => [one.object.sop_instance_uid, one]));
    for await (const [uid, sent] of this.#sendBatch(batch, signal)) {
      const one = known.get(uid);
      const mayUnpack = one?.object.transfer_syntax_uid === RLE_LOSSLESS;
      if (!mayUnpack || sent.state !== "refused" || sent.syntax !== true) yield [uid, sent];
      else {
        const bytes = await plainFile(one.bytes).catch(() => undefined);
        if (bytes === undefined) yield [uid, sent];
        else yield* this.#sendBatch([{ ...one, bytes }], signal);
      }
    }
  }

  async *#sendBatch(
    batch: readonly LoadedObject[],
    signal: AbortSignal,
  ): AsyncGenerator<[string, Sent]> {
    const all = (sent: Sent) =>
      batch.map(({ object }): [string, Sent] => [object.sop_instance_uid, sent]);
    let status: number;
    let format: string;
    let told: Map<string, Sent>;
    try {
      const boundary = `radserve-${batch[0]?.object.sha256.slice(0, 32)}`;
      const answer = await this.#request("/studies", signal, {
        accept: "application/dicom+json",
        type: `multipart/related; type="application/dicom"; boundary=${boundary}`,
        body: batch
          .flatMap(({ bytes }) => [
            Buffer.from(`\r\n--${boundary}\r\nContent-Type: application/dicom\r\n\r\n`),
            bytes,
          ])
          .concat(Buffer.from(`\r\n--${boundary}--\r\n`)),
      });
      ({ status } = answer);
      format = otherFormat(answer);
      told = toldIn((await gathered(answer.body, MOST_ANSWER_BYTES)).toString("utf8"));
    } catch (error) {
      yield* all({ state: "away", reason: faultText(error) });
      return;
    }
    const isAboutContent = OF_CONTENT.includes(status) || status === 500;
    if ((status >= 200 && status < 300) || told.size > 0) {
      const silent = `The answer (${status}) does not name the object${format}.`;
      const storedSome = [...told.values()].some((sent) => sent.state === "stored");
      for (const [uid, unnamed] of all({ state: "away", reason: silent, answered: true })) {
        const sent = told.get(uid) ?? unnamed;
        // It has resources for the others
        const isOwn = storedSome && sent.state === "away" && sent.full === true;
        yield [uid, isOwn ? { ...sent, answered: true } : sent];
      }
    } else if (isAboutContent && batch.length > 1) {
      // One of them may be the cause
      for (const one of batch) yield* this.#sendBatch([one], signal);
    } else yield* all(ofHttp(status));
  }

  async prove(object: ObjectToSend, signal: AbortSignal): Promise<Proved> {
    if (this.settings.prove === false) return { state: "not_provable", reason: NOT_ASKED };
    const sent = await bytesToSend(object);
    if (!Buffer.isBuffer(sent)) return { state: "away", reason: sent.reason, local: true };
    const {
      study_instance_uid: study,
      series_instance_uid: series,
      sop_instance_uid: instance,
    } = object;
    if (![study, series, instance].every((uid) => NAMED.test(uid)))
      return { state: "not_provable", reason: "A UID of the object is none (PS3.5 9.1)." };
    const [ofStudy, ofSeries, ofInstance] = [study, series, instance].map(encodeURIComponent);
    let isShown = false;
    try {
      const { status, type, body } = await this.#request(
        `/studies/${ofStudy}/series/${ofSeries}/instances/${ofInstance}`,
        signal,
        { accept: 'multipart/related; type="application/dicom"; transfer-syntax=*' },
      );
      if (status === 200) {
        isShown = true;
        const found = await onlyObject(type, body, mostReadBack(sent));
        return await proofBy("wado-rs", sent, found, this.settings.may_change);
      }
      body.resume();
      if (status === 404 || status === 410)
        return { state: "missing", reason: `The peer has no such object (${status}).` };
      const reason = `Reading it back was answered with ${status}.`;
      if (OF_CONTENT.includes(status)) return { state: "not_provable", reason };
      return { state: "away", reason, ...(status === 500 ? { answered: true } : {}) };
    } catch (error) {
      // What it began to show, it has failed to show whole
      const isOwn = isShown && !signal.aborted;
      return { state: "away", reason: faultText(error), ...(isOwn ? { answered: true } : {}) };
    }
  }

  /** Redirects are not followed: the settings name who is called. */
  async #request(
    path: string,
    signal: AbortSignal,
    { accept, type, body = [] }: { accept: string; type?: string; body?: Buffer[] },
  ): Promise<HttpAnswer> {
    const { tls, authorization } = await readCredentials(this.name, this.settings);
    const length = body.reduce((sum, { length }) => sum + length, 0);
    const options: RequestOptions = {
      ...tls,
      agent: this.#agent,
      method: type === undefined ? "GET" : "POST",
      signal: AbortSignal.any([signal, AbortSignal.timeout(durations.deliveryWhole)]),
      headers: {
        Accept: accept,
        // Without it a proxy may pack the answer (RFC 9110 section 12.5.3)
        "Accept-Encoding": "identity",
        ...(type === undefined ? {} : { "Content-Type": type, "Content-Length": length }),
        ...(authorization === undefined ? {} : { Authorization: authorization }),
      },
    };
    return new Promise((resolve, reject) => {
      const send = tls === undefined ? plainRequest : tlsRequest;
      const request = send(this.settings.url + path, options, (response) => {
        resolve({
          status: response.statusCode ?? 0,
          type: response.headers["content-type"] ?? "",
          coding: response.headers["content-encoding"] ?? "",
          body: response,
        });
      });
      request.setTimeout(patience(this.settings, length), () =>
        request.destroy(new Error("The peer took too long.")),
      );
      request.on("error", reject);
      for (const piece of body) request.write(piece);
      request.end();
    });
  }

  close(): void {
    this.#agent.destroy();
  }
}

interface Batch {
  objects: LoadedObject[];
  unsent: [string, Sent][];
}

async function* loaded(objects: readonly ObjectToSend[]): AsyncGenerator<Batch, undefined> {
  let batch: Batch = { objects: [], unsent: [] };
  let bytesOfBatch = 0;
  const ahead: ReturnType<typeof bytesToSend>[] = [];
  for (const [i, object] of objects.entries()) {
    ahead.push(...objects.slice(i + ahead.length, i + READ_AHEAD).map((one) => bytesToSend(one)));
    const found = await (ahead.shift() ?? bytesToSend(object));
    if (!Buffer.isBuffer(found)) {
      batch.unsent.push([object.sop_instance_uid, found]);
      continue;
    }
    // Implicit VR has no place in web services (PS3.18 section 8.7.3)
    const isImplicit = object.transfer_syntax_uid === IMPLICIT_VR_LITTLE_ENDIAN;
    const bytes = isImplicit ? explicitFile(found) : found;
    if (
      batch.objects.length >= MOST_OBJECTS ||
      (bytesOfBatch > 0 && bytesOfBatch + bytes.length > MOST_BYTES)
    ) {
      yield batch;
      [batch, bytesOfBatch] = [{ objects: [], unsent: [] }, 0];
    }
    batch.objects.push({ object, bytes });
    bytesOfBatch += bytes.length;
  }
  yield batch;
}

/** What an answer to STOW-RS says of the objects that it names. */
function toldIn(text: string): Map<string, Sent> {
  let parsed;
  try {
    const json: unknown = JSON.parse(text);
    parsed = answerSchema.safeParse(Array.isArray(json) ? json[0] : json);
  } catch {
    return new Map();
  }
  const told = new Map<string, Sent>();
  if (!parsed.success) return told;
  for (const stored of parsed.data["00081199"]?.Value ?? []) {
    const [warning] = stored?.["00081196"]?.Value ?? [];
    if (stored !== undefined)
      told.set(stored["00081155"].Value[0], {
        state: "stored",
        ...(warning === undefined ? {} : { warning: statusText(warning) }),
      });
  }
  // Last: what is in both sequences is not stored
  for (const failed of parsed.data["00081198"]?.Value ?? [])
    if (failed !== undefined)
      told.set(failed["00081155"].Value[0], failure(failed["00081197"]?.Value[0]));
  return told;
}

/** Why an answer cannot be read, where its headers say that; without the peer's own words. */
function otherFormat({ type, coding }: Pick<HttpAnswer, "type" | "coding">): string {
  if (!["", "identity"].includes(coding.toLowerCase())) {
    const how = /^[a-z-]{1,16}$/i.test(coding) ? ` (${coding})` : "";
    return `: it is packed${how}, where the encoding identity was asked for`;
  }
  const found =
    /^(?:application|text|multipart)\/[\w.+-]{1,40}/i.exec(type)?.[0] ?? "of another type";
  if (type === "" || /[/+]json$/i.test(found)) return "";
  return `: it is ${found}, where application/dicom+json was asked for`;
}

function failure(reason = 0x0110): Sent {
  // A failure is none of the statuses of success
  const sent = sentBy(reason);
  if (sent.state === "refused" && reason === NO_SUCH_SYNTAX) return { ...sent, syntax: true };
  return sent.state === "stored" && reason !== 0x0111
    ? { state: "away", reason: statusText(reason), answered: true }
    : sent;
}

function ofHttp(status: number): Sent {
  if (OF_CONTENT.includes(status)) {
    const reason = `HTTP ${status}`;
    const isOfSyntax = status === 406 || status === 415;
    return { state: "refused", reason, ...(isOfSyntax ? { syntax: true } : {}) };
  }
  const hint =
    status >= 300 && status < 400
      ? "; redirects are not followed, the setting url has to name the place itself"
      : status === 401 || status === 403
        ? "; it does not take the credentials"
        : "";
  return {
    state: "away",
    reason: `HTTP ${status}${hint}`,
    ...(status === 500 ? { answered: true } : {}),
  };
}

/** The one object of an answer. @throws Error where it has none, or more */
async function onlyObject(
  type: string,
  body: AsyncIterable<Uint8Array>,
  most: number,
): Promise<Buffer> {
  if (/^application\/dicom\s*(?:;|$)/i.test(type)) return gathered(body, most);
  const boundary = boundaryIn(type);
  if (!/^multipart\/related\s*;/i.test(type) || boundary === undefined)
    throw new Error("The answer is not multipart/related.");
  let found: Buffer | undefined;
  for await (const part of new Multipart(body, boundary).parts()) {
    if (found !== undefined) throw new Error("The answer has more than one object.");
    found = await gathered(part.body, most);
  }
  if (found === undefined) throw new Error("The answer has no object.");
  return found;
}

/** What went wrong, without words of the peer. */
function faultText(error: unknown): string {
  if (error instanceof RadserveError && error.code === "bad_request")
    return "The answer is not a whole multipart body.";
  return error instanceof Error ? error.message : String(error);
}
