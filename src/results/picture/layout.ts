/** Geometry of the picture for people: panel sizes, scale bars. */
import type { Spacing } from "../../images/image.js";

/** The room that a panel may take, in pixels. */
export interface PanelRoom {
  width: number;
  height: number;
}

const ALONE: PanelRoom = { width: 900, height: 900 };

export interface PanelSize {
  width: number;
  height: number;
  /**
   * The size at which the display picture is best rendered; from there it is enlarged by whole
   * pixels, never interpolated.
   */
  render: { width: number; height: number };
}

/**
 * Size of one panel in pixels. Large images shrink to the room there is, small ones grow by a whole
 * number; pixels that are not square are shown in their true proportions.
 * @param pixelAspect height of a source pixel divided by its width
 */
export function panelSize(
  rows: number,
  columns: number,
  pixelAspect: number,
  room = ALONE,
): PanelSize {
  // Shown larger along the side on which pixels are longer, so that no source pixel is lost to the
  // correction.
  const wide = columns / Math.min(pixelAspect, 1);
  const high = rows * Math.max(pixelAspect, 1);
  const fitting = Math.min(room.width / wide, room.height / high);
  const factor = fitting < 1 ? fitting : Math.floor(fitting);
  const width = Math.max(1, Math.round(wide * factor));
  const height = Math.max(1, Math.round(high * factor));
  return {
    width,
    height,
    render: { width: Math.min(width, columns), height: Math.min(height, rows) },
  };
}

/**
 * Room of all panels of a montage together: it fits a screen, and so a viewer shows it unshrunk.
 */
export const SHEET: PanelRoom = { width: 1440, height: 1080 };

export interface PanelGrid {
  columns: number;
  panel: PanelSize;
}

/**
 * How many panels of one size stand in a row, so that they are as large as they can be; among
 * equals, the grid that leaves the fewest cells empty, then the widest.
 */
export function gridOf(
  count: number,
  rows: number,
  columns: number,
  pixelAspect: number,
): PanelGrid {
  const grids = Array.from({ length: Math.max(count, 1) }, (_, i) => {
    const [across, down] = [i + 1, Math.ceil(count / (i + 1))];
    const room = {
      width: Math.floor(SHEET.width / across),
      height: Math.floor(SHEET.height / down),
    };
    const panel = panelSize(rows, columns, pixelAspect, room);
    return {
      columns: across,
      panel,
      area: panel.width * panel.height,
      empty: across * down - count,
    };
  });
  return grids.reduce((best, grid) =>
    grid.area > best.area || (grid.area === best.area && grid.empty <= best.empty) ? grid : best,
  );
}

interface ScaleBar {
  /** Panel pixels. */
  length: number;
  text: string;
}

/**
 * The longest bar of 1, 2 or 5 times a power of ten millimetres within a third of the room;
 * undefined if the image has no spacing, or one too small for a bar.
 * @param columns columns of the source, shown over `width` panel pixels
 * @param room panel pixels; a narrow panel may have a bar that is longer than it
 */
export function scaleBar(
  spacing: Spacing | undefined,
  columns: number,
  width: number,
  room = width,
): ScaleBar | undefined {
  if (spacing === undefined || !(spacing.column > 0)) return undefined;
  const pixelsPerMm = width / (columns * spacing.column);
  const longest = room / 3 / pixelsPerMm;
  const power = 10 ** Math.floor(Math.log10(longest));
  const mm = [5, 2, 1].map((n) => n * power).find((n) => n <= longest);
  if (mm === undefined || mm * pixelsPerMm < 8) return undefined;
  return { length: mm * pixelsPerMm, text: lengthText(mm) };
}

function lengthText(mm: number): string {
  const plain = (value: number): string => String(Number(value.toPrecision(6)));
  if (mm >= 10) return `${plain(mm / 10)} cm`;
  return mm >= 0.1 ? `${plain(mm)} mm` : `${plain(mm * 1000)} µm`;
}
