/**
 * Pictures for people, composed, checked and packed by the addon; no engine has to be there. All
 * but the packing happens at once and on the calling thread.
 */
import { loadAddon } from "./load-addon.js";

/** Rows top to bottom, three bytes (RGB) a pixel. */
export interface Picture {
  width: number;
  height: number;
  rgb: Uint8Array;
}

/** Label numbers (0: no label) of rows x columns source pixels. */
export interface MaskLayer {
  rows: number;
  columns: number;
  mask: Uint8Array;
  /** Three bytes for each of the labels 1, 2, ... */
  colours: Uint8Array;
  /** Pixels of each label. Where a mask shrinks, the rarest label is the one that shows. */
  counts: readonly number[];
}

export interface HeatLayer {
  rows: number;
  columns: number;
  values: Float32Array;
  /** The values of the first and the last colour. */
  low: number;
  high: number;
  /** 256 of three bytes. */
  colours: Uint8Array;
}

/** A picture at a place of the page, and what each output of a model marked on it. */
export interface PanelLayers {
  /** No larger than the panel; it is enlarged to whole pixels. */
  picture: Picture;
  x: number;
  y: number;
  width: number;
  height: number;
  /** The masks of one output may overlap. */
  marks: readonly { masks: readonly MaskLayer[]; heat: readonly HeatLayer[] }[];
}

export interface Page {
  width: number;
  height: number;
  /** Three bytes. */
  background: Uint8Array;
  panels: readonly PanelLayers[];
  /** Opacity of the tint of masks, 0 to 1. */
  opacity: number;
  /** Operations with their numbers, as native/picture/drawing.h lists them. */
  drawing: Float64Array;
  /** The coverage of the glyphs that the drawing names, one byte a pixel. */
  glyphs: Uint8Array;
}

/** The drawing lies beside the mask, or leaves parts of it out. */
export type PanelFault = "beside" | "left_out";

interface PictureAddon {
  composePage(page: Page): Uint8Array;
  checkPanel(
    rgb: Uint8Array,
    width: number,
    height: number,
    panel: PanelLayers,
  ): PanelFault | undefined;
  fillOutline(
    segments: Float32Array,
    left: number,
    top: number,
    width: number,
    height: number,
  ): Uint8Array<ArrayBuffer>;
  packPng(rgb: Uint8Array, width: number, height: number): Promise<Uint8Array>;
}

const addon = (): PictureAddon => loadAddon() as PictureAddon;

/** Equal pages give equal pixels. */
export function composePage(page: Page): Picture {
  return { width: page.width, height: page.height, rgb: addon().composePage(page) };
}

/**
 * Compares a panel of a composed page with its masks, by coordinates alone.
 * @returns undefined if what is drawn is what the masks say
 */
export function checkPanel(
  { width, height, rgb }: Picture,
  panel: PanelLayers,
): PanelFault | undefined {
  return addon().checkPanel(rgb, width, height, panel);
}

/**
 * The coverage, 0 to 255, of each pixel of a box.
 * @param segments x0, y0, x1, y1 of each line of closed outlines
 */
export function fillOutline(
  segments: Float32Array,
  { left, top, width, height }: { left: number; top: number; width: number; height: number },
): Uint8Array<ArrayBuffer> {
  return addon().fillOutline(segments, left, top, width, height);
}

/**
 * PNG, 8 bits, RGB; equal pixels give equal bytes. Without a filter the two panels of a picture are
 * alike, which compresses better than any filter. Another thread works at it.
 * @param picture its pixels have to stay as they are until the promise settles
 */
export function packPng({ width, height, rgb }: Picture): Promise<Uint8Array> {
  return addon().packPng(rgb, width, height);
}
