/** Columns for people. */

/** Rows as lines, columns two spaces apart; `right` names the columns (from 0) that are numbers. */
export function table(
  given: readonly (readonly string[])[],
  right: readonly number[] = [],
): string {
  // A file's name may have a line feed, and must not look like a row of its own
  const rows = given.map((row) => row.map((cell) => cell.replaceAll("\n", "\\n")));
  const widths = (rows[0] ?? []).map((_, column) =>
    rows.reduce((most, row) => Math.max(most, (row[column] ?? "").length), 0),
  );
  const lines = rows.map((row) =>
    row
      .map((cell, column) => {
        const width = widths[column] ?? 0;
        return right.includes(column) ? cell.padStart(width) : cell.padEnd(width);
      })
      .join("  ")
      .trimEnd(),
  );
  return lines.join("\n");
}

/** 12345 as "12,345". */
export const count = (value: number): string => value.toLocaleString("en-US");

/** 1 as "1 image", 12345 as "12,345 images". */
export const counted = (n: number, one: string): string =>
  `${count(n)} ${one}${n === 1 ? "" : "s"}`;

/** The two largest units of a time: "3 h 20 min", "2 min 5 s", "8 s". */
export function duration(milliseconds: number): string {
  const seconds = Math.max(0, Math.round(milliseconds / 1000));
  const parts: [number, string][] = [
    [Math.floor(seconds / 86_400), "d"],
    [Math.floor(seconds / 3600) % 24, "h"],
    [Math.floor(seconds / 60) % 60, "min"],
    [seconds % 60, "s"],
  ];
  const first = parts.findIndex(([value]) => value > 0);
  if (first === -1) return "0 s";
  return parts
    .slice(first, first + 2)
    .filter(([value]) => value > 0)
    .map(([value, unit]) => `${value} ${unit}`)
    .join(" ");
}
