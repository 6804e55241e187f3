/**
 * The numbers that a model is given from DICOM attributes, and what it means that one is absent.
 */
import { errors } from "../base/errors.js";
import type { Attributes, Image, TransformStep, Warning } from "../images/image.js";
import {
  attributeInputs,
  isWholeType,
  type AttributeInput,
  type AttributeValue,
  type Manifest,
} from "../manifest/manifest.js";
import { ageIn, dataSets, holders, snakeCase, TECHNICAL, type Reason } from "./attribute-values.js";

/** The numbers that one attribute of an image becomes. */
type Encoded =
  | { from: "file" | "default"; numbers: number[] }
  /**
   * The image is refused: nothing can be encoded, or the files of a series say different things.
   */
  | { from: "nothing"; found: string };

/**
 * For each input of attributes, in the manifest's order, the numbers that its tensor holds.
 * @throws RadserveError no_model_accepts if the image is refused for an attribute, as
 * `attributeReasons` says
 */
export function attributeNumbers(manifest: Pick<Manifest, "inputs">, image: Image): number[][] {
  const [reason] = attributeReasons(manifest, image);
  if (reason !== undefined) throw errors.no_model_accepts(reason.message);
  return attributeInputs(manifest).map(({ values, dtype }) =>
    values.flatMap((value) => {
      const encoded = encode(value, dtype, image);
      return "numbers" in encoded ? encoded.numbers : [];
    }),
  );
}

export function attributeReasons(manifest: Pick<Manifest, "inputs">, image: Image): Reason[] {
  return valuesOf(manifest).flatMap(({ value, dtype }) => {
    const encoded = encode(value, dtype, image);
    if ("numbers" in encoded) return [];
    const message = `Expected ${wanted(value, dtype)}, which the model is given as a number; found ${encoded.found}.`;
    return [{ code: `attribute_${snakeCase(value.tag)}`, message }];
  });
}

/** Warnings about numbers that stand for absent attributes. */
export function attributeCaveats(manifest: Pick<Manifest, "inputs">, image: Image): Warning[] {
  return valuesOf(manifest).flatMap(({ value, dtype }) => {
    const encoded = encode(value, dtype, image);
    if (encoded.from !== "default") return [];
    const message = `${value.tag} is not stated, or not as ${wanted(value, dtype)}; the model was given ${encoded.numbers.join(", ")} instead.`;
    return [{ code: "attribute_default", message }];
  });
}

/**
 * How the numbers came to be. Numbers that the file says of a person are not told, as nowhere else;
 * those of the technique are, and those of a default.
 */
export function attributeSteps(input: AttributeInput, image: Image): TransformStep[] {
  const steps = input.values.map((value): TransformStep => {
    const encoded = encode(value, input.dtype, image);
    const told =
      encoded.from === "default" || (encoded.from === "file" && TECHNICAL.has(value.tag));
    return {
      step: "attribute",
      ...value,
      if_absent: value.if_absent.kind,
      from: encoded.from,
      ...(told && "numbers" in encoded ? { numbers: encoded.numbers } : {}),
    };
  });
  const { tensor, dtype, layout } = input;
  return [...steps, { step: "tensor", name: tensor, dtype, layout }];
}

type NumberType = AttributeInput["dtype"];

const valuesOf = (
  manifest: Pick<Manifest, "inputs">,
): { value: AttributeValue; dtype: NumberType }[] =>
  attributeInputs(manifest).flatMap(({ values, dtype }) =>
    values.map((value) => ({ value, dtype })),
  );

/** The sides of a picture that is no DICOM image, and has no attributes. */
function sideOf(tag: string, image: Image): number | undefined {
  if (dataSets(image).length > 0) return undefined;
  const sides = new Map([
    ["Rows", image.format.rows],
    ["Columns", image.format.columns],
  ]);
  return sides.get(tag);
}

/** The greatest magnitude of each type; of int64, up to which a number in a file is exact. */
const MOST: Record<NumberType, number> = {
  float32: 3.4028234663852886e38,
  float16: 65_504,
  int32: 2 ** 31 - 1,
  int64: Number.MAX_SAFE_INTEGER,
};
/** What multiplying leaves of a whole number. */
const ROUNDING = 1e-6;

/** Whether a tensor of that type can hold a number: a fraction would be rounded off. */
const canHold = (dtype: NumberType, number: number): boolean =>
  Math.abs(number) <= MOST[dtype] &&
  (!isWholeType(dtype) || Math.abs(number - Math.round(number)) <= ROUNDING);

/** Every file and every frame of the image has to say the same. */
function encode(value: AttributeValue, dtype: NumberType, image: Image): Encoded {
  const side = sideOf(value.tag, image);
  const encodings =
    side !== undefined && value.encoding === "number"
      ? [[side * value.multiply + value.add]]
      : dataSets(image).flatMap((attributes) => {
          const held = holders(attributes, value.tag);
          return held.length === 0 ? [undefined] : held.map((holder) => encodedOf(value, holder));
        });
  const found = encodings.map((numbers) =>
    numbers?.every((number) => canHold(dtype, number)) === true ? numbers : undefined,
  );
  const different = new Set(found.map((numbers) => JSON.stringify(numbers ?? null)));
  const [first] = found;
  if (different.size > 1)
    return { from: "nothing", found: "different ones in the files or frames" };
  if (first !== undefined) return { from: "file", numbers: first };
  if (value.if_absent.kind === "default")
    return { from: "default", numbers: value.if_absent.numbers };
  return { from: "nothing", found: "none that can be read so" };
}

function encodedOf(value: AttributeValue, attributes: Attributes): number[] | undefined {
  if (value.encoding === "age") {
    const age = ageIn(value.unit, only(attributes.strings(value.tag), undefined));
    return age === undefined ? undefined : [age * value.multiply + value.add];
  }
  if (value.encoding === "number") {
    const number = only(attributes.numbers(value.tag), value.index);
    return number === undefined || !Number.isFinite(number)
      ? undefined
      : [number * value.multiply + value.add];
  }
  const text = only(attributes.strings(value.tag), value.index);
  const place = text === undefined ? -1 : value.values.indexOf(text);
  if (place < 0) return undefined;
  return value.encoding === "category"
    ? [place]
    : value.values.map((_, i) => (i === place ? 1 : 0));
}

/**
 * The value at the index, or the only one; several without an index are none, because nobody said
 * which.
 */
function only<T>(values: readonly T[] | undefined, index: number | undefined): T | undefined {
  if (index !== undefined) return values?.[index];
  return values?.length === 1 ? values[0] : undefined;
}

function wanted(value: AttributeValue, dtype: NumberType): string {
  const whole = isWholeType(dtype);
  switch (value.encoding) {
    case "age":
      return `${value.tag} as an age${whole ? ` of which a whole number is made` : ""}, for example 045Y`;
    case "number":
      return whole
        ? `${value.tag} as a number of which a whole number is made (${dtype})`
        : `${value.tag} as a number`;
    default:
      return `${value.tag} to be ${value.values.join(" or ")}`;
  }
}
