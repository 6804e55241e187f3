/**
 * What `radserve-engine/onnxruntime` exports: the names of onnxruntime-node, over the engine.
 * `InferenceSession`, `Tensor` and `env` are those of onnxruntime-common, as onnxruntime-node's
 * are.
 */
import * as common from "onnxruntime-common";
import { backend, engine } from "./backend.js";

export * from "onnxruntime-common";

/**
 * What sessions can run on: the names that `executionProviders` may have. `bundled` is whether its
 * libraries are in the package.
 */
export const listSupportedBackends = (): { name: string; bundled: boolean }[] => [
  { name: "cpu", bundled: true },
  { name: "cuda", bundled: false },
];

for (const { name } of listSupportedBackends()) common.registerBackend(name, backend, 100);
// Asked for only, because the version is known when the engine has started its threads
Object.defineProperty(common.env.versions, "node", {
  get: () => engine().onnxRuntimeVersion,
  enumerable: true,
  configurable: true,
});

/** As `import ort from "onnxruntime-node"` has it. */
export default { ...common, listSupportedBackends };
