/** Pictures to measure with, the same ones in every run. */
import { random, type Raw } from "../../test/support/dicom.js";

/** Sum of a few uniform numbers: near enough to a normal distribution of that deviation. */
function noise(next: () => number, deviation: number): number {
  return (next() + next() + next() + next() - 2) * deviation * Math.sqrt(3);
}

/** Like a chest radiograph: broad shadows, some edges, noise of some 12 units in 4096. */
export function radiograph(rows: number, columns: number): Raw {
  const next = random(rows * 65537 + columns);
  const full = 4095;
  const words = new Uint16Array(rows * columns);
  for (let y = 0, i = 0; y < rows; y++)
    for (let x = 0; x < columns; x++, i++) {
      const u = (x / columns) * 2 - 1;
      const v = (y / rows) * 2 - 1;
      const body = Math.exp(-(u * u * 1.2 + v * v * 0.6));
      const lungs = 0.45 * Math.exp(-(((Math.abs(u) - 0.4) / 0.22) ** 2 + ((v + 0.1) / 0.55) ** 2));
      const ribs = 0.04 * Math.sin(v * 40 + Math.abs(u) * 6) * lungs;
      const outside = Math.abs(u) > 0.93 ? 0 : 1;
      const level = outside * (0.15 + 0.75 * (body - lungs) + ribs) * full + noise(next, 12);
      words[i] = Math.min(full, Math.max(0, Math.round(level)));
    }
  return {
    rows,
    columns,
    samples: 1,
    bitsAllocated: 16,
    bitsStored: 12,
    data: new Uint8Array(words.buffer),
  };
}

/** Like a photograph: three channels that vary together. */
export function photograph(rows: number, columns: number): Raw {
  const next = random(rows * 65537 + columns + 1);
  const data = new Uint8Array(rows * columns * 3);
  for (let i = 0; i < rows * columns; i++) {
    const x = i % columns;
    const y = Math.floor(i / columns);
    const level = 128 + 80 * Math.sin(x / 37) * Math.cos(y / 53) + noise(next, 5);
    for (let c = 0; c < 3; c++)
      data[i * 3 + c] = Math.min(255, Math.max(0, Math.round(level + c * 12 + noise(next, 2))));
  }
  return { rows, columns, samples: 3, bitsAllocated: 8, bitsStored: 8, data };
}
