/**
 * Pictures of every kind that Radserve makes, from phantoms and masks that are made here: for eyes,
 * and for tests.
 */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ctPhantom, ultrasoundPhantom } from "../../scripts/demo/phantom.js";
import { openInput } from "../../src/files/guarded-paths.js";
import { readInput } from "../../src/inference/read-input.js";
import type { EngineOutput } from "../../src/engine/types.js";
import { ANY_STACK, type Image } from "../../src/images/image.js";
import type { ModelOutput } from "../../src/manifest/outputs/outputs.js";
import {
  AXIAL,
  bodyAt,
  CORONAL,
  inBall,
  pointOf,
  SAGITTAL,
  scanned,
  type Point,
  type Scan,
} from "../support/body.js";
import { attributesOf, dicomFile, random, type Attributes, type Raw } from "../support/dicom.js";

export interface Kind {
  name: string;
  /** One file, or the slices of a series. */
  files: readonly Uint8Array[];
  outputs: ModelOutput[];
  /** What a model says of one frame. */
  results: (image: Image, frame: number) => EngineOutput[];
  thresholds?: number[][];
  /** The model takes the slices as one volume. */
  volume?: true;
}

const LABELS: [string, [number, number, number]][] = [
  ["Gas", [86, 180, 233]],
  ["Fat", [240, 228, 66]],
  ["Soft tissue", [213, 40, 60]],
  ["Bone", [255, 255, 255]],
];

const segmentation = (
  labels: [string, [number, number, number]?][],
  overlapping = false,
): ModelOutput => ({
  kind: "segmentation",
  tensor: "mask",
  activation: overlapping ? "sigmoid" : "argmax",
  labels: labels.map(([label, colour]) => ({
    label,
    threshold: 0.5,
    ...(colour === undefined ? {} : { colour: [...colour] as [number, number, number] }),
  })),
  postprocess: [],
  measurements: ["area"],
});

function masked(
  rows: number,
  columns: number,
  labelAt: (x: number, y: number) => number,
  labels = 1,
): Extract<EngineOutput, { kind: "segmentation" }> {
  const mask = new Uint8Array(rows * columns);
  const counts = Array<number>(labels).fill(0);
  for (let y = 0, i = 0; y < rows; y++)
    for (let x = 0; x < columns; x++, i++) {
      const label = labelAt((x + 0.5) / columns, (y + 0.5) / rows);
      mask[i] = label;
      if (label > 0) counts[label - 1] = (counts[label - 1] ?? 0) + 1;
    }
  return { kind: "segmentation", tensor: "mask", rows, columns, overlapping: false, mask, counts };
}

const disc = (x: number, y: number, cx: number, cy: number, rx: number, ry = rx): boolean =>
  ((x - cx) / rx) ** 2 + ((y - cy) / ry) ** 2 < 1;

const lesion = segmentation([["Lesion", [86, 180, 233]]]);
const lesionAt =
  (cx: number, cy: number, r: number) =>
  ({ format: { rows, columns } }: Image): EngineOutput[] => [
    masked(rows, columns, (x, y) =>
      disc(x, y, cx, cy, r * Math.min(1, rows / columns), r * Math.min(1, columns / rows)) ? 1 : 0,
    ),
  ];

const findingBoxes = (label: string): ModelOutput => ({
  kind: "probability_map",
  tensor: "boxes",
  activation: "none",
  threshold: 0.3,
  minimum_area: 1,
  unclip: 1,
  max_boxes: 200,
  label: { label, threshold: 0.5 },
});

const boxed =
  (boxes: readonly (readonly [number, number, number, number, number])[]) =>
  ({ format: { rows, columns } }: Image): EngineOutput[] => [
    {
      kind: "boxes",
      tensor: "boxes",
      boxes: boxes.map(([x, y, w, h, score]) => ({
        x0: x * columns,
        y0: y * rows,
        x1: (x + w) * columns,
        y1: (y + h) * rows,
        score,
        label: 0,
      })),
    },
  ];

const DATE: Attributes = {
  StudyDate: "20261121",
  SeriesNumber: "4",
  InstanceNumber: "17",
  StudyInstanceUID: "1.2.3",
  SeriesInstanceUID: "1.2.3.4",
};

function file(raw: Raw, attributes: Attributes): Uint8Array {
  const pixelVr = raw.bitsAllocated === 8 ? "OB" : "OW";
  return dicomFile({
    attributes: attributesOf(raw, { ...DATE, ...attributes }),
    pixels: raw.data,
    pixelVr,
  });
}

function ct(z = 0, size = 512, more: Attributes = {}): Uint8Array {
  const { rows, columns, spacing, stored } = ctPhantom(size, z);
  const data = new Uint8Array(stored.buffer);
  return file(
    { rows, columns, samples: 1, bitsAllocated: 16, bitsStored: 12, data },
    {
      SOPClassUID: "1.2.840.10008.5.1.4.1.1.2",
      SOPInstanceUID: `1.2.3.4.${1000 + z}`,
      Modality: "CT",
      ImageOrientationPatient: "1\\0\\0\\0\\1\\0",
      ImagePositionPatient: `-190\\-190\\${z}`,
      PixelSpacing: `${spacing}\\${spacing}`,
      RescaleSlope: "1",
      RescaleIntercept: "-1024",
      WindowCenter: "40",
      WindowWidth: "400",
      FrameOfReferenceUID: "1.2.5",
      ...more,
    },
  );
}

/** Labels by HU, inside the body of the phantom. */
function tissue(image: Image, data: Uint8Array): EngineOutput {
  const { rows, columns } = image.format;
  const stored = new Uint16Array(data.buffer, data.byteOffset, rows * columns);
  return masked(
    rows,
    columns,
    (x, y) => {
      if (!disc(x, y, 0.5, 0.5, 0.45, 0.32)) return 0;
      const hu = (stored[Math.floor(y * rows) * columns + Math.floor(x * columns)] ?? 0) - 1024;
      return hu < -190 ? 1 : hu < -30 ? 2 : hu < 150 ? 3 : 4;
    },
    4,
  );
}

/** A smooth picture: 12 bits, soft blobs over a gradient, with noise. */
function blobs(rows: number, columns: number, seed: number, bits = 12): Raw {
  const next = random(seed);
  const spots = Array.from(
    { length: 14 },
    () => [next(), next(), 0.05 + 0.2 * next(), next()] as const,
  );
  const wide = new Uint16Array(rows * columns);
  const narrow = new Uint8Array(bits <= 8 ? rows * columns : 0);
  const top = 2 ** bits - 1;
  for (let y = 0, i = 0; y < rows; y++)
    for (let x = 0; x < columns; x++, i++) {
      let value = 0.06 + 0.02 * next();
      for (const [cx, cy, r, v] of spots) {
        const d = ((x / columns - cx) / r) ** 2 + ((y / rows - cy) / r) ** 2;
        if (d < 4) value += 0.45 * v * Math.exp(-d * 1.5);
      }
      const level = Math.min(top, Math.round(value * top));
      wide[i] = level;
      if (bits <= 8) narrow[i] = level;
    }
  const data = bits <= 8 ? narrow : new Uint8Array(wide.buffer);
  return { rows, columns, samples: 1, bitsAllocated: bits <= 8 ? 8 : 16, bitsStored: bits, data };
}

function colour(rows: number, columns: number, seed: number, frames = 1): Raw {
  const { data: grey } = blobs(rows, columns, seed, 8);
  const data = new Uint8Array(rows * columns * 3 * frames);
  for (let f = 0; f < frames; f++)
    for (let i = 0; i < grey.length; i++) {
      const v = grey[(i + f * 7 * columns) % grey.length] ?? 0;
      data.set([Math.min(255, v * 1.6 + 60), v, Math.max(0, v - 20)], (f * grey.length + i) * 3);
    }
  return { rows, columns, samples: 3, bitsAllocated: 8, bitsStored: 8, data };
}

function pet(size = 128, z = 0): Uint8Array {
  const next = random(9 + z);
  const stored = new Uint16Array(size * size);
  for (let y = 0, i = 0; y < size; y++)
    for (let x = 0; x < size; x++, i++) {
      const [u, v] = [(x + 0.5) / size, (y + 0.5) / size];
      let suv = disc(u, v, 0.5, 0.5, 0.4, 0.28) ? 1 : 0.02;
      if (disc(u, v, 0.4, 0.45, 0.05)) suv = 9;
      if (disc(u, v, 0.62, 0.55, 0.08, 0.05)) suv = 3;
      stored[i] = Math.round(suv * 1000 * (0.85 + 0.3 * next()));
    }
  return file(
    {
      rows: size,
      columns: size,
      samples: 1,
      bitsAllocated: 16,
      bitsStored: 16,
      data: new Uint8Array(stored.buffer),
    },
    {
      SOPClassUID: "1.2.840.10008.5.1.4.1.1.128",
      Modality: "PT",
      Units: "GML",
      CorrectedImage: "ATTN\\DECY",
      DecayCorrection: "START",
      RescaleSlope: "0.001",
      RescaleIntercept: "0",
      WindowCenter: "10",
      WindowWidth: "20",
      PixelSpacing: "4\\4",
      ImageOrientationPatient: "1\\0\\0\\0\\1\\0",
      ImagePositionPatient: `0\\0\\${z}`,
    },
  );
}

const MR: Attributes = {
  SOPClassUID: "1.2.840.10008.5.1.4.1.1.4",
  Modality: "MR",
  PixelSpacing: "0.9\\0.9",
  ImageOrientationPatient: "0\\1\\0\\0\\0\\-1",
  ImagePositionPatient: "0\\0\\0",
};
const DX: Attributes = {
  SOPClassUID: "1.2.840.10008.5.1.4.1.1.1.1",
  Modality: "DX",
  ImagerPixelSpacing: "0.14\\0.14",
  PatientOrientation: "L\\F",
};
const US: Attributes = { SOPClassUID: "1.2.840.10008.5.1.4.1.1.6.1", Modality: "US" };

/** What lies in the patient where `labelAt` says so, in each slice of a scan. */
const inPatient =
  (scan: Scan, labelAt: (point: Point) => number, labels = 1) =>
  ({ format: { rows, columns } }: Image, frame: number): EngineOutput[] => {
    const [w, h] = [columns, rows];
    const at = (x: number, y: number) =>
      labelAt(pointOf(scan, [Math.floor(x * w), Math.floor(y * h), frame]));
    return [masked(rows, columns, at, labels)];
  };

const liverLesion = (point: Point) => (inBall(point, [-70, -10, -35], 22, 16, 28) ? 1 : 0);

/** Volumes, in whose pictures planes across the slices stand too. */
function volumes(): Kind[] {
  const kind = (
    name: string,
    scan: Scan,
    labelAt: (point: Point) => number = liverLesion,
    more: Partial<Kind> = {},
  ): Kind => ({
    name: `volume-${name}`,
    files: scanned(scan),
    outputs: [lesion],
    volume: true,
    results: inPatient(scan, labelAt, more.outputs === undefined ? 1 : 20),
    ...more,
  });
  const ctOf = { Modality: "CT", SOPClassUID: "1.2.840.10008.5.1.4.1.1.2", RescaleType: "HU" };
  const axial: Scan = { ...AXIAL, counts: [160, 128, 100], spacing: [2, 2, 4], more: ctOf };
  const thick: Scan = { ...AXIAL, counts: [256, 256, 24], spacing: [1.3, 1.3, 15], more: ctOf };
  const sagittal: Scan = { ...SAGITTAL, counts: [200, 320, 40], spacing: [1.2, 1.2, 7] };
  const coronal: Scan = { ...CORONAL, counts: [256, 320, 30], spacing: [1.3, 1.2, 7] };
  // Turned by 30 degrees about the axis from head to feet, then by 15 about that from left to right
  const [c, s, p, q] = [Math.cos(Math.PI / 6), 0.5, Math.cos(Math.PI / 12), Math.sin(Math.PI / 12)];
  const oblique: Scan = {
    across: [c, s, 0],
    down: [-s * p, c * p, -q],
    counts: [160, 140, 90],
    spacing: [2, 2, 4],
  };
  const small: Scan = { ...AXIAL, counts: [64, 64, 30], spacing: [5, 5, 10], more: ctOf };
  const first = pointOf(small, [20, 30, 14]);
  const whole: Scan = { ...AXIAL, counts: [128, 128, 120], spacing: [3, 3, 5] };
  const petOf = {
    Modality: "PT",
    SOPClassUID: "1.2.840.10008.5.1.4.1.1.128",
    Units: "GML",
    CorrectedImage: "ATTN\\DECY",
    DecayCorrection: "START",
  };
  return [
    kind("axial", axial),
    kind("thick", thick),
    kind("sagittal", sagittal),
    kind("coronal", coronal),
    kind("oblique", oblique),
    kind("voxel", small, (point) =>
      Math.hypot(...point.map((v, i) => v - first[i]!)) < 1 ? 1 : 0,
    ),
    kind("edge", small, (point) => (point[0] < -145 && point[2] > 120 ? 1 : 0)),
    kind("nothing", small, () => 0),
    kind("few", { ...axial, counts: [160, 128, 4] }, ([x, , z]) =>
      Math.abs(x) < 20 && z < 0 ? 1 : 0,
    ),
    kind("tilted", { ...small, shear: 4 }),
    kind(
      "pet",
      { ...whole, more: { ...petOf, RescaleSlope: "0.03", RescaleIntercept: "0" } },
      ([x, y, z]) =>
        bodyAt([x, y, z]) > 0
          ? 1 + ((Math.floor(x / 60 + 20) * 7 + Math.floor(z / 70 + 20) * 3) % 20)
          : 0,
      { outputs: [segmentation(Array.from({ length: 20 }, (_, i) => [`Region ${i + 1}`]))] },
    ),
  ];
}

export function kinds(): Kind[] {
  const tissueOf = (image: Image, frame: number): EngineOutput[] => {
    const phantom = ctPhantom(image.format.columns, positionOf(image, frame));
    return [tissue(image, new Uint8Array(phantom.stored.buffer))];
  };
  const tissues = segmentation(LABELS);
  const nothing = ({ format: { rows, columns } }: Image): EngineOutput[] => [
    masked(rows, columns, () => 0),
  ];
  const stack = (count: number, size: number, more: Attributes = {}) =>
    Array.from({ length: count }, (_, i) =>
      ct((i - count / 2) * 12, size, { InstanceNumber: String(i + 1), ...more }),
    );
  const ultrasound = ultrasoundPhantom();
  return [
    ...volumes(),
    { name: "ct-axial", files: [ct()], outputs: [tissues], results: tissueOf },
    {
      name: "ct-oblique",
      files: [ct(0, 512, { ImageOrientationPatient: "0.8\\0.6\\0\\-0.36\\0.48\\-0.8" })],
      outputs: [tissues],
      results: tissueOf,
    },
    {
      name: "sagittal-montage",
      files: Array.from({ length: 9 }, (_, i) =>
        ct(i * 10 - 40, 256, {
          ImageOrientationPatient: "0\\0.96\\0.28\\0\\0.28\\-0.96",
          ImagePositionPatient: `${i * 10 - 40}\\0\\0`,
          InstanceNumber: String(i + 1),
        }),
      ),
      outputs: [lesion],
      results: lesionAt(0.4, 0.5, 0.06),
    },
    {
      name: "mr",
      files: [file(blobs(256, 256, 3), MR)],
      outputs: [lesion],
      results: lesionAt(0.5, 0.45, 0.09),
    },
    { name: "pet", files: [pet()], outputs: [lesion], results: lesionAt(0.4, 0.45, 0.05) },
    {
      name: "dx",
      files: [file(blobs(3000, 2500, 4), { ...DX, PhotometricInterpretation: "MONOCHROME1" })],
      outputs: [findingBoxes("Nodule")],
      results: boxed([
        [0.2, 0.3, 0.12, 0.1, 0.91],
        [0.6, 0.5, 0.1, 0.08, 0.73],
      ]),
    },
    {
      name: "mg",
      files: [
        file(blobs(3328, 2560, 5), {
          ...DX,
          SOPClassUID: "1.2.840.10008.5.1.4.1.1.1.2",
          Modality: "MG",
        }),
      ],
      outputs: [lesion],
      results: lesionAt(0.6, 0.5, 0.03),
    },
    {
      name: "us-colour",
      files: [file(colour(600, 800, 6), US)],
      outputs: [lesion],
      results: lesionAt(0.55, 0.4, 0.1),
    },
    {
      name: "us-cine",
      files: [
        file(colour(480, 640, 7, 5), {
          ...US,
          SOPClassUID: "1.2.840.10008.5.1.4.1.1.3.1",
          NumberOfFrames: "5",
        }),
      ],
      outputs: [findingBoxes("Text")],
      results: boxed([
        [0.1, 0.1, 0.2, 0.06, 0.98],
        [0.5, 0.6, 0.15, 0.08, 0.61],
      ]),
    },
    {
      name: "small",
      files: [file(blobs(64, 64, 8), MR)],
      outputs: [lesion],
      results: lesionAt(0.5, 0.5, 0.15),
    },
    {
      name: "tiny-odd",
      files: [file(blobs(30, 200, 8), MR)],
      outputs: [lesion],
      results: lesionAt(0.5, 0.5, 0.15),
    },
    {
      name: "tall",
      files: [file(blobs(1400, 260, 9), DX)],
      outputs: [lesion],
      results: lesionAt(0.5, 0.3, 0.2),
    },
    {
      name: "wide",
      files: [file(blobs(260, 1400, 10), DX)],
      outputs: [lesion],
      results: lesionAt(0.3, 0.5, 0.2),
    },
    { name: "negative", files: [ct()], outputs: [lesion], results: nothing },
    {
      name: "negative-boxes",
      files: [file(blobs(1024, 1024, 11), DX)],
      outputs: [findingBoxes("Nodule")],
      results: boxed([[0.1, 0.1, 0.1, 0.1, 0.2]]),
    },
    { name: "negative-series", files: stack(6, 128), outputs: [lesion], results: nothing },
    {
      name: "boxes",
      files: [file(blobs(1024, 1024, 12), { ...DX, PatientOrientation: "L\\F" })],
      outputs: [
        {
          kind: "detection",
          tensor: "boxes",
          scores_tensor: "scores",
          classes_tensor: "classes",
          format: "xyxy",
          coordinates: "pixels",
          first_class: 0,
          activation: "none",
          max_boxes: 50,
          nms: null,
          labels: ["Nodule", "Consolidation with a long name", "Effusion"].map((label) => ({
            label,
            threshold: 0.5,
          })),
        } as unknown as ModelOutput,
      ],
      results: ({ format: { rows, columns } }) => [
        {
          kind: "boxes",
          tensor: "boxes",
          boxes: (
            [
              [0.1, 0.1, 0.2, 0.15, 0.93, 0],
              [0.12, 0.2, 0.2, 0.15, 0.83, 1],
              [0.6, 0.45, 0.2, 0.1, 0.77, 2],
              [0.7, 0.47, 0.28, 0.12, 0.7, 0],
              [0.4, 0.9, 0.2, 0.1, 0.66, 1],
              [0, 0.5, 0.1, 0.2, 0.55, 2],
            ] as const
          ).map(([x, y, w, h, score, label]) => ({
            x0: x * columns,
            y0: y * rows,
            x1: (x + w) * columns,
            y1: (y + h) * rows,
            score,
            label,
          })),
        },
      ],
    },
    {
      name: "many-labels",
      files: [ct()],
      outputs: [segmentation(Array.from({ length: 14 }, (_, i) => [`Region ${i + 1}`]))],
      results: ({ format: { rows, columns } }) => [
        masked(
          rows,
          columns,
          (x, y) =>
            disc(x, y, 0.5, 0.5, 0.42, 0.3)
              ? 1 +
                (Math.floor(((Math.atan2(y - 0.5, x - 0.5) + Math.PI) / (2 * Math.PI)) * 13.999) %
                  14)
              : 0,
          14,
        ),
      ],
    },
    {
      name: "rgb-photo",
      files: [
        file(colour(900, 1200, 13), {
          Modality: "XC",
          SOPClassUID: "1.2.840.10008.5.1.4.1.1.77.1.4",
        }),
      ],
      outputs: [lesion],
      results: lesionAt(0.45, 0.5, 0.2),
    },
    {
      name: "border",
      files: [file(blobs(400, 500, 14), MR)],
      outputs: [segmentation([["Rim", [213, 94, 0]]])],
      results: ({ format: { rows, columns } }) => [
        masked(rows, columns, (x, y) => (x < 0.05 || y > 0.93 || (x > 0.9 && y < 0.2) ? 1 : 0)),
      ],
    },
    {
      name: "monochrome1",
      files: [
        file(blobs(800, 700, 15), {
          ...DX,
          Modality: "CR",
          PhotometricInterpretation: "MONOCHROME1",
        }),
      ],
      outputs: [lesion],
      results: lesionAt(0.3, 0.3, 0.1),
    },
    { name: "volume-montage", files: stack(14, 256), outputs: [tissues], results: tissueOf },
    {
      name: "burned-in",
      files: [
        file(
          { ...ultrasound, samples: 1, bitsAllocated: 8, bitsStored: 8, data: ultrasound.pixels },
          { ...US, Rows: 768, Columns: 1024 },
        ),
      ],
      outputs: [findingBoxes("Text")],
      results: boxed(
        Array.from(
          { length: 30 },
          (_, i) =>
            [
              0.02 + (i % 3) * 0.33,
              0.02 + Math.floor(i / 3) * 0.095,
              0.2 + 0.05 * (i % 2),
              0.04,
              0.99 - i / 100,
            ] as const,
        ),
      ),
    },
    {
      name: "non-square",
      files: [file(blobs(240, 500, 16), { ...MR, PixelSpacing: "2\\1" })],
      outputs: [lesion],
      results: lesionAt(0.6, 0.4, 0.1),
    },
    {
      name: "heat-map",
      files: [file(blobs(512, 512, 17), DX)],
      outputs: [
        { kind: "heatmap", tensor: "heat", activation: "none", label: { label: "Attention" } },
      ],
      results: ({ format: { rows, columns } }) => {
        const values = new Float32Array(rows * columns);
        for (let i = 0; i < values.length; i++) {
          const [x, y] = [(i % columns) / columns, Math.floor(i / columns) / rows];
          values[i] = Math.exp(-(((x - 0.4) / 0.15) ** 2) - ((y - 0.6) / 0.2) ** 2);
        }
        return [{ kind: "heatmap", tensor: "heat", rows, columns, values }];
      },
    },
    {
      name: "overlapping",
      files: [ct()],
      outputs: [
        segmentation(
          [
            ["Organ", [86, 180, 233]],
            ["Tumour", [240, 228, 66]],
          ],
          true,
        ),
      ],
      results: ({ format: { rows, columns } }) => {
        const planes = [
          masked(rows, columns, (x, y) => (disc(x, y, 0.35, 0.5, 0.14, 0.18) ? 1 : 0)),
          masked(rows, columns, (x, y) => (disc(x, y, 0.45, 0.5, 0.08) ? 1 : 0)),
        ];
        return [
          {
            ...planes[0]!,
            overlapping: true,
            mask: Uint8Array.from([...planes[0]!.mask, ...planes[1]!.mask]),
            counts: planes.map(({ counts }) => counts[0]!),
          },
        ];
      },
    },
    {
      name: "classification",
      files: [file(blobs(1000, 800, 18), { ...DX })],
      outputs: [
        {
          kind: "classification",
          tensor: "p",
          activation: "sigmoid",
          calibration: { kind: "none" },
          labels: ["Pneumothorax", "Effusion", "Cardiomegaly", "Nodule"].map((label) => ({
            label,
            threshold: 0.5,
          })),
        },
      ],
      results: () => [
        { kind: "classification", tensor: "p", scores: Float32Array.of(0.03, 0.81, 0.42, 0.5) },
      ],
    },
  ];
}

function positionOf(image: Image, frame: number): number {
  const z = image.plane(frame)?.position[2] ?? 0;
  return Math.abs(z) > 200 ? 0 : z;
}

/** Reads the image of a kind, and calls `use` while it is open. */
export async function withImage<T>(kind: Kind, use: (image: Image) => Promise<T>): Promise<T> {
  const folder = mkdtempSync(join(tmpdir(), "radserve-kind-"));
  try {
    const [first] = kind.files;
    const path = join(folder, "image");
    if (kind.files.length === 1) writeFileSync(path, first ?? new Uint8Array());
    else {
      mkdirSync(path);
      kind.files.forEach((bytes, i) => {
        writeFileSync(join(path, `${i}.dcm`), bytes);
      });
    }
    const opened = await openInput(path, undefined);
    try {
      return await use(await readInput(opened, undefined, { tolerance: ANY_STACK }));
    } finally {
      opened.close();
    }
  } finally {
    rmSync(folder, { recursive: true });
  }
}
