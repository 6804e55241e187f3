/** The part of opentype.js that Radserve uses; the package ships no types. In Node it exports one default object. */
declare module "opentype.js" {
  interface Path {
    /** SVG path data. */
    toPathData(decimals: number): string;
  }
  interface Glyph {
    index: number;
    advanceWidth: number;
    getPath(x: number, y: number, fontSize: number): Path;
  }
  interface Font {
    unitsPerEm: number;
    ascender: number;
    descender: number;
    charToGlyph(character: string): Glyph;
    getKerningValue(left: Glyph, right: Glyph): number;
  }
  const opentype: { parse(buffer: ArrayBuffer): Font };
  export default opentype;
}
