/** The table and the chart of bench:peers: medians over rounds, a bar for each row. */
import t from "tap";
import { chart, rowsOf, type Titles, type Turn } from "../../bench/peers/report.js";

const titles: Titles = { works: { ct: "CT <native>" }, peers: { radserve: "Radserve", script: "script" } };

const turn = (peer: string, round: number, rate: number): Turn => ({
  ...{ work: "ct", outputs: "json", peer, concurrency: 4, round, images_per_second: rate },
  ...{ cpu_ms: 10 * rate, peak_mib: 100 + round, p50_ms: round, p99_ms: 2 * round },
});

const turns = [
  ...[turn("radserve", 0, 30), turn("script", 0, 20)],
  ...[turn("script", 1, 24), turn("radserve", 1, 10)],
  ...[turn("radserve", 2, 50), turn("script", 2, 22)],
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
