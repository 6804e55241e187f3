/**
 * A destination that speaks DICOM's network protocol: objects go there by C-STORE, and are read
 * back by C-GET or C-MOVE, or the peer is asked to commit to them (PS3.4 annexes B, C and J).
 */
import { ReadableStream } from "node:stream/web";
import { stat } from "../../../files/disk.js";
import { ifMissing } from "../../../files/durable-files.js";
import { sopClassName } from "../../../images/dicom/dictionary.js";
import { transferSyntax } from "../../../images/dicom/transfer-syntax.js";
import { dataSetBytes, fileHead, type Dataset } from "../../../results/dicom/elements.js";
import { durations } from "../../../base/durations.js";
import { errno } from "../../../base/errno.js";
import { groupsOf } from "../../../base/groups.js";
import type { AcceptedContext } from "../dimse/association.js";
import { STATUS } from "../dimse/command.js";
import {
  call,
  type CallAnswer,
  type CallingAssociation,
  type AssociationOptions,
  type Outgoing,
} from "../dimse/requestor.js";
import { CallBack } from "./call-back.js";
import { Commitment } from "./commitment.js";
import {
  bytesToSend,
  gathered,
  mostReadBack,
  NOT_ASKED,
  patience,
  ReusedBuffer,
  type Destination,
  type ObjectToSend,
  type Proved,
  type Sent,
  type Unsent,
} from "./destination.js";
import { readCredentials, type DicomSettings } from "./destination-settings.js";
import { proofBy } from "./proof.js";
import { dataSetIn, PLAIN, syntaxesOf } from "./recode.js";
import { sentBy, statusText } from "./store-status.js";

/** Study Root Query/Retrieve Information Model (PS3.4 annex C.6.2). */
const GET = "1.2.840.10008.5.1.4.1.2.2.3";
const MOVE = "1.2.840.10008.5.1.4.1.2.2.2";

/**
 * Objects of one association. Results are of few classes, each in at most four transfer syntaxes:
 * its 128 presentation contexts have room for them.
 */
const MOST_OF_ASSOCIATION = 64;
/** After so many in turn for which a peer has no resources, others are not tried. */
const MOST_UNSURE = 3;
/** Objects that came late of which the proof is kept until the next look. */
const MOST_LATE = 1000;
/** Bytes of a P-DATA-TF that peers are told. */
const MOST_DATA = 256 * 1024;

const NOT_TRIED = "It was not sent, because the destination took none of those before it.";

type Away = Extract<Sent, { state: "away" }>;
const awayBy = (error: unknown): Away => ({ state: "away", reason: faultText(error) });

type Tell = (object: ObjectToSend, sent: Sent) => void;

export class DicomDestination implements Destination {
  readonly commitments: Commitment | undefined;
  readonly #closed = new AbortController();
  #callBack: CallBack | undefined;
  /** Of objects that came after C-MOVE was answered, by SOPInstanceUID. */
  readonly #movedLate = new Map<string, Proved>();

  constructor(
    private readonly name: string,
    private readonly settings: DicomSettings,
  ) {
    if (settings.prove === "commitment")
      this.commitments = new Commitment({
        callBack: async () => (settings.listen === undefined ? undefined : await this.#listening()),
        options: (signal) => this.#options(signal),
        call: (options) => this.#call(options),
        // Without a port to be called at, the report comes over this association, or never
        isOnlyWay: settings.listen === undefined,
        holdMs: () =>
          settings.listen === undefined ? durations.commitmentAgain : patience(settings, 0),
      });
  }

  send(objects: readonly ObjectToSend[], signal: AbortSignal): AsyncIterable<[string, Sent]> {
    const chunks = [...groupsOf(objects, MOST_OF_ASSOCIATION)];
    const left = new AbortController();
    const either = AbortSignal.any([signal, left.signal]);
    return new ReadableStream<[string, Sent]>({
      start: (told) => {
        const tell: Tell = ({ sop_instance_uid: uid }, sent) => {
          if (!left.signal.aborted) told.enqueue([uid, sent]);
        };
        const lane = async () => {
          for (let chunk = chunks.shift(); chunk !== undefined; chunk = chunks.shift())
            await this.#sendChunk(chunk, tell, either);
        };
        void Promise.all(Array.from({ length: this.settings.associations }, lane)).then(
          () => left.signal.aborted || told.close(),
          (error: unknown) => told.error(error),
        );
      },
      cancel: () => left.abort(),
    });
  }

  async #sendChunk(
    objects: readonly ObjectToSend[],
    tell: Tell,
    signal: AbortSignal,
  ): Promise<void> {
    const left = [...objects];
    const allAway = (sent: Away) => {
      for (const object of left.splice(0)) tell(object, sent);
    };
    /** Whether these or the peer are the cause, what comes after them shows. */
    const unsure: { object: ObjectToSend; sent: Away }[] = [];
    const tellUnsure = (more: Partial<Away> = {}) => {
      for (const { object, sent } of unsure.splice(0)) tell(object, { ...sent, ...more });
    };
    const isLost = ({ sent }: { sent: Away }) => sent.lost === true;
    // What an association is lost with is away, and what comes after it gets another one
    while (left.length > 0) {
      let caller: CallingAssociation;
      const options = { ...this.#options(signal), contexts: proposals(left) };
      try {
        caller = await this.#call(options);
      } catch (error) {
        allAway(awayBy(error));
        break;
      }
      let [room, other] = [new ReusedBuffer(), new ReusedBuffer()];
      let next: ReturnType<typeof bytesToSend> | undefined;
      let isBroken = false;
      for (let object = left.shift(); object !== undefined; object = left.shift()) {
        let sent: Sent;
        try {
          const bytes = await (next ?? bytesToSend(object, room));
          // The next one is read while this one is sent
          [room, other] = [other, room];
          next = left[0] && bytesToSend(left[0], room);
          sent = await this.#sendOne(caller, object, bytes, options);
        } catch (error) {
          sent = { ...awayBy(error), lost: true };
          isBroken = true;
        }
        if (sent.state === "stored") tellUnsure({ answered: true });
        if (isBroken || (sent.state === "away" && sent.full === true))
          unsure.push({ object, sent: sent as Away });
        else tell(object, sent);
        // Two lost in turn, or several for which it has no room: it is not the objects
        if (unsure.slice(-2).filter(isLost).length > 1 || unsure.length >= MOST_UNSURE)
          allAway({ state: "away", reason: NOT_TRIED, untried: true });
        if (isBroken) break;
      }
      if (isBroken) caller.abort();
      else await caller.release().catch(() => caller.abort());
    }
    tellUnsure();
  }

  async #sendOne(
    caller: CallingAssociation,
    object: ObjectToSend,
    bytes: Buffer | Unsent,
    options: AssociationOptions,
  ): Promise<Sent> {
    const {
      sop_class_uid: sopClassUid,
      sop_instance_uid: sopInstanceUid,
      transfer_syntax_uid: own,
    } = object;
    if (!Buffer.isBuffer(bytes)) return bytes;
    const offered = syntaxesOf(own);
    const syntax = offered.find((one) => caller.contextOf(sopClassUid, one) !== undefined);
    if (syntax === undefined) {
      const [first, ...others] = offered.map((one) => transferSyntax(one).name);
      const nor = others.length === 0 ? "" : ` Nor does it in ${others.join(" or ")}.`;
      const reason = `The peer does not take ${sopClassName(sopClassUid)} in ${first}.${nor}`;
      return { state: "refused", reason };
    }
    // Read at each use
    options.idleTimeout = patience(this.settings, bytes.length);
    const { status, comment } = await caller.store({
      sopClassUid,
      sopInstanceUid,
      transferSyntax: syntax,
      dataSet: await dataSetIn(bytes, syntax),
    });
    return sentBy(status, comment);
  }

  async prove(object: ObjectToSend, signal: AbortSignal): Promise<Proved> {
    const how = this.settings.prove;
    if (how === false) return { state: "not_provable", reason: NOT_ASKED };
    // A peer may say without end that it goes on
    const whole = AbortSignal.any([signal, AbortSignal.timeout(durations.deliveryWhole)]);
    try {
      if (this.commitments !== undefined) {
        // Nothing is compared: its length says how long the peer may take
        const { size } = await stat(object.path).catch(ifMissing({ size: 0 }));
        const wait = patience(this.settings, size);
        return await this.commitments.prove(object, whole, wait);
      }
      const sent = await bytesToSend(object);
      if (!Buffer.isBuffer(sent)) return { state: "away", reason: sent.reason, local: true };
      const asked = [object, sent, this.#options(whole, sent.length)] as const;
      return await (how === "c-get" ? this.#get(...asked) : this.#move(...asked));
    } catch (error) {
      return { state: "away", reason: faultText(error) };
    }
  }

  async #get(object: ObjectToSend, sent: Buffer, options: AssociationOptions): Promise<Proved> {
    const { sop_class_uid: sopClass } = object;
    const more = { contexts: proposals([object]), roles: [{ sopClass, scu: false, scp: true }] };
    return this.#asked(GET, "C-GET", { ...options, ...more }, async (caller, context) => {
      let found: Buffer | undefined;
      const answer = await caller.get(
        context,
        identifier(object, context.transferSyntax),
        async (one) => {
          if (one.sopInstanceUid === object.sop_instance_uid)
            found = await fileOf(one, mostReadBack(sent));
        },
      );
      return retrieved("c-get", answer, sent, found, this.settings);
    });
  }

  async #move(object: ObjectToSend, sent: Buffer, options: AssociationOptions): Promise<Proved> {
    const { calling_ae: destination } = this.settings;
    const { sop_instance_uid: uid } = object;
    const late = this.#movedLate.get(uid);
    this.#movedLate.delete(uid);
    if (late !== undefined) return late;
    const callBack = await this.#listening();
    const came: { file?: Buffer } = {};
    const stop = callBack.expect(uid, async (one) => {
      came.file = await fileOf(one, mostReadBack(sent));
    });
    try {
      const proved = await this.#asked(MOVE, "C-MOVE", options, async (caller, context) => {
        const answer = await caller.move(
          context,
          destination,
          identifier(object, context.transferSyntax),
        );
        return retrieved("c-move", answer, sent, came.file, this.settings);
      });
      // It may have come between the answer and the end of the association
      if (proved.state !== "missing" || came.file === undefined) return proved;
      return await proofBy("c-move", sent, came.file, this.settings.may_change);
    } finally {
      stop();
      if (came.file === undefined) this.#expectLate(callBack, object);
    }
  }

  /**
   * Some peers answer before they move anything (Orthanc without SynchronousCMove): what comes then
   * is the answer of the next look.
   */
  #expectLate(callBack: CallBack, object: ObjectToSend): void {
    const { sop_instance_uid: uid } = object;
    const stop = callBack.expect(uid, async (one) => {
      const sent = await bytesToSend(object);
      if (!Buffer.isBuffer(sent)) return;
      const found = await fileOf(one, mostReadBack(sent));
      if (this.#movedLate.size >= MOST_LATE) this.#movedLate.clear();
      this.#movedLate.set(uid, await proofBy("c-move", sent, found, this.settings.may_change));
      stop();
    });
    setTimeout(stop, durations.movedLate).unref();
  }

  /** Asks one thing over an association of its own. */
  async #asked(
    abstractSyntax: string,
    what: string,
    options: AssociationOptions,
    ask: (caller: CallingAssociation, context: AcceptedContext) => Promise<Proved>,
  ): Promise<Proved> {
    const contexts = [{ abstractSyntax, transferSyntaxes: PLAIN }, ...options.contexts];
    const caller = await this.#call({ ...options, contexts });
    try {
      const context = caller.contextOf(abstractSyntax);
      return context === undefined ? cannot(`does not take ${what}`) : await ask(caller, context);
    } finally {
      await caller.release().catch(() => caller.abort());
    }
  }

  async #listening(): Promise<CallBack> {
    const { listen } = this.settings;
    if (listen === undefined)
      throw new Error("The settings name no port for the peer to call back.");
    this.#callBack ??= new CallBack(this.settings, listen);
    try {
      await this.#callBack.open();
    } catch (error) {
      const where = `${listen.host}:${listen.port}, where the peer calls back`;
      const why =
        errno(error) === "EADDRINUSE"
          ? "another program has it, perhaps the running server"
          : faultText(error);
      throw new Error(`Expected a free port at ${where}; ${why}.`, { cause: error });
    }
    return this.#callBack;
  }

  /** @param bytes that the peer may have to read before it answers */
  #options(signal: AbortSignal, bytes = 0): AssociationOptions & { contexts: [] } {
    return {
      callingAe: this.settings.calling_ae,
      calledAe: this.settings.called_ae,
      contexts: [],
      mostData: MOST_DATA,
      pduTimeout: durations.pduWhole,
      idleTimeout: patience(this.settings, bytes),
      signal: AbortSignal.any([signal, this.#closed.signal]),
    };
  }

  async #call(options: AssociationOptions): Promise<CallingAssociation> {
    const { tls } = await readCredentials(this.name, this.settings);
    const { host, port } = this.settings;
    return call({ host, port, ...(tls === undefined ? {} : { tls }) }, options);
  }

  close(): void {
    this.#closed.abort();
    this.commitments?.close();
    this.#callBack?.close();
  }
}

/** Each class in every transfer syntax in which its objects can be sent. */
function proposals(objects: readonly ObjectToSend[]) {
  const pairs = objects.flatMap(({ sop_class_uid: abstractSyntax, transfer_syntax_uid: own }) =>
    syntaxesOf(own).map((one) => ({
      abstractSyntax,
      transferSyntaxes: [one],
    })),
  );
  return [...new Map(pairs.map((pair) => [JSON.stringify(pair), pair])).values()];
}

const encoded = (dataSet: Dataset, syntax: string) => Buffer.concat(dataSetBytes(dataSet, syntax));

const identifier = (object: ObjectToSend, syntax: string) =>
  encoded(
    {
      QueryRetrieveLevel: "IMAGE",
      StudyInstanceUID: object.study_instance_uid,
      SeriesInstanceUID: object.series_instance_uid,
      SOPInstanceUID: object.sop_instance_uid,
    },
    syntax,
  );

async function fileOf(
  {
    sopClassUid,
    sopInstanceUid,
    transferSyntax: syntax,
    dataSet,
  }: Outgoing & { dataSet: AsyncIterable<Buffer> },
  most: number,
): Promise<Buffer> {
  return Buffer.concat([
    fileHead(sopClassUid, sopInstanceUid, syntax),
    await gathered(dataSet, most),
  ]);
}

const cannot = (what: string): Proved => ({ state: "not_provable", reason: `The peer ${what}.` });

/** What a C-GET or C-MOVE has shown (PS3.4 tables C.4-2 and C.4-3). */
async function retrieved(
  how: "c-get" | "c-move",
  { status, comment }: CallAnswer,
  sent: Buffer,
  found: Buffer | undefined,
  { may_change }: Pick<DicomSettings, "may_change">,
): Promise<Proved> {
  if (found !== undefined) return proofBy(how, sent, found, may_change);
  if (status === STATUS.success)
    return { state: "missing", reason: "The peer has no such object." };
  const reason = `Reading it back was answered with ${statusText(status, comment)}.`;
  // Orthanc and others answer so for what they do not have; sending it again does no harm
  if ((status & 0xf000) === 0xc000) return { state: "missing", reason };
  // Sub-operations failed, no such destination, an identifier that does not match, or no such class
  const isLasting = [0xa801, STATUS.dataSetDoesNotMatch, STATUS.sopClassNotSupported].includes(
    status,
  );
  return isLasting ? { state: "not_provable", reason } : { state: "away", reason, answered: true };
}

const faultText = (error: unknown): string =>
  error instanceof Error ? error.message : String(error);
