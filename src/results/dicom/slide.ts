/**
 * Where the tiles of a whole slide lie: in the total pixel matrix and on the slide (PS3.3
 * C.8.12.14, C.8.12.6.1, C.7.6.17.3). Positions that the source does not give and that do not
 * follow from it are never made up.
 */
import { groupsBy } from "../../base/groups.js";
import type { Phase } from "../../images/dicom/shared-places.js";
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

/**
 * The tiles by their optical path (PS3.3 C.8.12.5), where several show the same place; undefined
 * where no two do, or the image is no slide. A word instead where the paths do not tell them apart.
 */
export function opticalPaths(
  image: Image,
  attributes: Attributes,
): readonly Phase[] | string | undefined {
  const geometry = slideGeometry(image, attributes);
  if (geometry === undefined || areApart(geometry.tiles)) return undefined;
  const pathOf = opticalPathsOf(image, attributes, geometry);
  const paths = groupsBy(geometry.tiles.keys(), pathOf);
  const isParted = [...paths].every(
    ([path, frames]) =>
      path !== undefined && areApart(frames.flatMap((frame) => geometry.tiles[frame] ?? [])),
  );
  if (!isParted)
    return "several of its tiles show the same place, and OpticalPathIdentifier does not tell them apart";
  return [...paths].map(([path, frames]) => ({ name: `OpticalPathIdentifier ${path}`, frames }));
}

const areApart = (tiles: readonly TilePosition[]): boolean =>
  new Set(tiles.map(({ row, column, z }) => `${row} ${column} ${z}`)).size === tiles.length;

/** OpticalPathIdentifier of frames: TILED_FULL has all tiles of a path one after the other. */
function opticalPathsOf(
  image: Image,
  attributes: Attributes,
  matrix: Pick<SlideGeometry, "rows" | "columns">,
): (frame: number) => string | undefined {
  const itemOf = functionalGroup(attributes, "OpticalPathIdentificationSequence");
  const described = attributes.sequence("OpticalPathSequence") ?? [];
  const isFull = attributes.string("DimensionOrganizationType") === "TILED_FULL";
  const { across, down } = tilesOf(matrix, image);
  const offset = attributes.number("ConcatenationFrameOffsetNumber") ?? 0;
  return (frame) => {
    const item = itemOf(frame);
    if (item !== undefined) return item.string("OpticalPathIdentifier");
    if (!isFull) return undefined;
    const path = Math.floor((offset + frame) / (across * down));
    return described[path]?.string("OpticalPathIdentifier") ?? String(path + 1);
  };
}

/** The item of a functional group that a frame has, or that all frames share. */
function functionalGroup(
  attributes: Attributes,
  keyword: string,
): (frame: number) => Attributes | undefined {
  const perFrame = attributes.sequence("PerFrameFunctionalGroupsSequence") ?? [];
  const shared = attributes.sequence("SharedFunctionalGroupsSequence")?.[0];
  return (frame) => perFrame[frame]?.sequence(keyword)?.[0] ?? shared?.sequence(keyword)?.[0];
}

/** The positions that the functional groups give; undefined if a frame has none. */
function givenTiles({ frameCount }: Image, attributes: Attributes): TilePosition[] | undefined {
  const itemOf = functionalGroup(attributes, "PlanePositionSlideSequence");
  const tiles: TilePosition[] = [];
  for (let frame = 0; frame < frameCount; frame++) {
    const group = itemOf(frame);
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
  const { across, down } = tilesOf(matrix, image);
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

/** How many tiles the total pixel matrix has along its rows and its columns. */
const tilesOf = (
  { rows, columns }: Pick<SlideGeometry, "rows" | "columns">,
  { format }: Image,
) => ({
  across: Math.ceil(columns / format.columns),
  down: Math.ceil(rows / format.rows),
});

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
