/**
 * Functional groups (PS3.3 C.7.6.16): what multi-frame objects say of each frame, or of all of
 * them.
 */
import { cached, cachedWith } from "../../base/cached.js";
import { warn, type Warning } from "../image.js";
import type { DataSetAttributes } from "./attributes.js";

/**
 * The items of one functional group macro for a frame (from 0): those of the frame itself override
 * the shared ones. A macro may stand in one of the two places only (PS3.3 C.7.6.16.1.1); where it
 * stands in both and they differ, that is a warning. Undefined if the object has neither; then the
 * attributes at the top of the data set count.
 */
export function functionalGroups(
  attributes: DataSetAttributes,
  frame: number,
  macro: string,
  warnings: Warning[],
): readonly DataSetAttributes[] | undefined {
  const all = "SharedFunctionalGroupsSequence";
  const [own, shared] = [
    attributes.sequence("PerFrameFunctionalGroupsSequence")?.[frame],
    onlyItem(attributes.sequence(all), all, warnings),
  ].map((groups) => filled(groups?.sequence(macro)));
  if (own === undefined || own.length === 0) return shared;
  const differs =
    shared !== undefined &&
    shared.length > 0 &&
    (shared.length !== own.length || own.some((item, i) => shared[i]?.equals(item) !== true));
  if (differs)
    warn(
      warnings,
      "functional_group_twice",
      `${macro} stands in the shared and in the per-frame functional groups, with different values; those of the frame were taken.`,
    );
  return own;
}

/**
 * The holder of the attributes of a macro of one item: that item, as functionalGroups finds it, or
 * the top of the data set. Several items that differ, and other values at the top, are a warning.
 * @param keywords of the macro that are read
 */
export function holderOf(
  attributes: DataSetAttributes,
  frame: number,
  macro: string,
  keywords: readonly string[],
  warnings: Warning[],
): DataSetAttributes {
  const group = functionalGroup(attributes, frame, macro, warnings);
  if (group === undefined) return attributes;
  for (const keyword of keywords)
    if (!agreement(attributes)(keyword)(group))
      warn(
        warnings,
        "functional_group_twice",
        `${keyword} stands at the top of the data set too, and ${macro} has another; that of the functional group was taken.`,
      );
  return group;
}

/**
 * Whether a group says the same as the top of its data set, or the top says nothing. Each frame
 * asks, and there may be very many values.
 */
const agreement = cachedWith((top: DataSetAttributes) =>
  cached((keyword: string): ((group: DataSetAttributes) => boolean) => {
    if (top.string(keyword) === undefined) return () => true;
    const stated = top.compared(keyword);
    return cachedWith((group) => group.compared(keyword) === stated);
  }),
);

/** The items of a macro that hold something: they are looked at for each frame. */
const filledItems = new WeakMap<readonly DataSetAttributes[], readonly DataSetAttributes[]>();

function filled(
  items: readonly DataSetAttributes[] | undefined,
): readonly DataSetAttributes[] | undefined {
  // Most have one item, and files with many frames have it for each
  if (items === undefined || (items.length === 1 && (items[0]?.size ?? 0) > 0)) return items;
  const known = filledItems.get(items) ?? items.filter((item) => item.size > 0);
  filledItems.set(items, known);
  return known;
}

/**
 * The only item of a macro that has one, as functionalGroups finds it. Several that differ are a
 * warning.
 */
export function functionalGroup(
  attributes: DataSetAttributes,
  frame: number,
  macro: string,
  warnings: Warning[],
): DataSetAttributes | undefined {
  return onlyItem(functionalGroups(attributes, frame, macro, warnings), macro, warnings);
}

/** The first item of a sequence that may have one; others that differ from it are a warning. */
export function onlyItem(
  items: readonly DataSetAttributes[] | undefined,
  keyword: string,
  warnings: Warning[],
): DataSetAttributes | undefined {
  const first = items?.[0];
  if (items === undefined || first === undefined || items.length === 1) return first;
  if (differ(items))
    warn(
      warnings,
      "several_items",
      `${keyword} may have one item and has ${items.length} that differ; the first was taken.`,
    );
  return first;
}

/** Whether some differ from the first. Each frame asks, and there may be very many. */
const differ = cachedWith(([first, ...others]: readonly DataSetAttributes[]) =>
  others.some((item) => first !== undefined && item !== first && !item.equals(first)),
);

/** Calls `read` once a frame if frames can differ, else once in all. */
export function perFrame<T>(
  attributes: DataSetAttributes,
  read: (frame: number) => T,
): (frame: number) => T {
  const varies = attributes.has("PerFrameFunctionalGroupsSequence");
  const known = cached(read);
  return (frame) => known(varies ? frame : 0);
}
