/** What goes wrong with graphs and tensors. */

/** Each code, and when an error has it. */
export const ENGINE_ERRORS = {
  bad_request: "A call that cannot be meant so: the message says what was expected and found.",
  model_unavailable: "The model cannot be loaded, or is not there any more.",
  output_invalid: "The graph failed on these feeds, or gave what is no tensor.",
  overloaded: "Other runs have the memory now: the same call may succeed later.",
  memory_exceeded: "The run needs more memory than there is, also by itself.",
  deadline_exceeded: "It did not end within `timeoutMs`.",
  cancelled: "Its signal was aborted, or its thread ended.",
  shutting_down: "The engine is closed.",
  internal: "A fault of ONNX Runtime or of the engine.",
} as const;

export type EngineErrorCode = keyof typeof ENGINE_ERRORS;

/** An error of the engine. */
export class EngineError extends Error {
  override readonly name = "EngineError";
  readonly code: EngineErrorCode;
  /** What was expected, and what was found instead, where the error is about a value. */
  readonly expected: string | undefined;
  readonly found: string | undefined;

  /** For a value that is not what was expected, were it even one without a text. @internal */
  static readonly unlike = (
    what: string,
    expected: string,
    given: unknown,
    code: EngineErrorCode = "bad_request",
  ): EngineError => {
    const found = textOf(given);
    return new EngineError(code, `${what}: expected ${expected}, found ${found}.`, {
      expected,
      found,
    });
  };

  constructor(
    code: EngineErrorCode,
    message: string,
    more: { expected?: string; found?: string; cause?: unknown } = {},
  ) {
    super(message, more.cause === undefined ? undefined : { cause: more.cause });
    this.code = code;
    this.expected = more.expected;
    this.found = more.found;
  }
}

export const { unlike } = EngineError;

/** Whatever a caller without types gives: of some objects String() makes no text, but throws. */
export function textOf(value: unknown): string {
  return typeof value === "object" && value !== null ? "an object" : String(value);
}

/** Native errors carry one of the codes; anything else is a fault of ours. */
export function engineErrorOf(thrown: unknown): EngineError {
  if (thrown instanceof EngineError) return thrown;
  const message = thrown instanceof Error ? thrown.message : String(thrown);
  const code = thrown instanceof Error && "code" in thrown ? String(thrown.code) : "";
  const known = Object.hasOwn(ENGINE_ERRORS, code) ? (code as EngineErrorCode) : "internal";
  return new EngineError(known, message, { cause: thrown });
}
