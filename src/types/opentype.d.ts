/** The part of opentype.js that Radserve uses; the package ships no types. In Node it exports one default object. */
declare module "opentype.js" {
  export interface Path {
    /** SVG path data. */
    toPathData(decimals: number): string;
  }
  export interface Glyph {
    index: number;
    advanceWidth: number;
    getPath(x: number, y: number, fontSize: number): Path;
  }
  export interface Font {
    unitsPerEm: number;
    ascender: number;
    descender: number;
    charToGlyph(character: string): Glyph;
    getKerningValue(left: Glyph, right: Glyph): number;
  }
  const opentype: { parse(buffer: ArrayBuffer): Font };
  export default opentype;
}
