/** The messages of the supervisor and the serving process over IPC. */
import type { Config } from "../config.js";

export type ToServing =
  /**
   * `crashed`: the process before it ended by its own fault, as far as one can see. `fatal`: names
   * of models during whose loading a process ended so.
   */
  | {
      type: "start";
      config: Config;
      /** Where clients reach the server. */
      address: string;
      crashed: boolean;
      fatal: readonly string[];
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
  /** The supervisor takes no more connections. */
  | { type: "closing" }
  /** A setting or a library is wrong: starting again would not help. */
  | { type: "unusable"; message: string };
