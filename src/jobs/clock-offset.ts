/** How far the clock of this node is off that of the database. */
import { monotonic } from "../base/monotonic.js";

/** An answer that took longer says too little. */
const LONGEST_ANSWER_MS = 1_000;

/**
 * Milliseconds by which this node's clock is ahead, from a question whose answer is the database's
 * time: it was that halfway between the two.
 * @param asked by `monotonic`, when the question was sent
 * @param at the answer, in milliseconds since 1970
 * @returns undefined where the answer took too long
 */
export function clockOffset(asked: number, at: number): number | undefined {
  const took = monotonic() - asked;
  return took > LONGEST_ANSWER_MS ? undefined : Date.now() - took / 2 - at;
}
