/**
 * Declares the commands. Commander gets their names and options at once; the code of a command is
 * loaded only when it runs, because loading modules is most of the time that a command needs to
 * start.
 */
import type { HowRun } from "./run.js";
import type { Command } from "commander";
import { Option } from "commander";
import type { Interaction } from "../audit/interaction.js";
import type { Config } from "../config.js";

/** A command: it has the settings, then its arguments in their order, then its options. */
type CommandWork = (config: Config, ...given: never[]) => Promise<number>;

/** Meanings of exit statuses, where they mean more than done and failed. */
type Statuses = Readonly<Record<number, string>>;

/** For an option that may be given several times. */
export const several = (value: string, before: string[] | undefined): string[] => [
  ...(before ?? []),
  value,
];

/**
 * The command line: where a feature adds its commands. It imports the type alone: a server, which
 * has no commands, loads feature.ts too.
 */
export class CommandLine {
  /** What `--json` does. */
  readonly jsonHelp = "print JSON, for programs";
  readonly #statuses = new Map<string, Statuses>();

  /**
   * @param config reads the settings, and throws ConfigError
   * @param interactions what each endpoint of the server does, in FHIR's words
   */
  constructor(
    readonly program: Command,
    readonly config: () => Promise<Config>,
    readonly interactions: () => Promise<(endpoint: string) => Interaction | undefined>,
  ) {}

  /** A command with subcommands, which several places may add to. */
  group(name: string, description = ""): Command {
    const known = this.program.commands.find((one) => one.name() === name);
    const group = known ?? this.program.command(name);
    return description === "" ? group : group.description(description);
  }

  /** `--limit` of commands that list, with how many there are without it. */
  limit(what: string, usual: string): Option {
    return new Option("--limit <number>", what).default(usual, usual);
  }

  /** The action of a command, whose options may have `json`. */
  does(load: () => Promise<CommandWork>): (...given: unknown[]) => Promise<void> {
    return (...given) => {
      // Commander gives the command itself last
      const { json } = given.at(-2) as { json?: boolean };
      return this.run(async () => (await load())(await this.config(), ...(given as never[])), {
        json,
      });
    };
  }

  /** Runs it to its exit status; errors become sentences. */
  async run(command: () => Promise<number>, how?: HowRun): Promise<void> {
    await (await import("./run.js")).run(command, how);
  }

  /** @param words of the command, for example "jobs reconcile" */
  statuses(words: string, meanings: Statuses): void {
    this.#statuses.set(words, meanings);
  }

  /**
   * Every help text ends with the exit statuses of its command, or of those below it; a wrong call
   * names that text.
   */
  tellStatuses(command: Command = this.program, words: string[] = []): void {
    command.addHelpText("after", this.#statusesOf(words.join(" ")));
    command.showHelpAfterError(`(see ${["radserve", ...words, "--help"].join(" ")})`);
    for (const below of command.commands) this.tellStatuses(below, [...words, below.name()]);
  }

  #statusesOf(words: string): string {
    const meanings = {
      0: "done",
      1: "failed; standard error says why",
      2: "usage or configuration error",
      ...this.#statuses.get(words),
    };
    const lines = Object.entries(meanings).map(
      ([status, meaning]) => `  ${status.padEnd(4)} ${meaning}`,
    );
    return `\nExit status:\n${lines.join("\n")}`;
  }
}
