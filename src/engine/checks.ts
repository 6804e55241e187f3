/**
 * The arguments that the engine checks before it calls the addon. What a manifest must be by
 * itself, src/manifest/rules.ts has checked before, and whether it fits its graph,
 * src/models/graph.ts.
 */
import type { RenderOptions, InferOptions, Plane } from "./types.js";
import { type Tensor, ELEMENT_TYPES } from "../base/tensor.js";
import { errors } from "../base/errors.js";
import type { VolumeGeometry } from "../images/image.js";

/** The message is made only if it is needed, because every request passes these checks. */
function expect(good: boolean, message: () => string): void {
  if (!good) throw errors.bad_request(message());
}

/** Another thread could change shared memory while the engine reads it. */
function expectUnshared({ buffer }: Uint8Array, what: "plane" | "tensor"): void {
  expect(
    !(buffer instanceof SharedArrayBuffer),
    () => `Expected a ${what}'s data in memory that is not shared.`,
  );
}

const isSide = (value: number): boolean => Number.isInteger(value) && value >= 1 && value <= 65535;

/**
 * Rows and Columns are 16-bit (PS3.3 C.7.6.3.1). The addon checks how bits, samples and bytes go
 * together.
 */
export function checkPlane(plane: Plane): void {
  const { rows, columns } = plane.format;
  expect(
    isSide(rows) && isSide(columns),
    () => `Expected 1 to 65535 rows and columns, found ${rows} x ${columns}.`,
  );
  expect(plane.data instanceof Uint8Array, () => "Expected a plane's data as Uint8Array.");
  expectUnshared(plane.data, "plane");
  expect(
    Number.isFinite(plane.pixelAspect) && plane.pixelAspect > 0,
    () => `Expected a pixel aspect greater than 0, found ${plane.pixelAspect}.`,
  );
}

/**
 * The addon judges how far directions may be from unit length and right angles (series_invalid).
 */
export function checkGeometry(geometry: VolumeGeometry): void {
  const { origin, columnDirection, rowDirection, sliceDirection } = geometry;
  for (const vector of [origin, columnDirection, rowDirection, sliceDirection])
    expect(
      vector.every(Number.isFinite),
      () => "Expected finite numbers in the origin and the directions of a volume.",
    );
  for (const key of ["columnSpacing", "rowSpacing", "sliceSpacing"] as const)
    expect(
      Number.isFinite(geometry[key]) && geometry[key] > 0,
      () => `Expected a ${key} greater than 0 in the geometry of a volume, found ${geometry[key]}.`,
    );
}

export function checkRender(options: RenderOptions): void {
  const { width, height, voiIndex } = options;
  expect(
    isSide(width) && isSide(height),
    () => `Expected a picture of 1 to 65535 pixels a side, found ${width} x ${height}.`,
  );
  expect(
    Number.isInteger(voiIndex) && voiIndex >= 0,
    () => `Expected a VOI index from 0, found ${voiIndex}.`,
  );
}

export function checkInferOptions(options: InferOptions): void {
  const { timeoutMs, cancelId, subject = 0, centre, numbers = [] } = options;
  expect(
    Number.isInteger(subject) && subject >= 0 && subject < 2 ** 32,
    () => `Expected the number of a subject, found ${subject}.`,
  );
  expect(
    centre === undefined || (Number.isSafeInteger(centre) && centre >= 0 && centre < 2 ** 31),
    () => `Expected the number of the plane being processed, found ${centre}.`,
  );
  expect(
    numbers.flat().every(Number.isFinite),
    () => "Expected finite numbers in the inputs of attributes.",
  );
  if (timeoutMs !== undefined) {
    expect(
      !Number.isNaN(timeoutMs) && timeoutMs <= 2 ** 40,
      () => `Expected a time-out in milliseconds, found ${timeoutMs}.`,
    );
    if (timeoutMs <= 0) throw errors.deadline_exceeded("The work came after its deadline.");
  }
  if (cancelId !== undefined)
    expect(
      Number.isSafeInteger(cancelId) && cancelId > 0,
      () => `Expected a cancel id that is a whole number from 1, found ${cancelId}.`,
    );
}

export function checkFeeds(feeds: readonly Tensor[]): void {
  for (const { name, dtype, shape, data } of feeds) {
    expectUnshared(data, "tensor");
    const sides = shape.every((side) => Number.isSafeInteger(side) && side >= 0);
    const expected = shape.reduce((a, b) => a * b, 1) * ELEMENT_TYPES[dtype].bytes;
    expect(
      sides && data.byteLength === expected,
      () =>
        `Expected ${expected} bytes for the tensor "${name}" of ${dtype} [${shape.join(",")}], found ${data.byteLength}.`,
    );
  }
}
