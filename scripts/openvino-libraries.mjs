/** OpenVINO's runtime for C on the CPU, in files of its wheel on PyPI. */
import { createHash } from "node:crypto";

export const VERSION = "2026.4.1";

/** The wheel for one Python, whose libraries are those for all; pip is asked for that one. */
export const WHEEL = {
  python: "3.11",
  abi: "cp311",
  platform: "manylinux_2_28_x86_64",
  sha256: "2d22b1da03f7caf74df30e9f6417d0ab2f637e4a38e08e1dcd294d2c37407aaf",
};

/** What pip is told to fetch that wheel into a folder. */
export const downloadInto = (folder) => [
  "-m",
  "pip",
  "download",
  "--no-deps",
  "--only-binary=:all:",
  `--python-version=${WHEEL.python}`,
  "--implementation=cp",
  `--abi=${WHEEL.abi}`,
  `--platform=${WHEEL.platform}`,
  `--dest=${folder}`,
  `openvino==${VERSION}`,
];

/** What the native side opens (kLibraries in native/runtime/openvino.cc), and what that opens. */
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

/** What is wrong with the bytes of a wheel; undefined if it is the pinned one. */
export function faultOf(wheel) {
  const found = createHash("sha256").update(wheel).digest("hex");
  return found === WHEEL.sha256 ? undefined : `has sha256 ${found}, expected ${WHEEL.sha256}`;
}
