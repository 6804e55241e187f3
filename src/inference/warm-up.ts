/** Everything a thread loads once, loaded before its first image: codecs, fonts, the picture library, the engine. */
import type { Engine } from "../engine/engine.js";
import type { Plane } from "../engine/types.js";
import { loadCodecs } from "../images/dicom/codecs.js";
import { panelSize } from "../results/picture/layout.js";
import { renderOverlay } from "../results/picture/overlay.js";

const SIDE = 16;

const plane: Plane = {
  format: {
    rows: SIDE,
    columns: SIDE,
    samplesPerPixel: 1,
    bitsAllocated: 8,
    bitsStored: 8,
    highBit: 7,
    signed: false,
    float: false,
    photometricInterpretation: "MONOCHROME2",
    packed422: false,
  },
  data: new Uint8Array(SIDE * SIDE),
  interpretation: {
    modality: { kind: "identity" },
    units: undefined,
    voi: [],
    padding: undefined,
    palette: undefined,
  },
  pixelAspect: 1,
};

/** Draws one small picture of nothing through all the parts that every image takes. */
export async function warmUp(engine: Engine): Promise<void> {
  await loadCodecs();
  const size = panelSize(SIDE, SIDE, 1).render;
  const rgb = await engine.render(plane, { voiIndex: 0, ...size });
  await renderOverlay({
    shots: [{ picture: { ...size, rgb }, frame: 1, results: [], findings: [] }],
    source: { rows: SIDE, columns: SIDE, pixelAspect: 1, frames: 1, called: "frame" },
    model: { name: "warm-up", version: "1", manufacturer: "Radserve", regulatory: "None", outputs: [] },
    findings: [],
    measurements: [],
    warnings: [],
  });
}
