/**
 * What the addon draws against librsvg's rendering of the same shapes and glyphs, and whatever was
 * drawn before.
 */
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import opentype from "opentype.js";
import sharp from "sharp";
import t from "tap";
import { composePage, type Page } from "../../../src/addon/picture.js";
import { Drawing } from "../../../src/results/picture/drawing.js";
import { atlas, textWidth } from "../../../src/results/picture/text.js";
import { random } from "../../support/dicom.js";
import { ADDON, needs } from "../../support/needs.js";

const [width, height] = [400, 300];
const BLACK = Uint8Array.of(0, 0, 0);

function drawn(drawing: Drawing, more: Partial<Page> = {}): Uint8Array {
  const { rgb } = composePage({
    width,
    height,
    background: BLACK,
    panels: [],
    opacity: 0.3,
    drawing: drawing.list(),
    glyphs: atlas.bytes,
    ...more,
  });
  return rgb;
}

async function rendered(content: string): Promise<Uint8Array> {
  const svg = `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}">${content}</svg>`;
  return sharp(Buffer.from(svg)).flatten({ background: "#000" }).removeAlpha().raw().toBuffer();
}

/** The largest difference of a channel, and the mean over all that either shows. */
function difference(a: Uint8Array, b: Uint8Array): { most: number; mean: number } {
  let [most, sum, count] = [0, 0, 0];
  for (let i = 0; i < a.length; i++) {
    const by = Math.abs(a[i]! - b[i]!);
    most = Math.max(most, by);
    if (a[i] !== 0 || b[i] !== 0) count++;
    sum += by;
  }
  t.ok(count > 100, "there is something to see");
  return { most, mean: sum / count };
}

const css = ([r, g, b]: readonly number[]): string => `rgb(${r},${g},${b})`;

t.test("drawings", { skip: needs(ADDON) }, async (t) => {
  await t.test("rectangles, filled and as borders, with and without round corners", async (t) => {
    const next = random(5);
    for (let i = 0; i < 40; i++) {
      const box = {
        x: next() * 300,
        y: next() * 200,
        width: 8 + next() * 90,
        height: 8 + next() * 60,
      };
      const colour = [255, 40 + Math.floor(next() * 200), 90] as const;
      const [radius, stroke, opacity] = [
        i % 3 === 0 ? 4 : 0,
        i % 2 === 0 ? 0 : 3,
        0.4 + next() * 0.6,
      ];
      const drawing = new Drawing();
      drawing.rectangle(box, { colour, radius, stroke, opacity });
      const place = `x="${box.x}" y="${box.y}" width="${box.width}" height="${box.height}" rx="${radius}"`;
      const paint =
        stroke === 0
          ? `fill="${css(colour)}"`
          : `fill="none" stroke="${css(colour)}" stroke-width="3"`;
      const expected = await rendered(`<rect ${place} ${paint} opacity="${opacity}"/>`);
      const { most, mean } = difference(drawn(drawing), expected);
      t.ok(most < 100 && mean < 6, `${JSON.stringify(box)}: ${most}, ${mean}`);
    }
  });

  await t.test("lines and circles", async (t) => {
    const drawing = new Drawing();
    drawing.line(20, 30, 333, 220, 3, { colour: [255, 255, 255] });
    drawing.circle(200, 150, 40, { colour: [10, 200, 90] });
    const { most, mean } = difference(
      drawn(drawing),
      await rendered(
        '<line x1="20" y1="30" x2="333" y2="220" stroke="#fff" stroke-width="3" stroke-linecap="round"/>' +
          '<circle cx="200" cy="150" r="40" fill="rgb(10,200,90)"/>',
      ),
    );
    t.ok(most < 70 && mean < 3, `${most}, ${mean}`);
  });

  await t.test(
    "text of each face and many sizes, glyph by glyph where a layout puts it",
    async (t) => {
      const require = createRequire(import.meta.url);
      const files = { regular: "DejaVuSans.ttf", bold: "DejaVuSans-Bold.ttf" } as const;
      for (const face of ["regular", "bold"] as const) {
        const bytes = readFileSync(require.resolve(`dejavu-fonts-ttf/ttf/${files[face]}`));
        const buffer = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength);
        const font = opentype.parse(buffer, { lowMemory: true });
        for (const size of [11, 12.5, 14, 19.7, 22, 38.5]) {
          const text = "Åg 12.4 cm² µ−×·ﬁ%&@";
          let pen = 10.3;
          let data = "";
          for (const character of text) {
            const glyph = font.charToGlyph(character);
            for (const each of glyph.getPath(Math.round(pen * 4) / 4, 60, size).commands)
              data += `${each.type}${"x1" in each ? `${each.x1} ${each.y1} ` : ""}${"x" in each ? `${each.x} ${each.y} ` : ""}`;
            pen += (glyph.advanceWidth * size) / font.unitsPerEm;
          }
          const drawing = new Drawing();
          drawing.text(text, 10.3, 60, { size, face, colour: [255, 255, 255] });
          const { most, mean } = difference(
            drawn(drawing),
            await rendered(`<path d="${data}" fill="#fff"/>`),
          );
          t.ok(most < 60 && mean < 8, `${face} ${size}: ${most}, ${mean}`);
        }
      }
    },
  );

  await t.test("the same whatever was drawn before", (t) => {
    const sheet = (seed: number) => {
      const next = random(seed);
      const drawing = new Drawing();
      for (let i = 0; i < 30; i++) {
        const style = { size: 9 + next() * 20, face: i % 2 === 0 ? "regular" : "bold" } as const;
        drawing.text(`${next()} gÅj`, next() * width, next() * height, {
          ...style,
          colour: [255, 255, 255],
        });
      }
      return Buffer.from(drawn(drawing));
    };
    const first = [1, 2, 3].map(sheet);
    // So many sizes that the atlas starts anew
    for (let i = 10; i < 60; i++) {
      sheet(i);
      atlas.trim();
    }
    t.same([1, 2, 3].map(sheet), first);
    t.end();
  });

  await t.test(
    "what is clipped shows inside its box only, and what lies beside the page nowhere",
    (t) => {
      const drawing = new Drawing();
      const white = [255, 255, 255] as const;
      drawing.clip({ x: 10, y: 20, width: 30, height: 40 });
      drawing.rectangle({ x: -100, y: -100, width: 1000, height: 1000 }, { colour: white });
      drawing.unclip();
      drawing.text("beside", -1000, 4000, { size: 14, face: "regular", colour: white });
      drawing.line(-50, -50, -10, -900, 4, { colour: white });
      const rgb = drawn(drawing);
      for (let y = 0; y < height; y++)
        for (let x = 0; x < width; x++) {
          const inside = x >= 10 && x < 40 && y >= 20 && y < 60;
          if (rgb[(y * width + x) * 3] !== (inside ? 255 : 0)) t.fail(`${x} ${y}`);
        }
      t.end();
    },
  );

  await t.test("what is no page is refused, and not read beyond its ends", (t) => {
    const picture = { width: 4, height: 4, rgb: new Uint8Array(48) };
    const panel = { picture, x: 0, y: 0, width: 8, height: 8, marks: [] };
    const mask = {
      rows: 4,
      columns: 4,
      mask: new Uint8Array(15),
      colours: Uint8Array.of(1, 2, 3),
      counts: [1],
    };
    const pages: Partial<Page>[] = [
      { panels: [{ ...panel, x: width - 7 }] },
      { panels: [{ ...panel, width: 3 }] },
      { panels: [{ ...panel, picture: { ...picture, rgb: new Uint8Array(47) } }] },
      { panels: [{ ...panel, marks: [{ masks: [mask], heat: [] }] }] },
      { drawing: Float64Array.of(2, 1, 1) },
      { drawing: Float64Array.of(9) },
      { drawing: Float64Array.of(4, 255, 1, 1e8, 10, 10, 0, 0) },
      { drawing: Float64Array.of(2, NaN, 0, 0, 0, 0, 0, 0, 0) },
    ];
    for (const page of pages) t.throws(() => drawn(new Drawing(), page), { code: "internal" });
    t.end();
  });

  await t.test("widths are those of the fonts", (t) => {
    t.equal(textWidth("", { size: 14, face: "regular" }), 0);
    t.equal(
      textWidth("a\tb", { size: 14, face: "regular" }),
      textWidth("a b", { size: 14, face: "regular" }),
    );
    t.ok(
      textWidth("abc", { size: 14, face: "bold" }) >
        textWidth("abc", { size: 14, face: "regular" }),
    );
    t.end();
  });
});
