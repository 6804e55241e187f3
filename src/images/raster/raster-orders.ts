/** Questions to the decoder process about a PNG, JPEG or TIFF, and its answers. */

/**
 * 134 megapixels, the same as for DICOM frames: more than any radiograph, less than what exhausts a
 * server.
 */
export const PIXEL_LIMIT = 1 << 27;

export interface Layout {
  colourspace: "b-w" | "srgb" | "grey16" | "rgb16";
  samples: 1 | 3;
  bits: 8 | 16;
}

export type RasterOrder =
  | { do: "metadata" }
  | {
      do: "pixels";
      /** From 0. */
      page: number;
      layout: Layout;
      /** Width of the upright picture. If the size differs, an error comes and no pixels. */
      width: number;
      height: number;
      /** Whether it is opaque is to be looked at. */
      hasAlpha: boolean;
    };

export interface RasterMetadata {
  format: string;
  space: string;
  depth: string;
  hasAlpha: boolean;
  orientation?: number | undefined;
  pages?: number | undefined;
  /** Width of the upright picture. */
  width: number;
  height: number;
}

export interface PixelsSaid {
  width: number;
  height: number;
  channels: number;
  /** True if there is no alpha, or every pixel's is full. */
  opaque: boolean;
  /** False where a pixel's index is beyond the palette. */
  inPalette: boolean;
}
