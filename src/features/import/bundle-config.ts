/**
 * A configuration file of a MONAI bundle, JSON or YAML: its values, the lines on which they stand,
 * and what references (@name) and the simplest expressions ($True) mean, as
 * monai.bundle.ConfigParser has them. No expression is run.
 */
import { isAlias, isMap, isScalar, isSeq, LineCounter, parseDocument, type Node } from "yaml";
import { errors } from "../../base/errors.js";

export type ConfigFields = Record<string, unknown>;

/** Text that only Python can work out. */
export class Expression {
  constructor(readonly text: string) {}
}

/** A component elsewhere in the file. */
export class Reference {
  constructor(
    readonly id: string,
    readonly component: ConfigFields,
  ) {}
}

/** References that lead to references; more are a circle. */
const LONGEST_CHAIN = 16;
/** Values that one may come to stand for; lists of references to lists of references multiply. */
const MOST_VALUES = 100_000;

/**
 * One of two constants, by a truth elsewhere in the file: $[1.5, 1.5, 1.5] if @highres else [3.0,
 * 3.0, 3.0].
 */
const CHOICE = /^\$\s*([\d[][\d., [\]]*) if (@[\w:#]+) else ([\d[][\d., [\]]*)$/;

/** The contrary of a truth elsewhere in the file: $(not @raw). */
const CONTRARY = /^\$\s*(?:not (@[\w:#]+)|\(\s*not (@[\w:#]+)\s*\))\s*$/;

const CONSTANTS = new Map<string, unknown>([
  ["True", true],
  ["False", false],
  ["None", null],
  ["torch.float", "float32"],
  ["monai.utils.CommonKeys.IMAGE", "image"],
  ["monai.utils.CommonKeys.LABEL", "label"],
  ["monai.utils.CommonKeys.PRED", "pred"],
]);

export const isFields = (value: unknown): value is ConfigFields =>
  typeof value === "object" && value !== null && Object.getPrototypeOf(value) === null;

export const isComponent = (value: unknown): value is ConfigFields =>
  isFields(value) && "_target_" in value;

/** A value as it stands in the file, for messages. */
export function shown(value: unknown): string {
  if (value === undefined) return "none";
  if (value instanceof Reference) return `"@${value.id}"`;
  if (isFields(value) || Array.isArray(value)) return JSON.stringify(value).slice(0, 80);
  return JSON.stringify(value instanceof Expression ? value.text : value);
}

export class BundleConfig {
  readonly root: ConfigFields;
  private readonly lines = new WeakMap<object, Map<string, number>>();
  /** Values that the one which is being resolved has come to stand for. */
  private values = 0;

  /**
   * @param file its name, which says whether it is YAML
   * @throws RadserveError bad_request for text that is neither, and for a key that is there twice
   */
  constructor(
    readonly file: string,
    text: string,
  ) {
    const counter = new LineCounter();
    const json = file.endsWith(".json");
    // PyYAML reads YAML 1.1
    const document = parseDocument(text, {
      ...(json ? { schema: "json" } : { version: "1.1" }),
      lineCounter: counter,
      prettyErrors: false,
    });
    const [error] = [...document.errors, ...document.warnings];
    const root = error === undefined ? this.plain(document.contents, counter) : undefined;
    if (!isFields(root)) {
      const why =
        error === undefined
          ? ""
          : ` (line ${counter.linePos(error.pos[0]).line}: ${error.message})`;
      throw errors.bad_request(
        `Expected ${json ? "JSON" : "YAML"} with named parts in ${file}; it cannot be read as that${why}.`,
      );
    }
    this.root = root;
  }

  /** Where a component, or a field of it, stands: "inference.json line 12". */
  placeOf(component: object, field = "_target_"): string {
    const line = this.lines.get(component)?.get(field);
    return line === undefined ? this.file : `${this.file} line ${line}`;
  }

  /**
   * The meaning of a value: references are followed as far as a component, constants are worked
   * out.
   * @throws RadserveError bad_request for one that stands for too many
   */
  resolve(value: unknown): unknown {
    this.values = 0;
    return this.meaning(value, 0);
  }

  private meaning(value: unknown, chain: number): unknown {
    this.values += 1;
    if (this.values > MOST_VALUES)
      throw errors.bad_request(
        `Expected references in ${this.file} that stand for at most ${MOST_VALUES} values; one stands for more. Correct the lists of references to lists.`,
      );
    if (Array.isArray(value)) return value.map((one) => this.meaning(one, chain + 1));
    if (typeof value !== "string" || !/^[@$%]/.test(value)) return value;
    const [, met, condition = "", otherwise] = CHOICE.exec(value) ?? [];
    if (met !== undefined) {
      const chosen = this.meaning(condition, chain + 1);
      return typeof chosen === "boolean"
        ? literal(chosen ? met : otherwise, value)
        : new Expression(value);
    }
    const [, plain, bracketed = plain] = CONTRARY.exec(value) ?? [];
    if (bracketed !== undefined) {
      const truth = this.meaning(bracketed, chain + 1);
      return typeof truth === "boolean" ? !truth : new Expression(value);
    }
    const [, reference] = /^(?:\$\s*)?@([\w:#]+)\s*$/.exec(value) ?? [];
    if (reference === undefined) return constant(value);
    const id = reference.replaceAll("#", "::");
    const found = id.split("::").reduce<unknown>(member, this.root);
    if (isComponent(found)) return new Reference(id, found);
    return found === undefined || chain > LONGEST_CHAIN
      ? new Expression(value)
      : this.meaning(found, chain + 1);
  }

  /**
   * A node as plain data. Its objects have no prototype, so that a name from the file is never one
   * of its.
   */
  private plain(node: unknown, counter: LineCounter): unknown {
    if (isAlias(node))
      throw errors.bad_request(
        `Expected no alias in ${this.file}, found *${node.source}: write it out.`,
      );
    if (isScalar(node)) return node.value;
    if (isSeq(node)) return node.items.map((item) => this.plain(item, counter));
    if (!isMap(node)) return undefined;
    const fields = Object.create(null) as ConfigFields;
    const lines = new Map<string, number>();
    for (const { key, value } of node.items) {
      const name = String(isScalar(key) ? key.value : key);
      fields[name] = this.plain(value, counter);
      lines.set(name, counter.linePos((key as Node).range?.[0] ?? 0).line);
    }
    this.lines.set(fields, lines);
    return fields;
  }
}

function member(at: unknown, key: string): unknown {
  if (Array.isArray(at)) return /^\d+$/.test(key) ? (at as unknown[])[Number(key)] : undefined;
  return isFields(at) ? at[key] : undefined;
}

/** A list or a number in an expression. */
function literal(text: string | undefined, expression: string): unknown {
  try {
    return JSON.parse(text ?? "") as unknown;
  } catch {
    return new Expression(expression);
  }
}

function constant(text: string): unknown {
  const code = text.startsWith("$") ? text.slice(1).trim() : "";
  if (CONSTANTS.has(code)) return CONSTANTS.get(code);
  if (/^-?\d+(\.\d*)?(e-?\d+)?$/i.test(code)) return Number(code);
  const [, dtype] = /^(?:np|numpy|torch)\.(\w+\d)$/.exec(code) ?? [];
  return dtype ?? new Expression(text);
}
