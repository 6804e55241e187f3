/**
 * The hook of features at the commit of a result. While its files are staged, and before it is
 * decided, features have their turn in this order: in the serving process the one that sends
 * results on keeps what is to be sent (`Sending.staged`); the audit gets its line; in the thread
 * that makes the result, features write what lies beside it (`ResultPart.staged`). What any of them
 * throws keeps the result from appearing. When it is there, the serving process tells the one that
 * sends it on (`Sending.published`).
 */
import type { OpenedPath } from "../files/guarded-paths.js";
import type { Attributes } from "../images/image.js";
import type { Delivery } from "../results/receipt/delivery.js";
import type { Receipt } from "../results/receipt/receipt.js";
import type { KnownDestinations } from "./request.js";

/** The place of a result that is to be delivered. */
export interface ResultPlace {
  /** Real path. */
  folder: string;
  /** NAME. */
  name: string;
  /** It lies there already. */
  reused: boolean;
  /** Of one that does: tells it from one that takes its place. */
  objects_sha256?: string;
}

/** What a running feature does in the serving process that sends results on. */
export interface Sending {
  readonly destinations: KnownDestinations;
  /**
   * Resolves when the disk has it that a result is to be delivered.
   * @throws RadserveError delivery_unavailable, shutting_down
   */
  staged(delivery: Delivery, place: ResultPlace): Promise<void>;
  /**
   * A result that is to be delivered is there.
   * @param ms waits so long until everything of it is delivered or set aside
   * @returns what has become of each of its objects
   */
  published(id: string, receiptPath: string, ms?: number): Promise<Delivery | undefined>;
}

/** A result whose files are being staged. */
export interface StagedResult {
  /** The folder that it appears in, held open, and its real path. */
  folder: Pick<OpenedPath, "fdPath" | "realPath">;
  /** NAME. */
  name: string;
  receipt: Receipt;
  /** Path of its image or folder. */
  input: string;
  /** What the file says of the patient and the study; undefined of pictures. */
  attributes: Pick<Attributes, "string"> | undefined;
}

/** The part of a feature in a thread that makes results. */
export interface ResultPart {
  staged(result: StagedResult): Promise<void> | void;
}

/** Names such a part; it crosses to the threads, which load it. */
export interface ResultPartName {
  /** Address of a module `result-part.ts`, which exports `resultPart`. */
  readonly module: string;
  /** Given to `resultPart`. */
  readonly options: unknown;
}

/** What the modules export. */
interface ResultPartModule {
  resultPart(options: unknown): ResultPart;
}

/** Loads parts of features into this thread. */
export function loadResultParts(names: readonly ResultPartName[]): Promise<ResultPart[]> {
  return Promise.all(
    names.map(async ({ module, options }) => {
      const loaded = (await import(module)) as ResultPartModule;
      return loaded.resultPart(options);
    }),
  );
}
