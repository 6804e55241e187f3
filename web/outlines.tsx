/**
 * The edges of masks, each in the full colour of its label, and a seam between two labels: a filled
 * mask takes the grey under it, and two labels beside each other may then look like one to somebody
 * who sees fewer colours.
 */
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import type { ResultMarks } from "../src/features/viewer/messages.js";
import { pixelsOf, type MarkPixels } from "./mark-pixels.js";

/** Weaker ones are no part of a label. */
const LEAST_ALPHA = 128;

/** Black, as RGBA. Colours of labels are lighter, or they are not seen on an image. */
const SEAM = 0xff000000;

/** #rrggbb as an opaque pixel lies in memory, the lowest byte first. */
function pixelOf(colour: string): number {
  const rgb = Number.parseInt(colour.slice(1), 16);
  return 0xff000000 | ((rgb & 0xff) << 16) | (rgb & 0xff00) | (rgb >> 16);
}

/**
 * The same with the pixels alone that lie at the edge of a label. Between two labels one pixel is
 * black, because some eyes see no two colours there; a label that is one pixel wide keeps its own.
 * A label within another one does not end it: no line of the outer one is there, and no seam.
 */
export function edgesOf(
  { width, height, data }: MarkPixels,
  { segments, overlaps }: Pick<ResultMarks, "segments" | "overlaps">,
): Uint8ClampedArray<ArrayBuffer> {
  const edges = new Uint8ClampedArray(data.length);
  // Signed: an opaque pixel is a small negative number, for which engines allocate nothing
  const to = new Int32Array(edges.buffer);
  /** What lies on a pixel: 0, a colour, or the number of several labels, from 1. */
  const labels = new Int32Array(data.buffer, data.byteOffset, width * height).map((pixel) =>
    pixel >>> 24 < LEAST_ALPHA ? 0 : pixel | 0xff000000,
  );
  const colours = new Map(segments.map(({ number, colour }) => [number, pixelOf(colour)]));
  const sets = overlaps.map(({ segments: all }) =>
    all.map((number) => colours.get(number) ?? 0).reverse(),
  );
  overlaps.forEach(({ runs }, i) => {
    for (let n = 0; n + 1 < runs.length; n += 2) {
      const [first = 0, length = 0] = [runs[n], runs[n + 1]];
      labels.fill(i + 1, first, first + length);
    }
  });
  const has = (label: number, colour: number): boolean =>
    label === colour || (label > 0 && sets[label - 1]?.includes(colour) === true);
  /** The colour of a label that lies here and not there; 0 where there is none. */
  const ended = (here: number, there: number): number => {
    if (here === there || here === 0) return 0;
    if (here < 0) return has(there, here) ? 0 : here;
    return sets[here - 1]?.find((colour) => !has(there, colour)) ?? 0;
  };
  for (let y = 0, at = 0; y < height; y++)
    for (let x = 0; x < width; x++, at++) {
      const label = labels[at] ?? 0;
      if (label === 0) continue;
      to[at] =
        (x > 0 && ended(label, labels[at - 1] ?? 0)) ||
        (x < width - 1 && ended(label, labels[at + 1] ?? 0)) ||
        (y > 0 && ended(label, labels[at - width] ?? 0)) ||
        (y < height - 1 && ended(label, labels[at + width] ?? 0)) ||
        0;
    }
  /** Of `at` and `at + step`; `before` and `after` say whether more pixels are beside them. */
  const divide = (at: number, step: number, before: boolean, after: boolean) => {
    const [label, next] = [labels[at] ?? 0, labels[at + step] ?? 0];
    if (label === 0 || next === 0 || ended(label, next) === 0 || ended(next, label) === 0) return;
    if (before && labels[at - step] === label) to[at] = SEAM;
    else if (after && labels[at + 2 * step] === next) to[at + step] = SEAM;
  };
  for (let y = 0, at = 0; y < height; y++)
    for (let x = 0; x < width; x++, at++) {
      if (x < width - 1) divide(at, 1, x > 0, x < width - 2);
      if (y < height - 1) divide(at, width, y > 0, y < height - 2);
    }
  return edges;
}

/**
 * @param file the picture of the marks
 * @param told its pixels, when they are known
 */
export function Outlines({
  file,
  marks,
  drawn,
  told,
}: {
  file: Blob;
  marks: ResultMarks;
  drawn: boolean;
  told: (found: { of: Blob; pixels: MarkPixels }) => void;
}) {
  const place = useRef<HTMLCanvasElement>(null);
  // Before it is shown: never the edges of another frame
  useLayoutEffect(() => {
    const canvas = place.current;
    if (canvas !== null) Object.assign(canvas, { width: 1, height: 1 });
  }, [file, drawn]);
  useEffect(() => {
    let isOver = false;
    pixelsOf(file).then(
      (pixels) => {
        const canvas = place.current;
        if (isOver || canvas === null) return;
        told({ of: file, pixels });
        if (!drawn) return;
        const { width, height } = pixels;
        Object.assign(canvas, { width, height });
        canvas
          .getContext("2d")
          ?.putImageData(new ImageData(edgesOf(pixels, marks), width, height), 0, 0);
        canvas.dataset["drawn"] = "yes";
      },
      // The picture itself is shown, or says why not
      () => undefined,
    );
    return () => {
      isOver = true;
    };
  }, [file, drawn]);
  return <canvas class="over outlines" ref={place} aria-hidden="true" />;
}
