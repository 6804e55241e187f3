import t from "tap";
import { decodeNpy, encodeNpy } from "../../src/engine/npy.js";

/** What numpy.save writes for numpy.array([[1.5, -2]], dtype="<f4"): header padded to 128 bytes. */
function numpyFile(dictionary: string, data: Uint8Array, major = 1): Uint8Array {
  const start = major === 1 ? 10 : 12;
  const header = dictionary.padEnd(127 - start) + "\n";
  const bytes = Buffer.alloc(128 + data.length);
  bytes.write("\x93NUMPY", 0, "latin1");
  bytes[6] = major;
  if (major === 1) bytes.writeUInt16LE(header.length, 8);
  else bytes.writeUInt32LE(header.length, 8);
  bytes.write(header, start, "latin1");
  bytes.set(data, 128);
  return bytes;
}

const floats = new Uint8Array(Float32Array.of(1.5, -2).buffer);
const dictionary = "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2), }";

t.test("writes the bytes that numpy writes", (t) => {
  const bytes = encodeNpy({ dtype: "float32", shape: [1, 2], data: floats });
  t.strictSame(Buffer.from(bytes), Buffer.from(numpyFile(dictionary, floats)));
  t.end();
});

t.test("reads every version and every type back", (t) => {
  for (const major of [1, 2, 3])
    t.strictSame(decodeNpy(numpyFile(dictionary, floats, major)).shape, [1, 2], `version ${major}`);
  const types = [
    ["float16", 2],
    ["float64", 8],
    ["uint8", 1],
    ["int8", 1],
    ["uint16", 2],
    ["int16", 2],
    ["int32", 4],
    ["int64", 8],
    ["uint32", 4],
    ["bool", 1],
  ] as const;
  for (const [dtype, bytes] of types) {
    const tensor = {
      dtype,
      shape: [3],
      data: Uint8Array.from({ length: 3 * bytes }, (_, i) => i % 2),
    };
    const back = decodeNpy(encodeNpy(tensor));
    t.equal(back.dtype, dtype);
    t.strictSame(back.shape, [3]);
    t.strictSame([...back.data], [...tensor.data]);
  }
  const scalar = { dtype: "uint8", shape: [], data: Uint8Array.of(7) } as const;
  t.strictSame(decodeNpy(encodeNpy({ ...scalar, shape: [] })).shape, []);
  t.end();
});

t.test("refuses what it would misread", (t) => {
  const cases: [string, Uint8Array, RegExp][] = [
    ["another format", Buffer.from("not an array at all"), /another format/],
    ["big endian", numpyFile(dictionary.replace("<f4", ">f4"), floats), />f4/],
    ["Fortran order", numpyFile(dictionary.replace("False", "True"), floats), /Fortran/],
    ["objects", numpyFile(dictionary.replace("<f4", "|O"), floats), /\|O/],
    ["structured", numpyFile(dictionary.replace("'<f4'", "[('x', '<f4')]"), floats), /descr/],
    ["short data", numpyFile(dictionary, floats.subarray(0, 7)), /8 bytes.*found 7/],
    ["too much data", numpyFile(dictionary, Buffer.alloc(9)), /8 bytes.*found 9/],
    ["negative sides", numpyFile(dictionary.replace("(1, 2)", "(-1, -2)"), floats), /shape/],
    ["header past the end", numpyFile(dictionary, floats).subarray(0, 60), /header/],
  ];
  for (const [what, bytes, message] of cases)
    t.throws(() => decodeNpy(bytes), { code: "bad_request", message }, what);
  t.throws(() => encodeNpy({ dtype: "float32", shape: [3], data: floats }), { code: "internal" });
  t.end();
});
