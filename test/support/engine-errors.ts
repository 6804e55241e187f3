/** What tests expect of the engine of graphs. */
import { EngineError } from "../../src/graph/index.js";

/** The EngineError that a promise ends with. */
export async function refusedBy(promise: Promise<unknown>): Promise<EngineError> {
  try {
    await promise;
  } catch (thrown) {
    if (thrown instanceof EngineError) return thrown;
    throw thrown;
  }
  throw new Error("Expected a failure");
}
