/** One task while it is worked on: what is known of it once its image is read and planned. */
import type { Stopwatch } from "../base/stopwatch.js";
import type { Image } from "../images/image.js";
import type { Receipt } from "../results/receipt/receipt.js";
import type { Plan } from "./plan.js";
import type { InferContext, InferTask } from "./task.js";

export interface Analysis {
  task: InferTask;
  context: InferContext;
  watch: Stopwatch;
  /** NAME, the stem of the results. */
  name: string;
  image: Image;
  plan: Plan;
  /** The earlier result of the same image that this one will replace. */
  earlier?: Receipt | undefined;
}
