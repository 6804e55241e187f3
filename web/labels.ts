/** Places for words beside what they name, which they do not cover. */

export interface Rect {
  x: number;
  y: number;
  width: number;
  height: number;
}

/** Of one line of words in pixels, as the style sheet draws it: height, a usual character, and what is round them. */
const HEIGHT = 17;
const CHARACTER = 6.9;
const ROUND = 11;
/** Between the words and what they name. */
const GAP = 4;

const overlap = (a: Rect, b: Rect): number =>
  Math.max(0, Math.min(a.x + a.width, b.x + b.width) - Math.max(a.x, b.x)) *
  Math.max(0, Math.min(a.y + a.height, b.y + b.height) - Math.max(a.y, b.y));

/**
 * The upper left corner of each of the words: above, below, right or left of what they name, within the picture, where
 * they cover least of all that is drawn and of the words before. All is in pixels of the screen.
 */
export function placed(
  named: readonly { round: Rect; said: string }[],
  [width, height]: readonly [number, number],
): { x: number; y: number; said: string }[] {
  // A point has an extent, too
  const drawn = named.map(({ round }) => ({
    ...{ x: round.x - 3, y: round.y - 3, width: round.width + 6, height: round.height + 6 },
  }));
  const taken: Rect[] = [];
  return named.map(({ said }, i) => {
    const { x, y, ...of } = drawn[i] ?? { x: 0, y: 0, width: 0, height: 0 };
    const size = { width: said.length * CHARACTER + ROUND, height: HEIGHT };
    const [right, bottom] = [x + of.width, y + of.height];
    const within = (value: number, most: number) => Math.max(0, Math.min(value, most));
    const places = [
      [x, y - GAP - HEIGHT],
      [x, bottom + GAP],
      [right + GAP, y],
      [x - GAP - size.width, y],
      [right - size.width, y - GAP - HEIGHT],
      [right - size.width, bottom + GAP],
      [right + GAP, bottom - HEIGHT],
      [x - GAP - size.width, bottom - HEIGHT],
    ].map(([left = 0, top = 0]) => ({
      ...{ x: within(left, width - size.width), y: within(top, height - HEIGHT), ...size },
    }));
    const covered = (place: Rect) => [...drawn, ...taken].reduce((sum, one) => sum + overlap(place, one), 0);
    const best = places.reduce((least, place) => (covered(place) < covered(least) ? place : least));
    taken.push(best);
    return { x: best.x, y: best.y, said };
  });
}
