/** The table and the chart of bench peers: medians over rounds, a bar for each row. */
import t from "tap";
import { chart, markdown, rowsOf, withReport, type Titles } from "../../bench/peers/report.js";
import type { Turn } from "../../bench/peers/turns.js";

const titles: Titles = {
  works: { ct: "CT <native>" },
  peers: { radserve: "Radserve", script: "script" },
};

const turn = (peer: string, round: number, rate: number): Turn => ({
  work: "ct",
  outputs: "json",
  peer,
  concurrency: 4,
  round,
  images_per_second: rate,
  cpu_ms: 10 * rate,
  peak_mib: 100 + round,
  p50_ms: round,
  p99_ms: 2 * round,
});

const turns = [
  turn("radserve", 0, 30),
  turn("script", 0, 20),
  turn("script", 1, 24),
  turn("radserve", 1, 10),
  turn("radserve", 2, 50),
  turn("script", 2, 22),
];

t.test("a row has the median and the ends of its rounds", (t) => {
  const [own, script, ...others] = rowsOf(turns);
  t.same(others, []);
  t.match(own, { peer: "radserve", concurrency: 4, rate: { median: 30, least: 10, most: 50 } });
  t.match(own, { cpuMs: 300, mib: 101, p50: 1, p99: 2 });
  t.match(script, { peer: "script", rate: { median: 22, least: 20, most: 24 } });
  t.end();
});

t.test("bars are as long as their medians to each other", (t) => {
  const svg = chart(rowsOf(turns), titles);
  const lengths = [...svg.matchAll(/<rect x="\d+" y="\d+" width="([\d.]+)"/g)].map(([, width]) =>
    Number(width),
  );
  t.equal(lengths.length, 2);
  const [own = 0, script = 0] = lengths;
  t.ok(Math.abs(own / script - 30 / 22) < 0.01);
  t.match(svg, "CT &lt;native&gt;; json");
  t.match(svg, "Radserve, 4 at once");
  t.end();
});

t.test("the page has the new report in place of the old one, and all else as it was", (t) => {
  const page =
    "Before.\n\n<!-- what npm run bench -- peers wrote -->\n\nold\n\n<!-- its end -->\n\nAfter.\n";
  const made = withReport(page, { said: ["What ran."], turns }, titles);
  t.match(made, /^Before\.\n\n<!-- what[^]*What ran\.\n\n!\[[^]*<!-- its end -->\n\nAfter\.\n$/);
  t.notMatch(made, "old");
  t.match(
    made,
    "| CT <native>; json | 4 | Radserve | 30.0 (10.0 to 50.0) | 300 | 101 | 1.0, 2.0 |",
  );
  t.equal(withReport(made, { said: ["What ran."], turns }, titles), made);
  t.throws(() => withReport("no place", { said: [], turns }, titles), { message: /no place/ });
  t.end();
});

t.test("a table is Markdown below its title", (t) => {
  t.equal(
    markdown({
      title: "Growth",
      head: ["pixels", "ms"],
      rows: [
        ["512", "4"],
        ["1024", "16"],
      ],
    }),
    "**Growth**\n\n| pixels | ms |\n| --- | --- |\n| 512 | 4 |\n| 1024 | 16 |",
  );
  t.end();
});
