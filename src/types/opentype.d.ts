/** The part of opentype.js that Radserve uses; the package ships no types. In Node it exports one default object. */
declare module "opentype.js" {
  export interface Path {
    /** SVG path data. */
    toPathData(decimals: number): string;
  }
  export interface Glyph {
    advanceWidth: number;
    getPath(x: number, y: number, fontSize: number): Path;
  }
  export interface Font {
    unitsPerEm: number;
    charToGlyph(character: string): Glyph;
  }
  const opentype: {
    /** lowMemory: glyphs are read when they are first used. */
    parse(buffer: ArrayBuffer, options: { lowMemory: boolean }): Font;
  };
  export default opentype;
}
