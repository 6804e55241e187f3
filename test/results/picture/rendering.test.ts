/** Drawings rendered piece by piece against librsvg's rendering of the whole, whatever was drawn before. */
import sharp from "sharp";
import t from "tap";
import { Drawing, layDrawing } from "../../../src/results/picture/drawing.js";
import { layPixels } from "../../../src/results/picture/blend.js";
import { random } from "../../support/dicom.js";

const [width, height] = [400, 300];

const plain = () => {
  const rgb = Uint8Array.from({ length: 3 * width * height }, (_, i) => (i * 7 + (i >> 9)) % 256);
  return { width, height, rgb };
};

/** Text, lines and boxes anywhere, over each other and over the picture's edges. */
function draw(seed: number): Drawing {
  const chance = random(seed);
  const drawing = new Drawing();
  const some = (most: number) => chance() * most;
  const shapes = (count: number) => {
    for (let i = 0; i < count; i++) {
      const box = { x: some(width), y: some(height), width: some(60), height: some(40) };
      const style = i % 2 === 0 ? { fill: "#f0b64a", radius: 2 } : { stroke: "#221144", strokeWidth: 3 };
      drawing.rectangle(box, { ...style, opacity: 0.3 + some(0.7) });
      drawing.circle(some(width), some(height), some(9), { fill: "rgb(20,200,90)" });
      const text = `${Math.floor(some(1000))}.5 cm² gÅj`;
      const align = (["left", "right", "centre"] as const)[i % 3]!;
      drawing.text(text, some(width), some(height), {
        size: 9 + some(20),
        face: "bold",
        fill: "#fff",
        align,
      });
    }
  };
  shapes(6);
  drawing.clip({ x: 100, y: 80, width: 120, height: 90 });
  shapes(3);
  drawing.unclip();
  shapes(2);
  return drawing;
}

/** All pieces in one SVG of the picture's size, each at its place. */
async function whole(drawing: Drawing): Promise<Uint8Array> {
  const picture = plain();
  const placed = drawing.pieces().map(({ x, y, content }) => {
    return `<g transform="translate(${x} ${y})">${content}</g>`;
  });
  const size = `width="${width}" height="${height}" viewBox="0 0 ${width} ${height}"`;
  const svg = `<svg xmlns="http://www.w3.org/2000/svg" ${size}>${placed.join("")}</svg>`;
  const rgba = await sharp(Buffer.from(svg)).ensureAlpha().raw().toBuffer();
  layPixels(picture, rgba, { x: 0, y: 0, width, height });
  return picture.rgb;
}

t.test("each pixel is as in the whole drawing, rendered for the first time or kept", async (t) => {
  for (const seed of [1, 2, 3, 2, 1]) {
    const picture = plain();
    await layDrawing(picture, draw(seed));
    t.ok(Buffer.from(picture.rgb).equals(await whole(draw(seed))), `drawing ${seed}`);
  }
});

t.test("the same text in another colour, size or face is another piece", async (t) => {
  const styles = [
    { size: 14, face: "regular", fill: "#ffffff" },
    { size: 14, face: "regular", fill: "#f0b64a" },
    { size: 14, face: "bold", fill: "#ffffff" },
    { size: 14.5, face: "regular", fill: "#ffffff" },
  ] as const;
  const seen = new Set<string>();
  for (const style of [...styles, ...styles]) {
    const drawing = new Drawing();
    drawing.text("12.4 cm²", 20, 40, style);
    const picture = plain();
    await layDrawing(picture, drawing);
    const rgb = Buffer.from(picture.rgb);
    t.ok(rgb.equals(await whole(drawing)));
    seen.add(rgb.toString("base64"));
  }
  t.equal(seen.size, styles.length);
});

t.test("parts that lie over each other are one piece, in the order in which they were drawn", (t) => {
  const drawing = new Drawing();
  const at = (x: number) => ({ x, y: 10, width: 20, height: 10 });
  drawing.rectangle(at(0), { fill: "red" });
  drawing.rectangle(at(200), { fill: "lime" });
  drawing.rectangle(at(30), { fill: "blue" });
  drawing.rectangle(at(15), { fill: "white" });
  const colours = drawing.pieces().map(({ content }) => content.match(/red|lime|blue|white/g));
  t.same(colours, [["lime"], ["red", "blue", "white"]]);
  t.end();
});
