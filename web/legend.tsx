/** The labels of a segmentation: which there are, which are shown, and where most of each is. */
import { useState } from "preact/hooks";
import type { ResultMarks } from "../src/features/viewer/messages.js";
import { count } from "./format.js";

type Segment = ResultMarks["segments"][number];

/** Numbers of the segments that are shown; undefined: all. */
export type ShownSegments = ReadonlySet<number> | undefined;

/** From so many labels on there is a search, and groups. */
const MANY = 9;

/** Labels of one kind begin with one word: rib left 1, rib left 2. */
const groupOf = (label: string): string => label.split(/[\s_,]/)[0]?.toLowerCase() ?? "";

/** Groups that more than one label is of, in the order of the labels. */
function groupsOf(segments: readonly Segment[]): string[] {
  const sizes = new Map<string, number>();
  for (const { label } of segments) sizes.set(groupOf(label), (sizes.get(groupOf(label)) ?? 0) + 1);
  return [...sizes].filter(([, size]) => size > 1).map(([group]) => group);
}

export function Legend({
  segments,
  isOfFrame,
  opacity,
  shown,
  show,
  go,
}: {
  segments: readonly Segment[];
  /** Their pixels are those of the frame that is shown, and not of the one before. */
  isOfFrame: boolean;
  /** Of the masks, in percent. */
  opacity: number;
  shown: ShownSegments;
  show: (shown: ShownSegments) => void;
  /** Goes to the frame that has most of a label. */
  go: (label: string) => void;
}) {
  const [wanted, want] = useState("");
  const [group, choose] = useState("");
  const word = wanted.trim().toLowerCase();
  const listed = segments.filter(
    ({ label }) => (group === "" || groupOf(label) === group) && label.toLowerCase().includes(word),
  );
  const all = segments.map(({ number }) => number);
  const isShown = (number: number) => shown?.has(number) ?? true;
  const showOnly = (numbers: readonly number[]) =>
    show(numbers.length === all.length ? undefined : new Set(numbers));
  const turn = (number: number, on: boolean) =>
    showOnly(all.filter((one) => (one === number ? on : isShown(one))));
  const listedNumbers = listed.map(({ number }) => number);
  return (
    <section class="labels" aria-label="Labels of the overlay">
      {segments.length >= MANY && (
        <div class="tools">
          <label>
            Find a label
            <input
              type="search"
              value={wanted}
              autocomplete="off"
              onInput={({ currentTarget }) => want(currentTarget.value)}
            />
          </label>
          <label>
            Group
            <select value={group} onChange={({ currentTarget }) => choose(currentTarget.value)}>
              <option value="">all {segments.length}</option>
              {groupsOf(segments).map((name) => (
                <option key={name}>{name}</option>
              ))}
            </select>
          </label>
          <button type="button" class="small" onClick={() => showOnly(listedNumbers)}>
            Only these {listed.length}
          </button>
          <button type="button" class="small" onClick={() => show(undefined)}>
            All labels
          </button>
        </div>
      )}
      <ul class="legend" aria-label="Labels">
        {listed.map(({ number, label, colour, pixels }) => (
          <li key={number} class={isOfFrame && pixels === 0 ? "absent" : ""}>
            <label>
              <input
                type="checkbox"
                checked={isShown(number)}
                aria-label={`Show ${label}`}
                onChange={({ currentTarget }) => turn(number, currentTarget.checked)}
              />
              <span
                class="swatch"
                style={{ borderColor: colour, background: tints(colour, opacity) }}
              />
            </label>
            <button type="button" class="link" onClick={() => go(label)}>
              {label}
            </button>{" "}
            <span class="quiet">{isOfFrame ? count(pixels) : "…"} pixels</span>
            {segments.length > 1 && (
              <button type="button" class="small" onClick={() => showOnly([number])}>
                Only<span class="unseen"> {label}</span>
              </button>
            )}
          </li>
        ))}
      </ul>
      {listed.length === 0 && <p class="quiet">No label has this in its name.</p>}
      {shown !== undefined && segments.length < MANY && (
        <button type="button" class="small" onClick={() => show(undefined)}>
          All labels
        </button>
      )}
    </section>
  );
}

/** A mask's colour as it looks on black, grey and white, at an opacity in percent. */
function tints(colour: string, opacity: number): string {
  const over = (under: string) => `color-mix(in srgb, ${colour} ${opacity}%, ${under})`;
  return `linear-gradient(90deg, ${over("black")} 33%, ${over("#808080")} 33% 67%, ${over("white")} 67%)`;
}
