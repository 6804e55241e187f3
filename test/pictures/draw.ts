/** What the picture of a kind is made of, as the use case gathers it. */
import type { Engine } from "../../src/engine/engine.js";
import { interpret } from "../../src/results/receipt/findings.js";
import { type DrawRequest, type Shown } from "../../src/results/picture/draw-result.js";
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
    const highlights = new Highlights<Shown>();
    const all = [];
    const measurements = [];
    for (let frame = 0; frame < image.frameCount; frame++) {
      const results = kind.results(image, frame);
      const found = interpret(kind.outputs, thresholds, { outputs: results, spacing: image.spacing(frame) });
      const several = image.frameCount > 1 ? { frame: frame + 1 } : {};
      const findings = found.findings.map((finding) => ({ ...finding, ...several }));
      all.push(...findings);
      measurements.push(...found.measurements.map((measurement) => ({ ...measurement, ...several })));
      const weight = findings.reduce(
        (sum, { present, area }) => sum + (present ? Math.max(1, area?.pixels ?? 1) : 0),
        0,
      );
      highlights.offer({ frame, weight, value: { outputs: () => results, findings } });
    }
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
      shown: highlights.chosen(),
      result: { findings: all, measurements, warnings: [] },
      opacity: RESULT_FORMS.overlayOpacity,
    });
  });
}
