/**
 * Where the tiles of a whole slide lie: in the total pixel matrix and on the slide (PS3.3
 * C.8.12.14, C.8.12.6.1, C.7.6.17.3). Positions that the source does not give and that do not
 * follow from it are never made up.
 */
import type { Attributes, Image } from "../../images/image.js";

/** Plane Position (Slide) of a frame. */
export interface TilePosition {
  /** Position of the tile's upper left pixel in the total pixel matrix, from 1. */
  row: number;
  column: number;
  /** Offsets in the Slide Coordinate System: x and y in mm, z in micrometres. */
  x: number;
  y: number;
  z: number;
}

export interface SlideGeometry {
  /** The total pixel matrix. */
  rows: number;
  columns: number;
  origin: { x: number; y: number; z: number | undefined };
  /** ImageOrientationSlide: direction cosines along a row, then along a column. */
  orientation: readonly number[];
  /** Millimetres between pixel centres. */
  spacing: { row: number; column: number };
  /** In the order of the image's frames. */
  tiles: readonly TilePosition[];
}

/**
 * The geometry of a whole slide image (PS3.3 A.32.8); undefined if it is none, or does not say all
 * of it.
 */
export function slideGeometry(image: Image, attributes: Attributes): SlideGeometry | undefined {
  const orientation = attributes.numbers("ImageOrientationSlide");
  const [origin] = attributes.sequence("TotalPixelMatrixOriginSequence") ?? [];
  const rows = attributes.number("TotalPixelMatrixRows");
  const columns = attributes.number("TotalPixelMatrixColumns");
  const x = origin?.number("XOffsetInSlideCoordinateSystem");
  const y = origin?.number("YOffsetInSlideCoordinateSystem");
  if (orientation?.length !== 6 || rows === undefined || columns === undefined) return undefined;
  if (x === undefined || y === undefined) return undefined;
  const spacing = image.spacing(0);
  if (spacing?.source !== "PixelSpacing") return undefined;
  const z = origin?.number("ZOffsetInSlideCoordinateSystem");
  const { row, column } = spacing;
  const matrix = { rows, columns, origin: { x, y, z }, orientation, spacing: { row, column } };
  const isFull = attributes.string("DimensionOrganizationType") === "TILED_FULL";
  const tiles =
    givenTiles(image, attributes) ?? (isFull ? fullTiles(image, attributes, matrix) : undefined);
  return tiles === undefined ? undefined : { ...matrix, tiles };
}

/** The positions that the functional groups give; undefined if a frame has none. */
function givenTiles({ frameCount }: Image, attributes: Attributes): TilePosition[] | undefined {
  const perFrame = attributes.sequence("PerFrameFunctionalGroupsSequence") ?? [];
  const shared = attributes.sequence("SharedFunctionalGroupsSequence")?.[0];
  const tiles: TilePosition[] = [];
  for (let frame = 0; frame < frameCount; frame++) {
    const group = [perFrame[frame], shared]
      .map((groups) => groups?.sequence("PlanePositionSlideSequence")?.[0])
      .find((found) => found !== undefined);
    const [row, column, x, y, z] = [
      group?.number("RowPositionInTotalImagePixelMatrix"),
      group?.number("ColumnPositionInTotalImagePixelMatrix"),
      group?.number("XOffsetInSlideCoordinateSystem"),
      group?.number("YOffsetInSlideCoordinateSystem"),
      group?.number("ZOffsetInSlideCoordinateSystem"),
    ];
    if (row === undefined || column === undefined || x === undefined || y === undefined)
      return undefined;
    tiles.push({ row, column, x, y, z: z ?? 0 });
  }
  return tiles;
}

/**
 * The positions that TILED_FULL implies (PS3.3 C.7.6.17.3): tiles follow each other along the rows
 * of the total pixel matrix, then along its columns; then the same tiles come again for each
 * optical path. Undefined if the frames are not as many, or if there are several focal planes,
 * whose distance has no place here.
 */
function fullTiles(
  image: Image,
  attributes: Attributes,
  matrix: Omit<SlideGeometry, "tiles">,
): TilePosition[] | undefined {
  const { frameCount, format } = image;
  const across = Math.ceil(matrix.columns / format.columns);
  const down = Math.ceil(matrix.rows / format.rows);
  const paths =
    attributes.number("NumberOfOpticalPaths") ??
    attributes.sequence("OpticalPathSequence")?.length ??
    1;
  const offset = attributes.number("ConcatenationFrameOffsetNumber");
  const isPart = attributes.has("ConcatenationUID") || offset !== undefined;
  const frames = across * down * paths;
  const fits = isPart
    ? offset !== undefined && offset + frameCount <= frames
    : frameCount === frames;
  if ((attributes.number("TotalPixelMatrixFocalPlanes") ?? 1) !== 1 || !fits) return undefined;
  return Array.from({ length: frameCount }, (_, frame) => {
    const tile = ((offset ?? 0) + frame) % (across * down);
    const column = (tile % across) * format.columns;
    const row = Math.floor(tile / across) * format.rows;
    return tileAt(matrix, row, column);
  });
}

/** @param row and column from 0 */
function tileAt(
  { origin, orientation, spacing }: Omit<SlideGeometry, "tiles">,
  row: number,
  column: number,
): TilePosition {
  const [a = 0, b = 0, c = 0, d = 0, e = 0, f = 0] = orientation;
  const [along, down] = [column * spacing.column, row * spacing.row];
  return {
    row: row + 1,
    column: column + 1,
    x: origin.x + a * along + d * down,
    y: origin.y + b * along + e * down,
    z: (origin.z ?? 0) + (c * along + f * down) * 1000,
  };
}
