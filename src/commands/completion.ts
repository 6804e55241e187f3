/**
 * `radserve completion bash|zsh`: a script for the shell, made from the tree of commands that there
 * is.
 */
import type { Command } from "commander";

export const SHELLS = ["bash", "zsh"] as const;
export type Shell = (typeof SHELLS)[number];

const isHidden = (command: Command) =>
  (command as unknown as { _hidden?: boolean })._hidden === true;

/**
 * The words that may follow those of each command: its own commands and options. By the words,
 * without the program's name.
 */
function wordsOf(program: Command): Map<string, string[]> {
  const found = new Map<string, string[]>();
  const global = program.options.flatMap(({ long }) => (typeof long === "string" ? [long] : []));
  const visit = (command: Command, path: string) => {
    const below = command.commands.filter((one) => !isHidden(one));
    const own =
      command === program
        ? []
        : command.options.flatMap(({ long }) => (typeof long === "string" ? [long] : []));
    const choices = command.registeredArguments.flatMap(({ argChoices }) => argChoices ?? []);
    found.set(path, [...below.map((one) => one.name()), ...choices, ...own, ...global, "--help"]);
    for (const one of below) visit(one, `${path} ${one.name()}`.trim());
  };
  visit(program, "");
  return found;
}

/** The values that an option may have, by its name. */
function choicesOf(program: Command): Map<string, readonly string[]> {
  const all = (command: Command): Command[] => [command, ...command.commands.flatMap(all)];
  const options = all(program).flatMap((command) => command.options);
  return new Map(
    options.flatMap(({ long, argChoices }) =>
      typeof long === "string" && argChoices !== undefined ? [[long, argChoices]] : [],
    ),
  );
}

/**
 * Walks the words before the cursor, then sets what may follow; in shell that bash and zsh both
 * read.
 */
function shellBody(program: Command): string {
  const words = wordsOf(program);
  const paths = [...words.keys()].filter((path) => path !== "").map((path) => `"${path}"`);
  return `    case "\${at:+$at }$word" in
      ${paths.join(" | ")}) at="\${at:+$at }$word" ;;
    esac
  done
  case "$at" in
${[...words].map(([path, follow]) => `    "${path}") follow=(${follow.join(" ")}) ;;`).join("\n")}
  esac
  case "$before" in
${[...choicesOf(program)].map(([option, choices]) => `    ${option}) follow=(${choices.join(" ")}) ;;`).join("\n")}
  esac`;
}

/** Files and folders are offered where no word of ours fits. */
export function completionScript(program: Command, shell: Shell): string {
  const name = program.name();
  const body = shellBody(program);
  const head = `# Completion of ${name}, made by: ${name} completion ${shell}\n`;
  if (shell === "bash")
    return `${head}_${name}() {
  local current="\${COMP_WORDS[COMP_CWORD]}" before="\${COMP_WORDS[COMP_CWORD-1]}" at="" word
  local -a follow=()
  for word in "\${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
${body}
  COMPREPLY=($(compgen -W "\${follow[*]}" -- "$current"))
}
complete -o default -F _${name} ${name}
`;
  return `#compdef ${name}
${head}_${name}() {
  local before="\${words[CURRENT-1]}" at="" word
  local -a follow
  for word in "\${(@)words[2,CURRENT-1]}"; do
${body}
  compadd -a follow || _files
}
compdef _${name} ${name}
`;
}
