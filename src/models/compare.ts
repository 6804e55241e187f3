/** Comparison of two tensors, element by element. */
import { type Tensor, ELEMENT_TYPES } from "../base/tensor.js";

/** A difference up to absolute + relative * |expected| passes. */
export interface Tolerance {
  absolute: number;
  relative: number;
}

/** For a model whose canary has no tolerance for the provider. */
export const DEFAULT_TOLERANCE: Tolerance = { absolute: 1e-4, relative: 1e-3 };

export interface Comparison {
  equal: boolean;
  /**
   * Largest difference; infinite if shapes or types differ, or if only one side is not a number.
   */
  maxAbsolute: number;
  /** Elements outside the tolerance. */
  outside: number;
  /** The result in words, without a full stop. */
  text: string;
}

type Plain = Pick<Tensor, "dtype" | "shape" | "data">;

/** A tensor's elements as numbers; 64-bit integers beyond 2^53 lose their last digits. */
export function toNumbers(tensor: Plain): Float64Array {
  const { dtype, data } = tensor;
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
  const { bytes, read } = ELEMENT_TYPES[dtype];
  return Float64Array.from({ length: data.byteLength / bytes }, (_, i) => read(view, i * bytes));
}

const isFloat = ({ dtype }: Plain): boolean => dtype.startsWith("float");

/**
 * Compares shape, type and every element; two NaN in the same place are equal, one alone never is.
 * @param types whether fractions may be of another precision than those expected
 */
export function compareTensors(
  expected: Plain,
  actual: Plain,
  tolerance: Tolerance,
  types: "equal" | "any_float" = "equal",
): Comparison {
  const comparable =
    expected.dtype === actual.dtype ||
    (types === "any_float" && isFloat(expected) && isFloat(actual));
  if (!comparable || expected.shape.join() !== actual.shape.join()) {
    const [e, a] = [expected, actual].map((t) => `${t.dtype} [${t.shape.join(", ")}]`);
    return {
      equal: false,
      maxAbsolute: Infinity,
      outside: 0,
      text: `expected ${e ?? ""}, found ${a ?? ""}`,
    };
  }
  const [e, a] = [toNumbers(expected), toNumbers(actual)];
  let maxAbsolute = 0;
  let outside = 0;
  e.forEach((want, i) => {
    const difference = distance(want, a[i] ?? NaN);
    if (difference > maxAbsolute) maxAbsolute = difference;
    if (difference > tolerance.absolute + tolerance.relative * Math.abs(want)) outside++;
  });
  const limit = `tolerance ${tolerance.absolute} absolute, ${tolerance.relative} relative`;
  return {
    equal: outside === 0,
    maxAbsolute,
    outside,
    text: `largest difference ${maxAbsolute.toPrecision(3)} over ${e.length} elements, ${outside} outside the ${limit}`,
  };
}

function distance(expected: number, actual: number): number {
  if (Object.is(expected, actual) || expected === actual) return 0;
  const difference = Math.abs(expected - actual);
  return Number.isNaN(difference) ? Infinity : difference;
}
