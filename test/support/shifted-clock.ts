/**
 * Loaded before a program (`--import`), so that its clock shows another time: the milliseconds in
 * the file that TEST_CLOCK names are added to it, whenever it is looked at.
 */
import { readFileSync } from "node:fs";

const Real = Date;
const now = () => Real.now() + Number(readFileSync(process.env["TEST_CLOCK"] ?? "", "utf8"));

globalThis.Date = new Proxy(Real, {
  construct: (_, words: ConstructorParameters<DateConstructor> | []) =>
    words.length === 0 ? new Real(now()) : new Real(...words),
  get: (target, name): unknown => (name === "now" ? now : Reflect.get(target, name)),
});
