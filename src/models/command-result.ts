/** The result of a command about models: `text` for people, `data` for `--json`. */
export interface CommandResult {
  text: string;
  /** 0: done and in order; 1: something is wrong with what was looked at. */
  exitCode: number;
  data: unknown;
}
