/**
 * What is fed, against what the graph takes: all of it is refused here, before anything is
 * allocated or runs.
 */
import { DATA_TYPES, lengthOf, type DataType, type NumberData } from "./data-types.js";
import { textOf, unlike } from "./errors.js";
import type { Feed, Feeds, TensorInfo } from "./types.js";

/** The data and the shape of each input, in the graph's order, as the addon takes them. */
export interface CheckedFeeds {
  data: (NumberData | readonly string[])[];
  shapes: (readonly number[])[];
}

const shapeText = (shape: readonly unknown[]): string => `[${shape.map(textOf).join(",")}]`;
const namesOf = (infos: readonly TensorInfo[]): string =>
  infos.map(({ name }) => `"${name}"`).join(", ");

/**
 * @param anyShape the shapes are not those that the graph says
 * @throws EngineError bad_request
 */
export function checkedFeeds(
  inputs: readonly TensorInfo[],
  feeds: Feeds,
  anyShape = false,
): CheckedFeeds {
  checkObject("The feeds", feeds, `an object with ${namesOf(inputs)}`);
  const checked: CheckedFeeds = { data: [], shapes: [] };
  for (const input of inputs) {
    // An input may be called "constructor", which every object has
    const feed = Object.hasOwn(feeds, input.name) ? feeds[input.name] : undefined;
    if (feed === undefined)
      throw unlike("The feeds", `the input "${input.name}"`, foundNames(feeds));
    checkObject(`The feed "${input.name}"`, feed);
    checkShape(input, feed, anyShape);
    checked.data.push(checkedData(input, feed));
    checked.shapes.push(feed.shape);
  }
  const names = Object.keys(feeds);
  if (names.length > inputs.length) {
    const unknown = names.find((name) => !inputs.some((input) => input.name === name));
    throw unlike("The feeds", `inputs of the graph (${namesOf(inputs)})`, `"${unknown}"`);
  }
  return checked;
}

/**
 * @throws EngineError bad_request for what has no members, over which JavaScript would only trip
 */
export function checkObject(what: string, value: unknown, expected = "an object"): void {
  if (typeof value !== "object" || value === null) throw unlike(what, expected, kindOf(value));
}

export const isList = (value: unknown): boolean => Array.isArray(value);

const foundNames = (feeds: Feeds): string =>
  Object.keys(feeds)
    .map((name) => `"${name}"`)
    .join(", ") || "no feeds";

function checkShape(input: TensorInfo, { shape }: Feed, anyShape: boolean): void {
  const what = `The shape of "${input.name}"`;
  if (!Array.isArray(shape)) throw unlike(what, "a list of whole numbers", kindOf(shape));
  const sides: readonly unknown[] = shape;
  for (const side of sides)
    if (!Number.isSafeInteger(side) || (side as number) < 0)
      throw unlike(what, "whole numbers from 0", shapeText(sides));
  const fits =
    anyShape ||
    (sides.length === input.shape.length &&
      input.shape.every((side, at) => side === -1 || side === sides[at]));
  if (!fits) throw unlike(what, declared(input), shapeText(sides));
}

/** "[batch,3,224,224]", with "?" for a side without a name that is open. */
const declared = ({ shape, names }: TensorInfo): string =>
  shapeText(shape.map((side, at) => (side === -1 ? names[at] || "?" : side)));

function checkedData(input: TensorInfo, feed: Feed): NumberData | readonly string[] {
  const { name, dtype } = input;
  if (feed.dtype !== undefined && feed.dtype !== dtype)
    throw unlike(`The type of "${name}"`, dtype, feed.dtype);
  const elements = feed.shape.reduce((product, side) => product * side, 1);
  if (elements > Number.MAX_SAFE_INTEGER)
    throw unlike(`The shape of "${name}"`, "fewer than 2^53 elements", shapeText(feed.shape));
  const length = lengthOf(dtype, elements);
  const data = dtype === "string" ? textsOf(name, feed.data) : numbersOf(name, dtype, feed.data);
  if (data.length !== length)
    throw unlike(
      `The data of "${name}"`,
      `${length} elements for ${dtype} ${shapeText(feed.shape)}`,
      `${data.length}`,
    );
  return data;
}

function textsOf(name: string, data: unknown): readonly string[] {
  if (!Array.isArray(data)) throw unlike(`The data of "${name}"`, "string[]", kindOf(data));
  const other: unknown = data.find((text) => typeof text !== "string");
  if (other !== undefined || data.includes(undefined))
    throw unlike(`The data of "${name}"`, "texts alone", kindOf(other));
  return data as readonly string[];
}

function numbersOf(name: string, dtype: DataType, data: unknown): NumberData {
  const arrays: readonly string[] = DATA_TYPES[dtype].arrays;
  const kind = kindOf(data);
  if (!ArrayBuffer.isView(data) || !arrays.includes(kind))
    throw unlike(`The data of "${name}"`, `${arrays.join(" or ")} for ${dtype}`, kind);
  const refusal = refusalOf(data.buffer);
  if (refusal !== undefined) throw unlike(`The memory of "${name}"`, ...refusal);
  // Node-API knows neither; their bits are what the tensor has
  if (kind === "Float16Array")
    return new Uint16Array(data.buffer as ArrayBuffer, data.byteOffset, data.byteLength / 2);
  return data as NumberData;
}

/** What TypeScript's library of 2023 does not know yet. */
interface Buffer2024 {
  readonly detached?: boolean;
  readonly resizable?: boolean;
}

/** Why a run may not read a buffer: what is expected, and what it is. */
export function refusalOf(buffer: ArrayBufferLike): [string, string] | undefined {
  if (!(buffer instanceof ArrayBuffer)) {
    if (Object.prototype.toString.call(buffer) === "[object SharedArrayBuffer]")
      return ["an ArrayBuffer of this thread", "a SharedArrayBuffer"];
    return undefined;
  }
  const { detached, resizable } = buffer as Buffer2024;
  if (detached === true) return ["memory that is here", "a detached buffer"];
  if (resizable === true) return ["a buffer of fixed length", "a resizable one"];
  return undefined;
}

/** Whether somebody has transferred what a run was reading. */
export const wasTransferred = (data: readonly unknown[]): boolean =>
  data.some((each) => ArrayBuffer.isView(each) && (each.buffer as Buffer2024).detached === true);

/** The name of an array's type, of buffers of Node.js too; else of what it is. */
export function kindOf(value: unknown): string {
  if (value === null) return "null";
  if (Array.isArray(value)) return "a list";
  if (ArrayBuffer.isView(value))
    return Object.prototype.toString.call(value).slice("[object ".length, -1);
  return typeof value === "object" ? "an object" : typeof value;
}
