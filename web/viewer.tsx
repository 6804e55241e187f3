/**
 * A frame under the eye: its window, zoom and pan, the value at the pointer, and what stands in the
 * corners.
 */
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Across, FrameFacts } from "../src/features/viewer/messages.js";
import { asked, call, useLoaded } from "./api.js";
import { bytesOf, count, dayOf, figure } from "./format.js";
import { Kept } from "./kept.js";

/** A result and its image: their names for addresses, and their paths for people. */
export interface Paths {
  id: string;
  inputId: string;
  /**
   * The MAC of the receipt that is shown: of a result that has replaced it nothing is laid over
   * what is told of this one. Undefined of a receipt without one, and before it is read.
   */
  mac?: string | undefined;
  receiptPath: string;
  inputPath: string;
}

/**
 * What is looked at: a frame, or the plane through a row or a column of every slice; all from 1.
 */
export interface Spot {
  across: Across;
  frame: number;
  row: number;
  column: number;
}
export type Go = (to: Partial<Spot>) => void;

export const placeIn = (place: Spot): number => place[place.across ?? "frame"];

export interface Window {
  center: number;
  width: number;
  exact: boolean;
}

/** A frame with its stored values unpacked. */
export interface Frame {
  facts: FrameFacts;
  stored: Int16Array | Uint16Array | Float32Array | undefined;
}

/** Windows that readers of CT use, in HU. */
const PRESETS: readonly [name: string, center: number, width: number][] = [
  ["Soft tissue", 40, 400],
  ["Lung", -600, 1500],
  ["Bone", 480, 2500],
  ["Brain", 40, 80],
  ["Liver", 60, 160],
];
const ZOOM_MOST = 16;
/** Width of a window that one pixel of a drag changes, as a share of the width. */
const DRAG_SHARE = 1 / 256;

function unpacked(facts: FrameFacts): Frame {
  if (facts.values === null) return { facts, stored: undefined };
  const bytes = bytesOf(facts.values.base64);
  const Values = { int16: Int16Array, uint16: Uint16Array, float32: Float32Array }[
    facts.values.type
  ];
  // The text is not kept beside the numbers
  const values = { ...facts.values, base64: "" };
  return { facts: { ...facts, values }, stored: new Values(bytes.buffer) };
}

/** A frame, or a plane across the slices, which comes when the server has read them all. */
export function useFrame(paths: Paths, place: Spot) {
  const kept = useMemo(() => new Kept<Frame>(), []);
  const { across } = place;
  const page = asked("/results/frame", {
    id: paths.id,
    mac: paths.mac,
    input_id: paths.inputId,
    frame: placeIn(place),
    across,
  });
  const loaded = useLoaded(page, async (signal) => ({
    page,
    found: await kept.get(page, async () =>
      unpacked(await call<FrameFacts>("GET", page, { signal, patient: across !== undefined })),
    ),
  }));
  // Another frame's values are never shown for this one
  const mine = loaded.data?.page === page ? loaded.data.found : undefined;
  return { frame: mine, fault: loaded.busy ? undefined : loaded.fault };
}

/**
 * The window that a frame is shown with where nobody chose one; undefined where only the server can
 * draw it.
 */
export const ownWindow = ({ facts, stored }: Frame): Window | undefined =>
  stored === undefined || facts.window === null ? undefined : facts.window;

/** From the lowest to the highest value. */
function fullWindow({ facts: { values }, stored }: Frame): Window | undefined {
  if (stored === undefined || values === null) return undefined;
  let [low, high] = [Infinity, -Infinity];
  for (const value of stored) {
    // Padding is no number, and neither less nor more
    if (value < low) low = value;
    if (value > high) high = value;
  }
  const ends = [low, high].map((value) => value * values.slope + values.intercept);
  const [from = 0, to = 0] = ends.sort((a, b) => a - b);
  return { center: (from + to) / 2, width: Math.max(to - from, 1), exact: true };
}

/** Grey of a stored value, by PS3.3 C.11.2.1.2.1 (LINEAR) or C.11.2.1.3.2 (LINEAR_EXACT). */
function greyOf(frame: Frame, { center, width, exact }: Window, inverted: boolean) {
  const { slope = 1, intercept = 0 } = frame.facts.values ?? {};
  const [middle, span] = exact ? [center, width] : [center - 0.5, Math.max(width - 1, 1e-6)];
  return (stored: number): number => {
    const grey = ((stored * slope + intercept - middle) / span + 0.5) * 255;
    return inverted ? 255 - grey : grey;
  };
}

/** The greys of a frame's pixels, rows from the top. */
function greys(
  { stored = new Uint16Array() }: Frame,
  of: (stored: number) => number,
): Uint8ClampedArray {
  if (stored instanceof Float32Array) return Uint8ClampedArray.from(stored, of);
  const signed = stored instanceof Int16Array;
  const table = new Uint8ClampedArray(65_536);
  for (let i = 0; i < table.length; i++) table[i] = of(signed ? (i << 16) >> 16 : i);
  return Uint8ClampedArray.from(stored, (value) => table[value & 0xffff] ?? 0);
}

/** The frame drawn with a window. */
export function Drawn({
  frame,
  window,
  inverted,
  label,
}: {
  frame: Frame;
  window: Window;
  inverted: boolean;
  label: string;
}) {
  const place = useRef<HTMLCanvasElement>(null);
  const { rows, columns } = frame.facts;
  // Before it is shown: never the pixels of another frame under the words of this one
  useLayoutEffect(() => {
    const context = place.current?.getContext("2d");
    if (context === null || context === undefined || frame.stored === undefined) return;
    const picture = context.createImageData(columns, rows);
    const pixels = new Uint32Array(picture.data.buffer);
    const found = greys(frame, greyOf(frame, window, inverted !== frame.facts.inverted));
    for (let i = 0; i < found.length; i++) pixels[i] = 0xff000000 | ((found[i] ?? 0) * 0x010101);
    context.putImageData(picture, 0, 0);
  }, [frame, window, inverted]);
  return (
    <canvas
      class="over picture"
      ref={place}
      width={columns}
      height={rows}
      role="img"
      aria-label={label}
    />
  );
}

const round = (value: number): string => figure(value).replace("-", "\u2212");

/** Width of the picture in the stage, for CSS. */
export const innerWidth = ([width, height]: readonly [number, number]): string =>
  `min(100%, ${(70 * width) / height}vh)`;

/** What stands in the corners, which may be hidden, and at the edges: sides and scale stay. */
export function Corners({
  frame: { facts },
  window,
  place,
  probe,
  zoom,
  texts,
}: {
  frame: Frame;
  window: Window | undefined;
  place: string;
  probe: string | undefined;
  zoom: number;
  texts: boolean;
}) {
  const { sides, spacing, rows, columns, pixel_aspect: aspect } = facts;
  const across = spacing?.[1];
  const bar = across === undefined ? undefined : barOf((across * columns) / zoom);
  const lines = (parts: (string | null | undefined)[]) =>
    parts.map((part, i) =>
      part === null || part === undefined || part === "" ? null : <div key={i}>{part}</div>,
    );
  return (
    <div class="corners">
      {texts && (
        <>
          <div class="nw">
            {lines([
              ...new Set([facts.patient_name?.replaceAll("^", " ").trim(), facts.patient_id]),
            ])}
          </div>
          <div class="ne">{lines([dayOf(facts.study_date), facts.series_description])}</div>
          <div class="sw">
            {lines([
              probe,
              place,
              facts.instance_number === null ? null : `Image ${facts.instance_number}`,
            ])}
          </div>
          <div class="se">
            {lines([
              window === undefined ? null : `W ${round(window.width)} L ${round(window.center)}`,
              zoom === 1 ? null : `${Math.round(zoom * 100)} %`,
            ])}
          </div>
        </>
      )}
      {bar !== undefined && across !== undefined && (
        <div
          class="scale"
          style={{
            width: `calc(${innerWidth([columns, rows * aspect])} * ${(zoom * bar) / (across * columns)})`,
          }}
        >
          {bar >= 10 ? `${bar / 10} cm` : `${bar} mm`}
        </div>
      )}
      {sides !== null && (
        <>
          <div class="side at-left">{sides.left}</div>
          <div class="side at-right">{sides.right}</div>
          <div class="side at-top">{sides.top}</div>
          <div class="side at-bottom">{sides.bottom}</div>
        </>
      )}
    </div>
  );
}

const BARS_MM = [100, 50, 20, 10, 5, 2, 1, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01];

/**
 * A round length in mm, of about a fifth of the width; none where even the least is too long.
 * @param width of what is seen of the picture, in mm
 */
const barOf = (width: number): number | undefined => BARS_MM.find((mm) => mm <= width / 4);

/** How a frame is looked at. */
export interface Eye {
  window: Window | undefined;
  inverted: boolean;
  zoom: number;
  /** In pixels of the screen. */
  pan: [x: number, y: number];
}
export const PLAIN_EYE: Eye = { window: undefined, inverted: false, zoom: 1, pan: [0, 0] };

type Pair = readonly [x: number, y: number];

/** @param about stays where it is: a point of the screen, from the middle of the stage */
export const zoomed = (eye: Eye, factor: number, about: Pair = [0, 0]): Eye => {
  const zoom = Math.min(ZOOM_MOST, Math.max(1, eye.zoom * factor));
  if (zoom === 1) return { ...eye, zoom, pan: [0, 0] };
  const by = zoom / eye.zoom;
  const pan = (axis: 0 | 1) => about[axis] - (about[axis] - eye.pan[axis]) * by;
  return { ...eye, zoom, pan: [pan(0), pan(1)] };
};

/**
 * So far the wheel is turned for one frame: a notch of a mouse is about a hundred, and a touchpad
 * gives a few pixels at a time.
 */
const FRAME_PIXELS = 100;
/** A wheel that rested so long begins anew. */
const WHEEL_REST_MS = 250;
const LINE_PIXELS = 33;

/** How far a wheel was turned, in pixels (UI Events, deltaMode). */
const turned = ({ deltaY, deltaMode }: WheelEvent): number =>
  deltaY * (deltaMode === 1 ? LINE_PIXELS : deltaMode === 2 ? 10 * FRAME_PIXELS : 1);

/** Frames that a turn of the wheel goes on: by its distance, and not by how often it is told. */
export class WheelSteps {
  #left = 0;
  #way = 0;
  #at = -Infinity;

  frames(pixels: number, now: number): number {
    const way = Math.sign(pixels);
    const isNew = now - this.#at > WHEEL_REST_MS || way !== this.#way;
    const all = isNew ? pixels : this.#left + pixels;
    const frames = Math.round(all / FRAME_PIXELS);
    [this.#at, this.#way, this.#left] = [now, way, all - frames * FRAME_PIXELS];
    return frames;
  }
}

/** What a finger on the picture does: two always move and zoom it. */
export const TOUCHES = [
  ["scroll", "scrolls the page"],
  ["window", "sets the window"],
  ["move", "moves the picture"],
] as const;
export type Touch = (typeof TOUCHES)[number][0];

/** A point of the window, from the middle of the stage. */
function fromMiddle(stage: HTMLElement, clientX: number, clientY: number): Pair {
  const { x, y, width, height } = stage.getBoundingClientRect();
  return [clientX - x - width / 2, clientY - y - height / 2];
}

/** Two fingers: where their middle is, from that of the stage, and how far they are apart. */
function fingersOf(
  touches: TouchList,
  stage: HTMLElement,
): { middle: Pair; apart: number } | undefined {
  const [a, b] = touches;
  if (a === undefined || b === undefined) return undefined;
  return {
    middle: fromMiddle(stage, (a.clientX + b.clientX) / 2, (a.clientY + b.clientY) / 2),
    apart: Math.max(1, Math.hypot(a.clientX - b.clientX, a.clientY - b.clientY)),
  };
}

/**
 * Two fingers on the stage zoom and move the picture; one is the browser's, which scrolls the page,
 * or the hand's where `touch` says so.
 */
function usePinch(
  stage: { current: HTMLDivElement | null },
  setEye: (change: (eye: Eye) => Eye) => void,
): void {
  useEffect(() => {
    const place = stage.current;
    if (place === null) return;
    const end = new AbortController();
    let last: ReturnType<typeof fingersOf>;
    const begin = (event: TouchEvent) => {
      last = fingersOf(event.touches, place);
    };
    const move = (event: TouchEvent) => {
      const now = fingersOf(event.touches, place);
      if (now === undefined) return;
      // The browser would scroll or zoom the page
      if (event.cancelable) event.preventDefault();
      const before = last ?? now;
      last = now;
      setEye((eye) => {
        const moved: Eye = {
          ...eye,
          pan: [
            eye.pan[0] + now.middle[0] - before.middle[0],
            eye.pan[1] + now.middle[1] - before.middle[1],
          ],
        };
        return zoomed(moved, now.apart / before.apart, now.middle);
      });
    };
    place.addEventListener("touchstart", begin, { passive: true, signal: end.signal });
    place.addEventListener("touchend", begin, { passive: true, signal: end.signal });
    place.addEventListener("touchmove", move, { passive: false, signal: end.signal });
    return () => end.abort();
  }, []);
}

/**
 * Mouse, fingers and keys on the stage: a drag sets the window, with Shift or the middle button it
 * moves the picture; the wheel goes through frames, with Ctrl it zooms; two fingers zoom and move.
 * @param step goes so many frames on
 * @param others what keys switch: the overlay, to the next plane, and the texts in the corners
 */
export function useEye(frame: Frame | undefined, { step, most, ...others }: Switches & Frames) {
  const [eye, setEye] = useState(PLAIN_EYE);
  const [pointer, point] = useState<{ clientX: number; clientY: number } | undefined>(undefined);
  const stage = useRef<HTMLDivElement>(null);
  const drag = useRef<{ x: number; y: number; eye: Eye; pans: boolean } | undefined>(undefined);
  const [touch, setTouch] = useState<Touch>("scroll");
  const latest = useRef({ frame, step, most });
  latest.current = { frame, step, most };
  const window = eye.window ?? (frame === undefined ? undefined : ownWindow(frame));
  const starting = () => window ?? (frame === undefined ? undefined : fullWindow(frame));

  useEffect(() => {
    const place = stage.current;
    if (place === null) return;
    const steps = new WheelSteps();
    const wheel = (event: WheelEvent) => {
      if (!event.ctrlKey && latest.current.most < 2) return;
      // The page itself must not scroll meanwhile
      event.preventDefault();
      const pixels = turned(event);
      const about = fromMiddle(place, event.clientX, event.clientY);
      if (event.ctrlKey)
        setEye((before) => zoomed(before, 1.25 ** (-pixels / FRAME_PIXELS), about));
      else {
        const frames = steps.frames(pixels, event.timeStamp);
        if (frames !== 0) latest.current.step(frames);
      }
    };
    place.addEventListener("wheel", wheel, { passive: false });
    return () => place.removeEventListener("wheel", wheel);
  }, []);
  usePinch(stage, setEye);

  /**
   * What lies under the pointer: its place, the value, and the label.
   * @param labelAt the label of a pixel, as far as the marks of the frame have come
   */
  const probed = (labelAt: (x: number, y: number) => string | undefined): string | undefined => {
    if (pointer === undefined) return undefined;
    const { clientX, clientY } = pointer;
    const inner = stage.current?.querySelector(".stage-inner")?.getBoundingClientRect();
    const values = frame?.facts.values ?? null;
    if (inner === undefined || frame === undefined || values === null) return undefined;
    const { rows, columns, unit } = frame.facts;
    const x = Math.floor(((clientX - inner.x) / inner.width) * columns);
    const y = Math.floor(((clientY - inner.y) / inner.height) * rows);
    const stored = x < 0 || x >= columns ? undefined : frame.stored?.[y * columns + x];
    if (stored === undefined || Number.isNaN(stored)) return undefined;
    const label = labelAt(x, y);
    const value = `${round(stored * values.slope + values.intercept)}${unit === null ? "" : ` ${unit}`}`;
    return `(${x}, ${y}) ${value}${label === undefined ? "" : ` · ${label}`}`;
  };

  const handlers = {
    onPointerDown: (event: PointerEvent) => {
      const isFinger = event.pointerType === "touch";
      const pans = isFinger ? touch === "move" : event.shiftKey || event.button === 1;
      // A second finger makes a pinch of it
      if (!event.isPrimary) drag.current = undefined;
      if (event.button > 1 || !event.isPrimary || (isFinger && touch === "scroll")) return;
      const eyeNow = pans ? eye : { ...eye, window: starting() };
      drag.current = { x: event.clientX, y: event.clientY, eye: eyeNow, pans };
      stage.current?.setPointerCapture(event.pointerId);
    },
    onPointerMove: (event: PointerEvent) => {
      point({ clientX: event.clientX, clientY: event.clientY });
      const from = drag.current;
      if (from === undefined) return;
      const [dx, dy] = [event.clientX - from.x, event.clientY - from.y];
      const before = from.eye.window;
      if (from.pans) setEye({ ...from.eye, pan: [from.eye.pan[0] + dx, from.eye.pan[1] + dy] });
      if (from.pans || before === undefined || Math.hypot(dx, dy) < 3) return;
      const unit = before.width * DRAG_SHARE;
      const width = Math.max(before.exact ? unit : 1, before.width + 2 * dx * unit);
      setEye({ ...from.eye, window: { ...before, width, center: before.center + dy * unit } });
    },
    onPointerUp: () => {
      drag.current = undefined;
    },
    onPointerCancel: () => {
      drag.current = undefined;
    },
    onPointerLeave: () => {
      point(undefined);
    },
    onDblClick: () => {
      setEye(PLAIN_EYE);
    },
    onKeyDown: (event: KeyboardEvent) => {
      const act = KEYS[event.key];
      if (act === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      act({ step, ...others, setEye });
    },
  };
  return { eye, setEye, window, probed, stage, handlers, touch, setTouch };
}

interface Frames {
  /** How many frames there are: over a single one the wheel scrolls the page. */
  most: number;
}
interface Switches {
  step: (frames: number) => void;
  overlay: () => void;
  plane: () => void;
  texts: () => void;
}
type Act = (with_: Switches & { setEye: (change: (eye: Eye) => Eye) => void }) => void;
const KEYS: Readonly<Record<string, Act>> = {
  ArrowDown: ({ step }) => step(1),
  ArrowUp: ({ step }) => step(-1),
  ArrowRight: ({ step }) => step(1),
  ArrowLeft: ({ step }) => step(-1),
  PageDown: ({ step }) => step(10),
  PageUp: ({ step }) => step(-10),
  "+": ({ setEye }) => setEye((eye) => zoomed(eye, 1.25)),
  "-": ({ setEye }) => setEye((eye) => zoomed(eye, 0.8)),
  f: ({ setEye }) => setEye(() => PLAIN_EYE),
  i: ({ setEye }) => setEye((eye) => ({ ...eye, inverted: !eye.inverted })),
  o: ({ overlay }) => overlay(),
  p: ({ plane }) => plane(),
  t: ({ texts }) => texts(),
};

/** Zoom, fit, and what a finger does, which only those see who have fingers on the glass. */
export function HandTools({
  setEye,
  touch,
  setTouch,
}: {
  setEye: (change: (eye: Eye) => Eye) => void;
  touch: Touch;
  setTouch: (touch: Touch) => void;
}) {
  return (
    <>
      <span class="orders" role="group" aria-label="Zoom">
        <button
          type="button"
          class="small"
          aria-label="Zoom out"
          onClick={() => setEye((eye) => zoomed(eye, 0.8))}
        >
          −
        </button>
        <button
          type="button"
          class="small"
          aria-label="Zoom in"
          onClick={() => setEye((eye) => zoomed(eye, 1.25))}
        >
          +
        </button>
        <button type="button" class="small" onClick={() => setEye(() => PLAIN_EYE)}>
          Fit
        </button>
      </span>
      <label class="of-touch">
        One finger
        <select
          value={touch}
          onChange={({ currentTarget }) => setTouch(currentTarget.value as Touch)}
        >
          {TOUCHES.map(([name, words]) => (
            <option key={name} value={name}>
              {words}
            </option>
          ))}
        </select>
      </label>
    </>
  );
}

/** Window and invert as controls. */
export function EyeTools({
  frame,
  eye,
  setEye,
}: {
  frame: Frame | undefined;
  eye: Eye;
  setEye: (change: (eye: Eye) => Eye) => void;
}) {
  if (frame?.stored === undefined) return null;
  const set = (window: Window | undefined) => setEye((before) => ({ ...before, window }));
  const own =
    frame.facts.window === null
      ? "of the file"
      : `of the file (W ${count(frame.facts.window.width)})`;
  const preset = PRESETS.find(
    ([, center, width]) => eye.window?.center === center && eye.window.width === width,
  );
  return (
    <>
      <label>
        Window
        <select
          value={eye.window === undefined ? "" : (preset?.[0] ?? "own")}
          onChange={({ currentTarget: { value } }) => {
            const [, center, width] = PRESETS.find(([name]) => name === value) ?? [];
            if (value === "full") set(fullWindow(frame));
            else if (center !== undefined && width !== undefined)
              set({ center, width, exact: false });
            else set(undefined);
          }}
        >
          <option value="">{own}</option>
          {frame.facts.unit === "HU" && PRESETS.map(([name]) => <option key={name}>{name}</option>)}
          <option value="full">all values</option>
          {eye.window !== undefined && preset === undefined && <option value="own">by hand</option>}
        </select>
      </label>
      <label>
        <input
          type="checkbox"
          checked={eye.inverted}
          onChange={({ currentTarget }) =>
            setEye((before) => ({ ...before, inverted: currentTarget.checked }))
          }
        />
        Invert
      </label>
    </>
  );
}
