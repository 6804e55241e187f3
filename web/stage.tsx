/**
 * The picture of a result: a frame or a plane across the slices, what is marked on it, and how it
 * is looked at.
 */
import type { RefObject } from "preact";
import { useEffect, useLayoutEffect, useMemo, useState } from "preact/hooks";
import type { Whose } from "../src/features/viewer/list/whose.js";
import type { Receipt } from "../src/results/receipt/receipt.js";
import type { Across, FrameFacts, ResultMarks } from "../src/features/viewer/messages.js";
import { asked, call, callBlob, useLoaded } from "./api.js";
import { baseName, bytesOf, count } from "./format.js";
import { Kept } from "./kept.js";
import { placed, type Rect, type PlacedWord } from "./labels.js";
import { Legend, type ShownSegments } from "./legend.js";
import type { MarkPixels } from "./mark-pixels.js";
import { Outlines } from "./outlines.js";
import { Card, FaultNote } from "./parts.js";
import { isShown, valueText } from "./result.js";
import {
  Corners,
  Drawn,
  EyeTools,
  HandTools,
  innerWidth,
  placeIn,
  useEye,
  useFrame,
  type Go,
  type Paths,
  type Spot,
} from "./viewer.js";

type Model = Receipt["models"][number];

const SEGMENTATIONS = new Set(["1.2.840.10008.5.1.4.1.1.66.4", "1.2.840.10008.5.1.4.1.1.66.7"]);
/** Whether it wrote masks that lie in the frames of the source. */
export const hasMasks = ({ outputs, segmentation_grid: grid }: Model) =>
  grid === undefined &&
  outputs.some(({ sop_class_uid: uid }) => uid !== undefined && SEGMENTATIONS.has(uid));
export const hasBoxes = ({ findings }: Model) =>
  findings.some(({ box, point }) => box !== undefined || point !== undefined);

const isDrawn = (model: Model) => hasMasks(model) || hasBoxes(model);

/** The marks on the picture: of which model, which of its labels, and whether they are off. */
export interface Overlay {
  model: string;
  only: ShownSegments;
  isOff: boolean;
}
export const NO_MARKS: Overlay = { model: "", only: undefined, isOff: true };

/** All marks of the first of the models that are shown which has some that the stage can draw. */
export function overlayOf(models: readonly Model[]): Overlay | undefined {
  return marksOf(models.find((one) => isShown(one) && isDrawn(one)));
}

/** All marks of a model, one in shadow too; undefined where the stage cannot draw any. */
export const marksOf = (model: Model | undefined): Overlay | undefined =>
  model && isDrawn(model) ? { model: model.name, only: undefined, isOff: false } : undefined;

function pngBlob(base64: string): Blob {
  return new Blob([bytesOf(base64)], { type: "image/png" });
}

/** A PNG that the server makes or gives, as an address for this page. */
export function usePng(page: string | null) {
  const kept = useMemo(() => new Kept<string>((url) => URL.revokeObjectURL(url)), []);
  useEffect(() => () => kept.forget(), [kept]);
  const loaded = useLoaded(page, async (signal) => ({
    page,
    url: await kept.get(page ?? "", async () =>
      URL.createObjectURL(new Blob([await callBlob(page ?? "", signal)], { type: "image/png" })),
    ),
  }));
  // That of another frame is never shown for this one
  return {
    url: page !== null && loaded.data?.page === page ? loaded.data.url : undefined,
    fault: loaded.fault,
  };
}

/** @param only numbers of segments; undefined: all */
function useMarks(
  { id, mac, inputId }: Paths,
  model: Model | undefined,
  place: Spot,
  only: ShownSegments,
) {
  const { across } = place;
  const page =
    model === undefined || !hasMasks(model)
      ? null
      : asked("/results/marks", {
          id,
          mac,
          model: model.name,
          frame: placeIn(place),
          across,
          input_id: across === undefined ? undefined : inputId,
          only: only === undefined ? undefined : [...only].join(",") || "0",
        });
  const kept = useMemo(() => new Kept<ResultMarks>(), []);
  const loaded = useLoaded(page, async (signal) => ({
    page,
    of: model?.name,
    marks: await kept.get(page ?? "", () =>
      call<ResultMarks>("GET", page ?? "", { signal, patient: across !== undefined }),
    ),
  }));
  // Marks of another frame are never laid over this one
  const mine = page !== null && loaded.data?.page === page ? loaded.data.marks : undefined;
  // The labels are the same on every frame: the list of them stays under the hand
  const known = page !== null && loaded.data?.of === model?.name ? loaded.data?.marks : undefined;
  const file = useMemo(
    () => (typeof mine?.png === "string" ? pngBlob(mine.png) : undefined),
    [mine],
  );
  const url = useMemo(() => (file === undefined ? undefined : URL.createObjectURL(file)), [file]);
  useEffect(() => () => (url === undefined ? undefined : URL.revokeObjectURL(url)), [url]);
  return { marks: mine, known, file, url, fault: loaded.fault };
}

const STYLES = [
  ["both", "filled, with outlines"],
  ["filled", "filled"],
  ["outlines", "outlines"],
] as const;
type MarkStyle = (typeof STYLES)[number][0];

type Point = { x: number; y: number };

/** Something to draw: a box, a turned one, a point or lines, round which its words may not lie. */
interface Shape {
  round: Rect;
  outline: readonly Point[] | undefined;
  lines?: readonly (readonly Point[])[];
  said: string;
}

const roundOf = (points: readonly Point[]): Rect => {
  const [xs, ys] = [points.map(({ x }) => x), points.map(({ y }) => y)];
  const [x, y] = [Math.min(...xs), Math.min(...ys)];
  return { x, y, width: Math.max(...xs) - x, height: Math.max(...ys) - y };
};

const cornersOf = ([x0, x1]: Ends, [y0, y1]: Ends): Point[] => [
  { x: x0, y: y0 },
  { x: x1, y: y0 },
  { x: x1, y: y1 },
  { x: x0, y: y1 },
];

const saidOf = ({ label, number, score }: Model["findings"][number]): string =>
  [label, number, score?.toFixed(2)].filter((part) => part !== undefined).join(" ");

/** What lies on a frame, in its pixels. */
function shapesOn(model: Model, frame: number): Shape[] {
  const here = model.findings.filter(
    ({ frame: of, frames, present }) => present && (frames?.includes(frame) ?? (of ?? 1) === frame),
  );
  const found = here.flatMap((one): Shape[] => {
    const { box, corners, point } = one;
    const outline = corners ?? (box && cornersOf([box.x0, box.x1], [box.y0, box.y1]));
    const points = outline ?? (point && [point]);
    return points === undefined ? [] : [{ round: roundOf(points), outline, said: saidOf(one) }];
  });
  const measured = model.measurements.flatMap((one): Shape[] => {
    const [[from, to] = []] = one.lines ?? [];
    if (from === undefined || to === undefined || (one.frame ?? 1) !== frame) return [];
    // The names of points stand at the points
    const middle = { x: (from.x + to.x) / 2, y: (from.y + to.y) / 2 };
    const said = `${one.name} ${valueText(one)}`;
    return [{ round: roundOf([middle]), outline: undefined, lines: one.lines ?? [], said }];
  });
  return [...found, ...measured];
}

type Ends = readonly [from: number, to: number];
type Side = NonNullable<FrameFacts["across"]>["right"];

/** What boxes of a volume a plane across its slices cuts, in its pixels. */
function shapesAcross(
  { findings }: Model,
  place: Spot,
  { across, columns, rows }: FrameFacts,
): Shape[] {
  if (across === null || place.across === undefined) return [];
  const at = placeIn(place) - 0.5;
  return findings.flatMap((one): Shape[] => {
    const { box, present } = one;
    if (!present || box?.z0 === undefined || box.z1 === undefined) return [];
    const ends = {
      column: [box.x0, box.x1],
      row: [box.y0, box.y1],
      slice: [box.z0, box.z1],
    } as const;
    const [from, to] = ends[place.across ?? "row"];
    if (at < from || at > to) return [];
    const along = ({ along, reversed }: Side, side: number): Ends => {
      const [low, high] = ends[along];
      return reversed ? [side - high, side - low] : [low, high];
    };
    const outline = cornersOf(along(across.right, columns), along(across.down, rows));
    return [{ round: roundOf(outline), outline, said: saidOf(one) }];
  });
}

const holds = (runs: readonly number[], at: number): boolean =>
  runs.some((first, i) => i % 2 === 0 && at >= first && at < first + (runs[i + 1] ?? 0));

/** The label of a pixel, by its colour among those of the frame; all of those that share it. */
function labelIn(
  found: MarkPixels | undefined,
  marks: ResultMarks | undefined,
  x: number,
  y: number,
): string | undefined {
  if (found === undefined || marks === undefined || x >= found.width) return undefined;
  const at = y * found.width + x;
  const shared = marks.overlaps.find(({ runs }) => holds(runs, at));
  if (shared !== undefined)
    return marks.segments
      .flatMap(({ number, label }) => (shared.segments.includes(number) ? label : []))
      .join(" and ");
  const [red = 0, green = 0, blue = 0, alpha = 0] = found.data.subarray(4 * at);
  if (alpha === 0) return undefined;
  const colour = `#${[red, green, blue].map((part) => part.toString(16).padStart(2, "0")).join("")}`;
  const labels = marks.segments.filter((one) => one.colour === colour && one.pixels > 0);
  return labels.length === 0 ? undefined : labels.map(({ label }) => label).join(" or ");
}

const listed = (points: readonly Point[]): string =>
  points.map(({ x, y }) => `${x},${y}`).join(" ");

/** The words of shapes, where they cover nothing. */
function wordsOf(
  shapes: readonly Shape[],
  { rows, columns }: Pick<FrameFacts, "rows" | "columns">,
  [width, height]: readonly [number, number],
  corners: readonly Rect[],
): PlacedWord[] {
  const [sx, sy] = [width / columns, height / rows];
  const named = shapes.map(({ round, said }) => ({
    round: { x: round.x * sx, y: round.y * sy, width: round.width * sx, height: round.height * sy },
    said,
  }));
  return placed(named, [width, height], corners);
}

/** Boxes, points and lines. */
function Shapes({
  shapes,
  facts: { rows, columns },
}: {
  shapes: readonly Shape[];
  facts: Pick<FrameFacts, "rows" | "columns">;
}) {
  return (
    <svg
      class="over"
      viewBox={`0 0 ${columns} ${rows}`}
      preserveAspectRatio="none"
      aria-hidden="true"
    >
      {shapes.map(({ lines, outline, round: { x, y } }, i) => (
        <g key={i}>
          {lines !== undefined
            ? lines.map((line, n) => <polyline key={n} points={listed(line)} />)
            : outline !== undefined && <polygon points={listed(outline)} />}
          {lines === undefined && outline === undefined && <path d={`M ${x} ${y} h 0`} />}
        </g>
      ))}
    </svg>
  );
}

/** Words on the picture; zoomed they stay as large as they are. */
function Words({ words, zoom }: { words: readonly PlacedWord[]; zoom: number }) {
  return (
    <div class="over stage-labels" aria-hidden="true">
      {words.map(({ x, y, said }, i) => (
        <span
          key={i}
          style={{ left: `${x / zoom}px`, top: `${y / zoom}px`, transform: `scale(${1 / zoom})` }}
        >
          {said}
        </span>
      ))}
    </div>
  );
}

/** The place of the picture in its true proportions: whatever lies over it has the same edges. */
const boxOf = ([width, height]: readonly [number, number]) => ({
  aspectRatio: `${width} / ${height}`,
  width: innerWidth([width, height]),
});

const PLANES = [
  ["AP", "Coronal"],
  ["HF", "Axial"],
  ["LR", "Sagittal"],
] as const;
const planeBeside = (letters: string): string =>
  PLANES.find(([of]) => of.includes(letters.charAt(0)))?.[1] ?? "";

/**
 * The planes of a volume by their names: its own, and those that a row and a column of every slice
 * lie in.
 */
function planesOf({ sides, position }: FrameFacts, frames: number): [of: Across, name: string][] {
  if (sides === null || position === null || frames < 2) return [];
  const across = [planeBeside(sides.top), planeBeside(sides.left)] as const;
  const own = PLANES.find(([, name]) => !across.includes(name))?.[1] ?? "";
  return [
    [undefined, own],
    ["row", across[0]],
    ["column", across[1]],
  ];
}

/** The size of an element as it is laid out. */
function useSize(): [size: readonly [number, number], ref: (element: HTMLElement | null) => void] {
  const [size, setSize] = useState<readonly [number, number]>([0, 0]);
  const ref = useMemo(() => {
    let watching: ResizeObserver | undefined;
    return (element: HTMLElement | null) => {
      watching?.disconnect();
      if (element === null) return;
      watching = new ResizeObserver(() => setSize([element.offsetWidth, element.offsetHeight]));
      watching.observe(element);
    };
  }, []);
  return [size, ref];
}

/**
 * Where the texts in the corners lie, in pixels of the screen from the corner of the picture.
 * @param changes what moves them
 */
function useCorners(stage: RefObject<HTMLElement | null>, changes: readonly unknown[]): Rect[] {
  const [corners, setCorners] = useState<Rect[]>([]);
  useLayoutEffect(() => {
    const from = stage.current?.querySelector(".stage-inner")?.getBoundingClientRect();
    const texts = [...(stage.current?.querySelectorAll(".corners div") ?? [])];
    const boxes = texts.map((text) => text.getBoundingClientRect());
    setCorners(
      boxes.map(({ x, y, width, height }) => ({
        x: x - (from?.x ?? 0),
        y: y - (from?.y ?? 0),
        width,
        height,
      })),
    );
  }, changes);
  return corners;
}

/**
 * A PACS may have corrected the image since it was analysed, or another lies at its path: whoever
 * reads is told before they look.
 */
function OtherPatient({
  whose,
  facts,
}: {
  whose: Whose | undefined;
  facts: FrameFacts | undefined;
}) {
  if (whose === undefined || facts === undefined) return null;
  // An image may have named nobody, or name nobody any more
  const [then = "", now = ""] = [whose.patient_id, facts.patient_id?.trim()];
  if (then === now) return null;
  return (
    <p class="note bad" role="alert">
      <strong>{now === "" ? "No patient." : "Another patient."}</strong> The image names{" "}
      {now === "" ? "nobody" : `the patient ${now}`} now; when it was analysed it named{" "}
      {then === "" ? "nobody" : then}. Its pixels are the same.
    </p>
  );
}

export function Stage({
  paths,
  whose,
  receipt,
  place,
  go,
  overlay,
  draw,
  find,
}: {
  paths: Paths;
  /** Whose it was when it was analysed. */
  whose: Whose | undefined;
  receipt: Receipt;
  place: Spot;
  go: Go;
  overlay: Overlay;
  draw: (overlay: Overlay) => void;
  /** Goes to the frame that has most of a label. */
  find: (model: string, label: string) => void;
}) {
  const { frames, rows, columns } = receipt.source;
  const { across } = place;
  const [at, most] = [
    placeIn(place),
    { frame: frames, row: rows, column: columns }[across ?? "frame"],
  ];
  const drawn = receipt.models.filter(isDrawn);
  const model = overlay.isOff ? undefined : drawn.find(({ name }) => name === overlay.model);
  const [opacity, setOpacity] = useState(40);
  const [style, setStyle] = useState<MarkStyle>("both");
  const [pixels, keepPixels] = useState<{ of: Blob; pixels: MarkPixels }>();
  const [labels, setLabels] = useState(true);
  const [texts, setTexts] = useState(true);
  const [planes, setPlanes] = useState<[Across, string][]>([]);
  const seen = useFrame(paths, place);
  const move = (to: number) => go({ [across ?? "frame"]: Math.min(most, Math.max(1, to)) });
  const next = () => {
    const now = planes.findIndex(([of]) => of === across);
    const [to] = planes[(now + 1) % planes.length] ?? [];
    go({ across: to });
  };
  const { eye, setEye, window, probed, stage, handlers, touch, setTouch } = useEye(seen.frame, {
    step: (by: number) => move(at + by),
    most,
    overlay: () => draw({ ...overlay, isOff: !overlay.isOff }),
    plane: next,
    texts: () => setTexts((before) => !before),
  });
  useEffect(() => setEye((before) => ({ ...before, zoom: 1, pan: [0, 0] })), [across]);
  // The server draws what the browser cannot: colours, tables, curves
  const picture = usePng(
    seen.frame === undefined || window !== undefined
      ? null
      : asked("/results/picture", {
          id: paths.id,
          mac: paths.mac,
          input_id: paths.inputId,
          frame: at,
          across,
        }),
  );
  const { marks, known, file, url, fault } = useMarks(paths, model, place, overlay.only);
  // Those of another frame may be there still
  const here = pixels !== undefined && pixels.of === file ? pixels.pixels : undefined;
  const [size, measure] = useSize();
  const [shape, setShape] = useState<[number, number]>([columns, rows]);
  const shown = window === undefined && picture.url === undefined ? undefined : seen.frame;
  const facts = seen.frame?.facts;
  useEffect(() => {
    if (facts === undefined) return;
    setShape([facts.columns, facts.rows * facts.pixel_aspect]);
    if (facts.across === null) setPlanes(planesOf(facts, frames));
  }, [facts]);
  const shapes =
    shown === undefined || model === undefined
      ? []
      : across === undefined
        ? shapesOn(model, at)
        : shapesAcross(model, place, shown.facts);
  const corners = useCorners(stage, [shown, ...size, eye.zoom, eye.pan, texts]);
  const words =
    shown === undefined || !labels
      ? []
      : wordsOf(shapes, shown.facts, [size[0] * eye.zoom, size[1] * eye.zoom], corners);
  const unsaid = labels ? shapes.length - words.length : 0;
  const unit =
    across === undefined
      ? receipt.source.slices === undefined
        ? "Frame"
        : "Slice"
      : (planes.find(([of]) => of === across)?.[1] ?? "Plane");
  const called = facts?.across?.name ?? unit;
  const text = `${called.charAt(0).toUpperCase()}${called.slice(1)} ${count(at)} of ${count(most)}`;
  const lies = {
    ...boxOf(shape),
    transform: `translate(${eye.pan[0]}px, ${eye.pan[1]}px) scale(${eye.zoom})`,
  };
  const alt = `${text} of ${baseName(paths.inputPath)}`;
  return (
    <Card title="Picture" wide>
      <OtherPatient whose={whose} facts={facts} />
      {planes.length > 0 && (
        <div class="tabs" role="group" aria-label="Plane">
          {planes.map(([of, name]) => (
            <button
              key={name}
              type="button"
              aria-pressed={of === across}
              onClick={() => go({ across: of })}
            >
              {name}
            </button>
          ))}
        </div>
      )}
      <div
        class="stage"
        ref={stage}
        data-frame={shown === undefined || across !== undefined ? "" : at}
        data-plane={shown === undefined ? "" : `${called} ${at}`}
        tabIndex={0}
        role="application"
        aria-label="Picture"
        aria-describedby="stage-keys"
        data-touch={touch}
        {...handlers}
      >
        <div class="stage-inner" ref={measure} style={lies}>
          {shown !== undefined &&
            (window !== undefined ? (
              <Drawn frame={shown} window={window} inverted={eye.inverted} label={alt} />
            ) : (
              <img
                class="over picture"
                src={picture.url}
                style={eye.inverted ? { filter: "invert(1)" } : {}}
                onLoad={({ currentTarget: { naturalWidth, naturalHeight } }) =>
                  setShape([naturalWidth, naturalHeight])
                }
                alt={alt}
              />
            ))}
          {shown !== undefined && url !== undefined && style !== "outlines" && (
            <img class="over marks" src={url} alt="" style={{ opacity: String(opacity / 100) }} />
          )}
          {shown !== undefined && file !== undefined && marks !== undefined && (
            <Outlines file={file} marks={marks} drawn={style !== "filled"} told={keepPixels} />
          )}
        </div>
        {shown !== undefined ? (
          <Corners
            frame={shown}
            window={window}
            place={most === 1 ? "" : text}
            probe={probed((x, y) => labelIn(here, marks, x, y))}
            zoom={eye.zoom}
            texts={texts}
          />
        ) : (
          <p class="wait">
            {seen.fault !== undefined
              ? `${text}: not shown`
              : across === undefined
                ? `Reading ${text.toLowerCase()}…`
                : "Reading the volume…"}
          </p>
        )}
        {shown !== undefined && (
          <div class="stage-inner marked" style={lies}>
            <Shapes shapes={shapes} facts={shown.facts} />
            <Words words={words} zoom={eye.zoom} />
          </div>
        )}
      </div>
      {seen.fault !== undefined && <FaultNote fault={seen.fault} />}
      {picture.fault !== undefined && <FaultNote fault={picture.fault} />}
      {fault !== undefined && seen.fault === undefined && <FaultNote fault={fault} />}
      <div class="tools">
        {most > 1 && (
          <label class="slice">
            <span class="figure">{text}</span>
            <input
              type="range"
              aria-label={unit}
              min={1}
              max={most}
              value={at}
              onInput={({ currentTarget }) => move(Number(currentTarget.value))}
            />
          </label>
        )}
        <HandTools setEye={setEye} touch={touch} setTouch={setTouch} />
        <EyeTools frame={seen.frame} eye={eye} setEye={setEye} />
        {drawn.length > 0 && (
          <label>
            Overlay
            <select
              value={model?.name ?? ""}
              onChange={({ currentTarget: { value } }) =>
                draw(
                  value === ""
                    ? { ...overlay, isOff: true }
                    : { model: value, only: undefined, isOff: false },
                )
              }
            >
              {drawn.map((one) => (
                <option key={one.name} value={one.name}>
                  {one.name}
                  {!isShown(one) && " (shadow)"}
                </option>
              ))}
              <option value="">none</option>
            </select>
          </label>
        )}
        {model !== undefined && hasMasks(model) && (
          <label>
            Marks
            <select
              value={style}
              onChange={({ currentTarget }) => setStyle(currentTarget.value as MarkStyle)}
            >
              {STYLES.map(([name, words]) => (
                <option key={name} value={name}>
                  {words}
                </option>
              ))}
            </select>
          </label>
        )}
        {model !== undefined && hasMasks(model) && style !== "outlines" && (
          <label>
            Opacity
            <input
              type="range"
              min={0}
              max={100}
              value={opacity}
              onInput={({ currentTarget }) => setOpacity(Number(currentTarget.value))}
            />
          </label>
        )}
        {model !== undefined && (
          <label>
            <input
              type="checkbox"
              checked={labels}
              onChange={({ currentTarget }) => setLabels(currentTarget.checked)}
            />
            Labels
          </label>
        )}
        <label>
          <input
            type="checkbox"
            checked={texts}
            onChange={({ currentTarget }) => setTexts(currentTarget.checked)}
          />
          Corner texts
        </label>
      </div>
      {unsaid > 0 && (
        <p class="quiet">
          {unsaid === 1 ? "One name has" : `${count(unsaid)} names have`} no room: zoom in, or hide
          the corner texts.
        </p>
      )}
      {labels && model !== undefined && known !== undefined && known.segments.length > 0 && (
        <Legend
          key={model.name}
          segments={known.segments}
          isOfFrame={known === marks}
          opacity={style === "outlines" ? 0 : opacity}
          shown={overlay.only}
          show={(only) => draw({ ...overlay, only })}
          go={(label) => find(model.name, label)}
        />
      )}
      <p class="quiet" id="stage-keys">
        Keys: arrows go through slices, p to the next plane, + and − zoom, f fits, i inverts, o
        switches the overlay, t the texts in the corners. Only the image that the receipt names is
        shown. A drag sets the window, with Shift it moves the picture; Ctrl and the wheel zoom; two
        fingers zoom and move. For orientation; a diagnosis is made at a workstation.
      </p>
    </Card>
  );
}
