/**
 * NumPy's .npy files: canaries and the tensors that `models try` shows. Written byte for byte as
 * numpy.save does, so that a developer's own tools read and make them (format: numpy.lib.format,
 * versions 1.0 to 3.0).
 */
import { ELEMENT_TYPES, type Tensor, type TensorType } from "../base/tensor.js";
import { errors, type RadserveError } from "../base/errors.js";

const MAGIC = [0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59];
const ALIGNMENT = 64;
const MAX_DIMENSIONS = 32;

/** Elements in a shape; 1 for a scalar. */
export function elementCount(shape: readonly number[]): number {
  return shape.reduce((product, side) => product * side, 1);
}

/**
 * A tensor as the bytes of a .npy file, version 1.0, C order, little endian.
 * Throws RadserveError `internal` where the data does not fill the shape.
 */
export function encodeNpy(tensor: Pick<Tensor, "dtype" | "shape" | "data">): Uint8Array {
  const expected = elementCount(tensor.shape) * ELEMENT_TYPES[tensor.dtype].bytes;
  if (tensor.data.byteLength !== expected)
    throw errors.internal(
      `Expected ${expected} bytes for a ${tensor.dtype} tensor of shape [${tensor.shape.join(", ")}], found ${tensor.data.byteLength}.`,
    );
  const shape =
    tensor.shape.length === 1 ? `(${tensor.shape.join("")},)` : `(${tensor.shape.join(", ")})`;
  const dictionary = `{'descr': '${ELEMENT_TYPES[tensor.dtype].numpy}', 'fortran_order': False, 'shape': ${shape}, }`;
  const unpadded = MAGIC.length + 4 + dictionary.length + 1;
  const header = dictionary + " ".repeat((ALIGNMENT - (unpadded % ALIGNMENT)) % ALIGNMENT) + "\n";
  const bytes = Buffer.alloc(MAGIC.length + 4 + header.length + expected);
  bytes.set(MAGIC);
  bytes.writeUInt8(1, 6);
  bytes.writeUInt16LE(header.length, 8);
  bytes.write(header, 10, "latin1");
  bytes.set(tensor.data, 10 + header.length);
  return bytes;
}

/**
 * The tensor of a .npy file, without a name. Refused with `bad_request`: other formats, big endian,
 * Fortran order, structured types, and data that does not fill the shape exactly.
 */
export function decodeNpy(bytes: Uint8Array): Omit<Tensor, "name"> {
  const { header, offset } = readHeader(bytes);
  const dtype = dtypeOf(match(header, /'descr'\s*:\s*'([^']*)'/, "descr"));
  if (match(header, /'fortran_order'\s*:\s*(True|False)/, "fortran_order") === "True")
    throw malformed("an array in C order", "Fortran order", "Save numpy.ascontiguousarray(array)");
  const shape = shapeOf(match(header, /'shape'\s*:\s*\(([^)]*)\)/, "shape"));
  const expected = elementCount(shape) * ELEMENT_TYPES[dtype].bytes;
  const found = bytes.byteLength - offset;
  if (found !== expected)
    throw malformed(
      `${expected} bytes of data for shape [${shape.join(", ")}]`,
      `${found}`,
      "Save it again",
    );
  return { dtype, shape, data: bytes.slice(offset) };
}

function readHeader(bytes: Uint8Array): { header: string; offset: number } {
  if (bytes.byteLength < 12 || MAGIC.some((byte, i) => bytes[i] !== byte))
    throw malformed("a .npy file", "another format", "Save the array with numpy.save");
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const major = view.getUint8(6);
  if (major < 1 || major > 3)
    throw malformed("format version 1 to 3", `${major}`, "Save it with numpy.save");
  const [start, length] =
    major === 1 ? [10, view.getUint16(8, true)] : [12, view.getUint32(8, true)];
  const offset = start + length;
  if (offset > bytes.byteLength)
    throw malformed(`${length} bytes of header`, "the end", "Save it again");
  return { header: Buffer.from(bytes.subarray(start, offset)).toString("latin1"), offset };
}

function match(header: string, pattern: RegExp, key: string): string {
  const found = pattern.exec(header)?.[1];
  if (found === undefined)
    throw malformed(
      `the key '${key}' in the header`,
      "none that can be read",
      "Save a plain numeric array",
    );
  return found;
}

function dtypeOf(descriptor: string): TensorType {
  const entry = Object.entries(ELEMENT_TYPES).find(([, { numpy }]) => numpy === descriptor);
  if (entry === undefined)
    throw malformed(
      `one of the types ${Object.values(ELEMENT_TYPES)
        .map(({ numpy }) => numpy)
        .join(", ")}`,
      descriptor,
      "Convert the array with astype",
    );
  return entry[0] as TensorType;
}

function shapeOf(text: string): number[] {
  const sides = text
    .split(",")
    .map((side) => side.trim())
    .filter((side) => side !== "");
  if (sides.length > MAX_DIMENSIONS || sides.some((side) => !/^\d{1,12}$/.test(side)))
    throw malformed(
      "a shape of whole numbers",
      `(${text.slice(0, 60)})`,
      "Save a plain numeric array",
    );
  return sides.map(Number);
}

function malformed(expected: string, found: string, remedy: string): RadserveError {
  return errors.bad_request(
    `Not a usable .npy file: expected ${expected}, found ${found}. ${remedy}.`,
  );
}
