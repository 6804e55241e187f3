/** What the linker and the compiler put into the addons that are shipped. */
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { ADDON, needs } from "../support/needs.js";
import { root } from "../support/server.js";

/**
 * Each file, the targets of CMake with its own sources, and whether the compiler knows the size of
 * some memory there.
 */
const ADDONS = [
  { name: "addon.node", targets: ["addon"], checks: true },
  { name: "engine.node", targets: ["engine", "radserve_graph_addon"], checks: false },
  { name: "confine.node", targets: ["confine", "radserve_confine"], checks: false },
];

for (const { name, targets, checks } of ADDONS)
  t.test(
    `${name}: its tables are read-only, and overruns are caught`,
    { skip: needs(ADDON) },
    (t) => {
      const read = (what: string) =>
        execFileSync("readelf", ["--wide", what, path.join(root, "build/Release", name)], {
          encoding: "utf8",
        });
      t.match(read("--segments"), /^\s*GNU_RELRO\s/m);
      t.match(read("--segments"), /^\s*GNU_STACK\s.*\sRW\s/m, "no code on the stack");
      t.match(
        read("--dynamic"),
        /\(FLAGS\).*BIND_NOW/,
        "every symbol is bound before the tables are closed",
      );
      t.notMatch(read("--dynamic"), /\(TEXTREL\)/);
      t.match(read("--dyn-syms"), /\s__stack_chk_fail@/);
      // FORTIFY leaves a symbol only where a size is known when running alone; what the compiler
      // was told covers every file
      if (checks) t.match(read("--dyn-syms"), /\s__(?!stack)\w+_chk@/, "FORTIFY is at work");
      const commands = JSON.parse(
        readFileSync(path.join(root, "build/compile_commands.json"), "utf8"),
      ) as {
        command: string;
        file: string;
      }[];
      for (const target of targets) {
        const own = commands.filter(({ command }) =>
          command.includes(` -o CMakeFiles/${target}.dir/`),
        );
        t.ok(own.length > 0, target);
        for (const { command, file } of own)
          t.match(
            command,
            /-O[23] .*-fstack-protector-strong .*-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2 /,
            file,
          );
      }
      t.end();
    },
  );
