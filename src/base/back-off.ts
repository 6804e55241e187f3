/** How long is waited before something that failed is tried again: twice as long each time. */

export interface BackOff {
  /** Milliseconds after the first failure. */
  first: number;
  /** Milliseconds, however often it has failed. */
  most: number;
}

/** Milliseconds to wait. @param failures one after the other, at least 1 */
export const backOff = (failures: number, { first, most }: BackOff): number =>
  Math.min(most, first * 2 ** (failures - 1));

/**
 * Something between half and all of a wait: many who failed at the same moment are not to come back
 * at the same moment.
 */
export const spread = (milliseconds: number): number => milliseconds * (0.5 + Math.random() / 2);
