/** OpenVINO's runtime for C on the CPU, in files of its wheel on PyPI. */
import { Buffer } from "node:buffer";
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { inflateRawSync } from "node:zlib";

export const VERSION = "2026.4.1";

/** The wheel for one Python, whose libraries are those for all; pip is asked for that one. */
export const WHEEL = {
  python: "3.11",
  abi: "cp311",
  platform: "manylinux_2_28_x86_64",
  sha256: "2d22b1da03f7caf74df30e9f6417d0ab2f637e4a38e08e1dcd294d2c37407aaf",
};

/** What the native side opens (kLibrary in native/runtime/openvino.cc), and what that opens. */
const LIBRARIES = [
  "libopenvino_c.so.2641",
  "libopenvino.so.2641",
  "libopenvino_onnx_frontend.so.2641",
  "libopenvino_intel_cpu_plugin.so",
  "libtbb.so.12",
  "libtbbbind_2_5.so.3",
  "libtbbmalloc.so.2",
  "libhwloc.so.15",
].map((name) => `openvino/libs/${name}`);

/** Its licence, and its three files of notices. */
const NOTICES = [
  "LICENSE",
  "licensing/onednn_third-party-programs.txt",
  "licensing/onetbb_third-party-programs.txt",
  "licensing/runtime-third-party-programs.txt",
].map((name) => `openvino-${VERSION}.dist-info/licenses/${name}`);

export const FILES = [...LIBRARIES, ...NOTICES];

/** What is wrong with a wheel; undefined if it is the pinned one. */
export function faultOf(wheel) {
  const found = createHash("sha256").update(readFileSync(wheel)).digest("hex");
  return found === WHEEL.sha256 ? undefined : `has sha256 ${found}, expected ${WHEEL.sha256}`;
}

/**
 * Files of a zip archive by their names (APPNOTE.TXT of PKWARE, 4.3: local headers, central
 * directory, end record), for one without ZIP64, whose hash is known.
 */
export function* filesOf(archive) {
  const end = archive.lastIndexOf(Buffer.from("PK\u0005\u0006"));
  const count = archive.readUInt16LE(end + 10);
  let at = archive.readUInt32LE(end + 16);
  for (let i = 0; i < count; i++) {
    const [nameLength, extraLength, commentLength] = [28, 30, 32].map((field) =>
      archive.readUInt16LE(at + field),
    );
    const name = archive.toString("utf8", at + 46, at + 46 + nameLength);
    const packed = archive.readUInt32LE(at + 20);
    const isDeflated = archive.readUInt16LE(at + 10) === 8;
    const local = archive.readUInt32LE(at + 42);
    const from = local + 30 + archive.readUInt16LE(local + 26) + archive.readUInt16LE(local + 28);
    const content = archive.subarray(from, from + packed);
    yield { name, read: () => (isDeflated ? inflateRawSync(content) : content) };
    at += 46 + nameLength + extraLength + commentLength;
  }
}
