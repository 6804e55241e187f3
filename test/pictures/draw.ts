/** What the picture of a kind is made of, as the use case gathers it. */
import type { Engine } from "../../src/engine/engine.js";
import type { EngineOutput } from "../../src/engine/types.js";
import { interpret } from "../../src/results/findings/findings.js";
import { volumeOf } from "../../src/images/dicom/volume.js";
import { ANY_STACK, type Image } from "../../src/images/image.js";
import type { Finding } from "../../src/results/receipt/receipt.js";
import {
  fullestCrossing,
  markedPixels,
  sliceOutputs,
} from "../../src/results/findings/volume-outputs.js";
import {
  planeOf,
  type DrawRequest,
  type ShownOutputs,
} from "../../src/results/picture/draw-result.js";
import { RESULT_FORMS } from "../../src/results/forms.js";
import { Highlights } from "../../src/results/picture/highlights.js";
import { withImage, type Kind } from "./kinds.js";

export function withKind<T>(
  kind: Kind,
  engine: Engine,
  use: (request: DrawRequest) => Promise<T>,
): Promise<T> {
  const thresholds = kind.outputs.map((output) =>
    "labels" in output ? output.labels.map(({ threshold }) => threshold ?? NaN) : [0.5],
  );
  return withImage(kind, async (image) => {
    const { said, measurements, shown, marked } =
      kind.volume === undefined
        ? framesOf(kind, image, thresholds)
        : await volumeIn(kind, image, thresholds);
    const manifest = {
      name: `phantom-${kind.name}`.slice(0, 40),
      version: "1.0.0",
      manufacturer: "Radserve",
      regulatory: "For research use only. Not for diagnostic use.",
      outputs: kind.outputs,
    };
    return use({
      image,
      engine,
      manifest: manifest as unknown as DrawRequest["manifest"],
      shown,
      marked,
      result: { findings: said, measurements, warnings: [] },
      opacity: RESULT_FORMS.overlayOpacity,
    });
  });
}

type Gathered = Pick<DrawRequest, "shown" | "marked"> & {
  said: Finding[];
  measurements: DrawRequest["result"]["measurements"];
};

function framesOf(kind: Kind, image: Image, thresholds: number[][]): Gathered {
  const highlights = new Highlights<ShownOutputs>();
  const said: Finding[] = [];
  const measurements = [];
  for (let frame = 0; frame < image.frameCount; frame++) {
    const results = kind.results(image, frame);
    const found = interpret(kind.outputs, thresholds, {
      outputs: results,
      spacing: image.spacing(frame),
    });
    const several = image.frameCount > 1 ? { frame: frame + 1 } : {};
    const findings = found.findings.map((finding) => ({ ...finding, ...several }));
    said.push(...findings);
    measurements.push(...found.measurements.map((measurement) => ({ ...measurement, ...several })));
    const weight = findings.reduce(
      (sum, { present, area }) => sum + (present ? Math.max(1, area?.pixels ?? 1) : 0),
      0,
    );
    highlights.offer({ frame, weight, value: { outputs: () => results, findings } });
  }
  return { said, measurements, shown: highlights.chosen(), marked: undefined };
}

/** The masks of all slices as one, as a model of volumes gives them. */
async function volumeIn(kind: Kind, image: Image, thresholds: number[][]): Promise<Gathered> {
  const volume = volumeOf(image, ANY_STACK);
  const planes = [];
  const masks: Extract<EngineOutput, { kind: "segmentation" }>[] = [];
  for (const frame of volume.frames) {
    planes.push(planeOf(image, frame, await image.frame(frame)));
    const [mask] = kind.results(image, frame);
    if (mask?.kind !== "segmentation") throw new Error("A volume is segmented");
    masks.push(mask);
  }
  const counts = masks[0]!.counts.map((_, i) =>
    masks.reduce((sum, mask) => sum + mask.counts[i]!, 0),
  );
  const mask = Buffer.concat(masks.map((each) => each.mask));
  const outputs = [{ ...masks[0]!, slices: masks.length, mask, counts }];
  const { geometry } = volume;
  const found = interpret(kind.outputs, thresholds, {
    outputs,
    spacing: undefined,
    volume: geometry,
  });
  const pixels = markedPixels(outputs, masks.length);
  const crossing = fullestCrossing(outputs, pixels);
  const highlights = new Highlights<ShownOutputs>();
  for (const [slice, weight] of pixels.slices.entries()) {
    const value = { outputs: () => sliceOutputs(outputs, slice), findings: [], slice: slice + 1 };
    highlights.offer({ frame: volume.frames[slice]!, weight, value });
  }
  return {
    said: found.findings,
    measurements: found.measurements,
    shown: highlights.chosen(),
    marked: crossing === undefined ? undefined : { volume, planes, outputs, crossing },
  };
}
