/** The messages of the supervisor and the serving process over IPC. */
import type { Config } from "../config.js";
import type { FatalModel } from "../models/set.js";
import type { RunningWork } from "./memory-watch.js";

export type ToServing =
  /**
   * `crashed`: the process before it ended by its own fault, as far as one can see. `forMemory`:
   * the system ended it, because memory ran out. `fatal`: models during whose loading or run a
   * process ended so.
   */
  | {
      type: "start";
      config: Config;
      /** Where clients reach the server. */
      address: string;
      crashed: boolean;
      forMemory: boolean;
      fatal: readonly FatalModel[];
    }
  /** A client's connection comes with it; the answer is `taken`. */
  | { type: "connection"; id: number }
  | { type: "reload" }
  | { type: "stop" };

export type FromServing =
  /** Connections may come. */
  | { type: "open" }
  | { type: "taken"; id: number }
  /** The model that is loaded from now on; undefined when it is loaded, or has failed. */
  | { type: "loading"; model: string | undefined }
  /** What runs while memory is short; undefined when it is not any more. */
  | { type: "memory"; running: RunningWork | undefined }
  /** The supervisor takes no more connections. */
  | { type: "closing" }
  /** It does not start. @param passing not for its settings: it may start later as they are */
  | { type: "unusable"; message: string; passing: boolean };
