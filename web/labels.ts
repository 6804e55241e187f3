/** Places for words beside what they name, which they do not cover. */

export interface Rect {
  x: number;
  y: number;
  width: number;
  height: number;
}

/**
 * Of one line of words in pixels, as the style sheet draws it: height, a usual character, and what
 * is round them.
 */
const HEIGHT = 17;
const CHARACTER = 6.9;
const ROUND = 11;

const overlap = (a: Rect, b: Rect): number =>
  Math.max(0, Math.min(a.x + a.width, b.x + b.width) - Math.max(a.x, b.x)) *
  Math.max(0, Math.min(a.y + a.height, b.y + b.height) - Math.max(a.y, b.y));

/** The upper left corner of words. */
export interface PlacedWord {
  x: number;
  y: number;
  said: string;
}

/**
 * Places of the words: above, below, right or left of what they name, within the picture. Words
 * that would cover something that is drawn, words before them or the texts in the corners, are left
 * out. All is in pixels of the screen.
 * @param corners where other texts lie
 */
export function placed(
  named: readonly { round: Rect; said: string }[],
  [width, height]: readonly [number, number],
  corners: readonly Rect[],
): PlacedWord[] {
  // A point has an extent, too
  const taken: Rect[] = named.map(({ round }) => ({
    x: round.x - 4,
    y: round.y - 4,
    width: round.width + 8,
    height: round.height + 8,
  }));
  return [...named.keys()].flatMap((i) => {
    const { said = "" } = named[i] ?? {};
    const { x, y, ...of } = taken[i] ?? { x: 0, y: 0, width: 0, height: 0 };
    const size = { width: said.length * CHARACTER + ROUND, height: HEIGHT };
    const [right, bottom] = [x + of.width, y + of.height];
    const [across, down] = [x + (of.width - size.width) / 2, y + (of.height - HEIGHT) / 2];
    const [above, below, before] = [y - HEIGHT, bottom, x - size.width];
    const place = [
      ...[x, across, right - size.width].flatMap((left) =>
        [above, below].map((top) => [left, top]),
      ),
      ...[y, down, bottom - HEIGHT].flatMap((top) => [right, before].map((left) => [left, top])),
    ]
      .map(([left = 0, top = 0]) => ({ x: left, y: top, ...size }))
      .find(
        (one) =>
          one.x >= 0 &&
          one.y >= 0 &&
          one.x + one.width <= width &&
          one.y + one.height <= height &&
          [...taken, ...corners].every((other) => overlap(one, other) === 0),
      );
    if (place === undefined) return [];
    taken.push(place);
    return [{ x: place.x, y: place.y, said }];
  });
}
