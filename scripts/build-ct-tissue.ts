/**
 * Builds models/ct-tissue: the graph, which only compares, and its canary, whose expected output is
 * computed here without the graph. Same bytes at every run. `npm run build && node
 * dist/scripts/build-ct-tissue.js`
 */
import { encodeNpy } from "../src/engine/npy.js";
import { onnxModel, tensorBytes, type Node, type TensorValue } from "./lib/onnx-model.js";
import { isMain, modelFolder, writeModelFiles } from "./lib/model-folder.js";

/**
 * Label and the Hounsfield value at which it begins; each ends where the next begins. Adipose
 * tissue -190 to -30 and muscle -29 to 150 HU: Mourtzakis et al., Appl Physiol Nutr Metab
 * 2008;33:997, after Kvist et al. 1988.
 */
export const FIRST_HU = [
  { label: 2, name: "fat", from: -190 },
  { label: 3, name: "soft", from: -30 },
  { label: 4, name: "bone", from: 150 },
] as const;

/**
 * What the engine puts where the image holds Pixel Padding: at and below it there is no tissue,
 * label 0.
 */
export const NO_VALUE = -32768;
const GAS = 1;

const CANARY_SIDE = 16;

const scalar = (name: string, dtype: "float32" | "uint8", value: number): TensorValue => ({
  name,
  dtype,
  shape: [],
  data: [value],
});

/**
 * hu float32 [batch, 1, rows, columns] -> tissue uint8 of the same shape. Comparisons and
 * selections alone, so that every provider gives the same labels; what is not a number is greater
 * than nothing and stays background.
 */
export function ctTissueModel(): Uint8Array {
  const nodes: Node[] = [
    { op: "Greater", inputs: ["hu", "no_value"], outputs: ["measured"] },
    { op: "Where", inputs: ["measured", "label_gas", "label_background"], outputs: ["from_gas"] },
  ];
  const initializers = [
    scalar("no_value", "float32", NO_VALUE),
    scalar("label_background", "uint8", 0),
    scalar("label_gas", "uint8", GAS),
  ];
  FIRST_HU.forEach(({ label, name, from }, i) => {
    const last = i === FIRST_HU.length - 1;
    const below = `from_${i === 0 ? "gas" : (FIRST_HU[i - 1]?.name ?? "")}`;
    initializers.push(
      scalar(`first_${name}`, "float32", from),
      scalar(`label_${name}`, "uint8", label),
    );
    nodes.push(
      { op: "GreaterOrEqual", inputs: ["hu", `first_${name}`], outputs: [`is_${name}`] },
      {
        op: "Where",
        inputs: [`is_${name}`, `label_${name}`, below],
        outputs: [last ? "tissue" : `from_${name}`],
      },
    );
  });
  const shape = ["batch", 1, "rows", "columns"];
  return onnxModel({
    name: "ct-tissue",
    inputs: [{ name: "hu", dtype: "float32", shape }],
    outputs: [{ name: "tissue", dtype: "uint8", shape }],
    nodes,
    initializers,
    doc: "CT tissue by published Hounsfield ranges",
  });
}

/** The label of one value, for the canary. */
export function tissueOf(hu: number): number {
  if (!(hu > NO_VALUE)) return 0;
  return FIRST_HU.reduce<number>((label, range) => (hu >= range.from ? range.label : label), GAS);
}

/** Values at, just below and just above every threshold, the extremes, and a ramp over the rest. */
export function canaryValues(): number[] {
  const thresholds = [NO_VALUE, ...FIRST_HU.map(({ from }) => from)];
  const edges = thresholds.flatMap((t) => [t - 1, t - 0.0625, t, t + 0.0625, t + 1]);
  const special = [...edges, -3024, -1024, -1000, 0, 40, 3071, 32767];
  const rest = CANARY_SIDE * CANARY_SIDE - special.length;
  return [...special, ...Array.from({ length: rest }, (_, i) => -1100 + i * 12)];
}

function canary(): { input: Uint8Array; expected: Uint8Array } {
  const shape = [1, 1, CANARY_SIDE, CANARY_SIDE];
  const values = canaryValues();
  const input = encodeNpy({ dtype: "float32", shape, data: tensorBytes("float32", values) });
  const labels = values.map((value) => tissueOf(Math.fround(value)));
  return {
    input,
    expected: encodeNpy({ dtype: "uint8", shape, data: tensorBytes("uint8", labels) }),
  };
}

/** Every generated file of the folder, by its path there. */
export function ctTissueFiles(): Record<string, Uint8Array> {
  const { input, expected } = canary();
  return { "model.onnx": ctTissueModel(), "canary/hu.npy": input, "canary/tissue.npy": expected };
}

if (isMain(import.meta.url)) writeModelFiles(modelFolder("ct-tissue"), ctTissueFiles());
