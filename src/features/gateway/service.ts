/**
 * The gateway's reception as the serving process sees it: its thread receives, and asks here for
 * jobs and for lines of the audit. Off unless the settings name a file of the gateway.
 */
import { ReadableStream } from "node:stream/web";
import { setTimeout as delay } from "node:timers/promises";
import { Action } from "../../audit/action.js";
import type { Audit } from "../../audit/audit.js";
import { durations } from "../../base/durations.js";
import { errors, type RadserveError } from "../../base/errors.js";
import { faultForLog, type Logger } from "../../base/log.js";
import { moved, ThreadEnded, type Calls } from "../../base/remote.js";
import { ServiceThread } from "../../base/service-thread.js";
import type { BulkService } from "../../jobs/service.js";
import type { Config } from "../../config.js";
import { isInside } from "../../files/roots.js";
import type { Completed, Submission } from "./receive/received-jobs.js";
import type {
  ReceivedFilter,
  ReceptionFigures,
  ReceptionOwner,
  ReceptionThread,
  ReceptionThreadOptions,
  ReceptionRecord,
} from "./receive/messages.js";
import { studyOf } from "./receive/patients.js";
import { ruleBeyond, type Reach } from "./receive/reach.js";
import type {
  Received,
  ReceivedChange,
  ReceivedChoice,
  ReceivedDetails,
} from "./receive/received.js";
import type { Senders } from "./receive/senders.js";
import type { StowAnswer } from "./receive/stow.js";
import { stowPeer, type ReceivingSettings } from "./settings.js";
import { GATEWAY_CALLER } from "./subject.js";

/** Pieces of a body that go over together; each has at most 64 KiB. */
const PIECES_AT_ONCE = 16;
export interface ReceptionOptions {
  config: Config;
  settings: ReceivingSettings;
  bulk: Pick<BulkService, "submit" | "line">;
  audit: Audit;
  log: Logger;
}

export class ReceptionService {
  readonly spool: string;
  readonly #thread: ServiceThread<ReceptionThread, ReceptionOwner>;
  #figures: ReceptionFigures = {
    associations: 0,
    objects: {},
    bytes: {},
    refused: {},
    waiting: 0,
    unmade: {},
    classes: {},
    contexts: [],
    callers: [],
    troubles: [],
  };

  #settings: ReceivingSettings;

  constructor(private readonly options: ReceptionOptions) {
    const { config, settings, log } = options;
    this.#settings = settings;
    const { log_level, minimum_free_disk, upload_limit, state_dir } = config;
    this.spool = settings.spool;
    this.#thread = new ServiceThread({
      file: new URL("./receive/thread.js", import.meta.url),
      workerData: {
        settings,
        config: { log_level, minimum_free_disk, upload_limit, state_dir },
      } satisfies ReceptionThreadOptions,
      stays: true,
      owner: {
        submit: (submission) => this.#submit(submission),
        lineToJobs: () => this.options.bulk.line(),
        tell: (told) => this.#tell(told),
        tellAtLast: (told) => void this.#tellAtLast(told),
        figures: (figures) => {
          this.#figures = figures;
        },
      },
      failed: (error) =>
        log.error({ fault: faultForLog(error) }, "the thread of the gateway's reception failed"),
    });
  }

  get figures(): ReceptionFigures {
    return this.#figures;
  }

  /** Rules, peers, titles and `keep` of a file that was read again. */
  async reload(settings: ReceivingSettings): Promise<void> {
    await this.#ask((call) => call.reload(settings));
    this.#settings = settings;
  }

  /**
   * Refuses a token that does not reach what becomes of the images that it sends.
   * @throws RadserveError path_not_allowed
   */
  async requireReach(subject: string, address: string | undefined, reach: Reach): Promise<void> {
    const peer = stowPeer(subject);
    const refusal = await this.#beyondReach(peer, reach);
    if (refusal === undefined) return;
    this.#thread.note.beyondReach(peer, address);
    throw refusal;
  }

  async #beyondReach(peer: string, reach: Reach): Promise<RadserveError | undefined> {
    if (!isInside(this.spool, reach.input))
      return errors.path_not_allowed(
        "Expected a token whose input roots hold the spool; this one's do not. Ask the administrator for one.",
        { side: "input" },
      );
    if (this.#settings.rules.length === 0)
      return errors.path_not_allowed(
        "Expected rules in the gateway's file, which say what becomes of images; it has none any more. Ask the administrator.",
        { side: "input" },
      );
    const rule = await ruleBeyond(reach, this.#settings, peer);
    return rule === undefined
      ? undefined
      : errors.path_not_allowed(
          `Expected a token whose output roots hold the results of the rule ${rule}; this one's do not. Ask the administrator for one.`,
          { side: "output" },
        );
  }

  /**
   * Keeps the objects of a body of STOW-RS.
   * @throws RadserveError bad_request, body_too_large, and what the pieces throw
   */
  async store(
    subject: string,
    address: string | undefined,
    boundary: string,
    pieces: AsyncIterable<Buffer>,
  ): Promise<StowAnswer> {
    let fault: unknown;
    // Each step over to the thread takes a turn of both; so few of them
    async function* gathered() {
      let held: Buffer[] = [];
      try {
        for await (const piece of pieces) {
          held.push(piece);
          if (held.length < PIECES_AT_ONCE) continue;
          yield Buffer.concat(held);
          held = [];
        }
        yield Buffer.concat(held);
      } catch (error) {
        fault = error;
        throw error;
      }
    }
    const body = ReadableStream.from<Uint8Array>(gathered());
    try {
      const request = { peer: stowPeer(subject), address, boundary };
      return await this.#ask((call) => call.store(request, moved(body, [body])));
    } catch (error) {
      throw fault ?? error;
    }
  }

  /** @throws RadserveError not_found; what the endpoint of jobs throws */
  async complete(study: string, reach: Reach): Promise<Completed[]> {
    return someOf(await this.#ask((call) => call.complete(study, reach)));
  }

  list(filter: ReceivedFilter, reach: Reach): Promise<Received[]> {
    return this.#ask((call) => call.list(filter, reach));
  }

  senders(reach: Reach): Promise<Senders> {
    return this.#ask((call) => call.senders(reach));
  }

  /** @throws RadserveError not_found */
  async show(study: string, reach: Reach): Promise<ReceivedDetails[]> {
    return someOf(await this.#ask((call) => call.show(study, reach)));
  }

  /** @throws RadserveError not_found, audit_failed */
  async remove(study: string, choice: ReceivedChoice, reach: Reach): Promise<ReceivedChange[]> {
    return someOf(await this.#ask((call) => call.remove(study, choice, reach)));
  }

  /** @throws RadserveError not_found */
  async replace(study: string, choice: ReceivedChoice, reach: Reach): Promise<ReceivedChange[]> {
    return someOf(await this.#ask((call) => call.replace(study, choice, reach)));
  }

  /** Takes nothing more; what was not answered is sent again by its sender. */
  async close(): Promise<void> {
    await this.#thread.close((call) => call.close());
  }

  async #ask<T>(question: (call: Calls<ReceptionThread>) => Promise<T>): Promise<T> {
    try {
      return await question(this.#thread.call);
    } catch (error) {
      if (error instanceof ThreadEnded)
        throw errors.shutting_down("The gateway closes. Send it again.");
      throw error;
    }
  }

  async #submit({ peer, study, objects, request }: Submission): Promise<string> {
    const action = new Action(this.options.audit, {
      kind: "submitted",
      subject: peer,
      count: objects,
    });
    action.wasOf({ studyInstanceUid: studyOf(study) });
    await action.asked();
    const { job, note } = await this.options.bulk.submit(GATEWAY_CALLER, request);
    action.note(note);
    // The job is there: that its line cannot be written now makes no other of it
    await action.done().catch(() => undefined);
    return job.job_id;
  }

  async #tellAtLast(told: ReceptionRecord): Promise<void> {
    for (let tries = 0; ; tries++)
      try {
        await this.#tell(told);
        return;
      } catch (error) {
        if (tries === 0)
          this.options.log.error(
            { peer: told.peer, fault: faultForLog(error) },
            "what came could not be written into the audit; it is tried again",
          );
        await delay(durations.auditRetry, undefined, { ref: false });
      }
  }

  async #tell({ kind, outcome = "done", peer, study, ...more }: ReceptionRecord): Promise<void> {
    const { audit } = this.options;
    await audit.record({
      kind,
      outcome,
      subject: peer,
      study: audit.hash("study", study),
      ...more,
    });
  }
}

/** @throws RadserveError not_found */
function someOf<T>(all: T[]): T[] {
  if (all.length > 0) return all;
  throw errors.not_found(
    "Expected the study of received images, as radserve received list shows it; found none of it here.",
  );
}
