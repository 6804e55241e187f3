/**
 * The doors as the serving process sees them: their thread receives, and asks here for jobs and for
 * lines of the audit. Off unless the settings name a file of doors.
 */
import { ReadableStream } from "node:stream/web";
import { Action } from "../../audit/action.js";
import type { Audit } from "../../audit/audit.js";
import { errors, RadserveError } from "../../base/errors.js";
import { faultForLog, type Logger } from "../../base/log.js";
import { moved, ThreadEnded } from "../../base/remote.js";
import { ServiceThread } from "../../base/service-thread.js";
import type { BulkService } from "../../jobs/service.js";
import type { Job } from "../../jobs/schema.js";
import type { Config } from "../../config.js";
import { isInside } from "../../files/roots.js";
import type { Completed, JobState, Submission } from "./receive/arrivals.js";
import type {
  DoorFigures,
  DoorsOwner,
  DoorsThread,
  DoorsThreadOptions,
  FromDoors,
  Told,
  ToDoors,
} from "./receive/messages.js";
import { ruleBeyond, type Reach } from "./receive/reach.js";
import type { Stored } from "./receive/stow.js";
import { stowPeer, type ReceivingSettings } from "./settings.js";
import { DOORS_SUBJECT } from "./subject.js";

const CALLER = {
  subject: DOORS_SUBJECT,
  admin: false,
  inputRoots: undefined,
  outputRoots: undefined,
};
/** Pieces of a body that go over together; each has at most 64 KiB. */
const PIECES_AT_ONCE = 16;
export interface DoorsOptions {
  config: Config;
  settings: ReceivingSettings;
  bulk: Pick<BulkService, "call">;
  audit: Audit;
  log: Logger;
}

export class DoorsService {
  readonly spool: string;
  readonly #thread: ServiceThread<DoorsThread, DoorsOwner>;
  #figures: DoorFigures = {
    associations: 0,
    objects: {},
    bytes: {},
    refused: {},
    waiting: 0,
    withoutRule: 0,
    troubles: [],
  };

  constructor(private readonly options: DoorsOptions) {
    const { config, settings, log } = options;
    const { log_level, minimum_free_disk, upload_limit, state_dir } = config;
    this.spool = settings.spool;
    this.#thread = new ServiceThread({
      file: new URL("./receive/thread.js", import.meta.url),
      workerData: {
        settings,
        config: { log_level, minimum_free_disk, upload_limit, state_dir },
      } satisfies DoorsThreadOptions,
      stays: true,
      owner: { ask: (message: FromDoors) => this.#answer(message) },
      failed: (error) => log.error({ fault: faultForLog(error) }, "the thread of the doors failed"),
    });
  }

  get figures(): DoorFigures {
    return this.#figures;
  }

  /**
   * Refuses a token that does not reach what becomes of the images that it sends.
   * @throws RadserveError path_not_allowed
   */
  async requireReach(subject: string, reach: Reach): Promise<void> {
    const { settings } = this.options;
    if (!isInside(this.spool, reach.input))
      throw errors.path_not_allowed(
        "Expected a token whose input roots hold the spool; this one's do not. Ask the administrator for one.",
        { side: "input" },
      );
    const rule = await ruleBeyond(reach, settings, stowPeer(subject));
    if (rule !== undefined)
      throw errors.path_not_allowed(
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
  ): Promise<Stored> {
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
      const call = { type: "store", peer: stowPeer(subject), address, boundary, body } as const;
      return (await this.#call(moved(call, [body]))) as Stored;
    } catch (error) {
      throw fault ?? error;
    }
  }

  /** @throws RadserveError not_found; what the page of jobs throws */
  async complete(study: string, reach: Reach): Promise<Completed[]> {
    const all = (await this.#call({ type: "complete", study, reach })) as Completed[];
    if (all.length > 0) return all;
    throw errors.not_found(
      "Expected a StudyInstanceUID of received images; found none of it here.",
    );
  }

  /** Takes nothing more; what was not answered is sent again by its sender. */
  async close(): Promise<void> {
    await this.#thread.close((call) => call.ask({ type: "close" }));
  }

  async #call(call: ToDoors): Promise<unknown> {
    try {
      return await this.#thread.call.ask(call);
    } catch (error) {
      if (error instanceof ThreadEnded)
        throw errors.shutting_down("The doors close. Send it again.");
      throw error;
    }
  }

  async #answer(message: FromDoors): Promise<unknown> {
    switch (message.type) {
      case "submit":
        return this.#submit(message.submission);
      case "state":
        return this.#stateOf(message.jobId);
      case "tell":
        return this.#tell(message.told);
      case "figures":
        this.#figures = message.figures;
        return undefined;
    }
  }

  async #submit({ peer, study, objects, request }: Submission): Promise<string> {
    const action = new Action(this.options.audit, {
      kind: "submitted",
      subject: peer,
      count: objects,
    });
    action.wasOf({ studyInstanceUid: study });
    await action.asked();
    const { body, note = {} } = await this.options.bulk.call("submit", {
      caller: CALLER,
      jobId: "",
      query: {},
      body: JSON.stringify(request),
    });
    action.note(note);
    // The job is there: that its line cannot be written now makes no other of it
    await action.done().catch(() => undefined);
    return (JSON.parse(body) as Pick<Job, "job_id">).job_id;
  }

  async #stateOf(jobId: string): Promise<JobState> {
    try {
      const { body } = await this.options.bulk.call("show", {
        caller: CALLER,
        jobId,
        query: {},
        body: "",
      });
      return (JSON.parse(body) as Job).finished_at === null ? "open" : "ended";
    } catch (error) {
      if (error instanceof RadserveError && error.code === "job_not_found") return "gone";
      throw error;
    }
  }

  async #tell({ kind, outcome = "done", peer, study, ...more }: Told): Promise<void> {
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
