/**
 * Which of several series a model takes, where its manifest says which it prefers
 * (`accepts.prefer`).
 */
import type { Image } from "../images/image.js";
import type { Manifest } from "../manifest/manifest.js";
import { dataSets, holders, numbersOf, type Reason } from "./attribute-values.js";

type Preference = NonNullable<Manifest["accepts"]["prefer"]>[number];

/** A number that is the less the more a series is preferred; infinite for one that does not say. */
function rank(preference: Preference, image: Image): number {
  if (preference.by === "most_slices") return -image.frameCount;
  const numbers = dataSets(image).flatMap((attributes) => {
    if (preference.by !== "kernel") return numbersOf(attributes, "SliceThickness");
    const { order } = preference;
    const kernels = holders(attributes, "ConvolutionKernel").map((one) =>
      one.strings("ConvolutionKernel"),
    );
    // Of several values one counts, as in a rule: some scanners write the strength beside the
    // kernel
    const place = (values: readonly string[] | undefined) =>
      order.findIndex((kernel) => values?.includes(kernel));
    return kernels.length === 0 ? [-1] : kernels.map(place);
  });
  // A series is as thick as its thickest slice, and has a kernel that is in the order in all of its
  // files
  return numbers.length === 0 || numbers.includes(-1)
    ? Infinity
    : numbers.reduce((a, b) => Math.max(a, b));
}

const CODES = { most_slices: "not_most_slices", thinnest: "not_thinnest", kernel: "not_kernel" };
/** The codes of reasons why a series is behind another. */
export const PREFERENCES: ReadonlySet<string> = new Set(Object.values(CODES));

const WHY = {
  most_slices: (chosen: number, found: number) =>
    `The chosen series has ${-chosen} slices; this one has ${-found}.`,
  thinnest: (chosen: number, found: number) =>
    `The slices of the chosen series are ${chosen} mm thick; this one ${found === Infinity ? "does not say it of its own" : `has ${found} mm`}.`,
  kernel: (chosen: number, found: number, order: readonly string[]) =>
    `The chosen series has the ConvolutionKernel ${order[chosen] ?? ""}; this one has ${order[found] ?? "none of the order in all of its files"}.`,
};

/**
 * @returns those of the images before which no other is, and of each other one why it is behind
 */
export function preferred<T extends { image: Image }>(
  { prefer = [] }: Manifest["accepts"],
  images: readonly T[],
): { left: readonly T[]; behind: Map<T, Reason> } {
  let left = images;
  const behind = new Map<T, Reason>();
  for (const preference of prefer) {
    const order = preference.by === "kernel" ? preference.order : [];
    const ranks = new Map(left.map((one) => [one, rank(preference, one.image)]));
    const best = [...ranks.values()].reduce((a, b) => Math.min(a, b), Infinity);
    for (const [one, found] of ranks)
      if (found > best)
        behind.set(one, {
          code: CODES[preference.by],
          message: WHY[preference.by](best, found, order),
        });
    left = left.filter((one) => ranks.get(one) === best);
  }
  return { left, behind };
}
