/** What may run a model, and what it may be computed in. */
import type { Provider } from "../graph/types.js";

export const PROVIDERS = ["cpu", "cuda", "openvino"] as const satisfies readonly Provider[];
export const PRECISIONS = ["float32", "tf32", "float16", "bfloat16"] as const;
export type Precision = (typeof PRECISIONS)[number];
export type { Provider };
