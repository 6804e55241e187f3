/**
 * The last hour as two charts; what they show stands beside them in words for whoever cannot see
 * them.
 */
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import type { Overview } from "../src/server/overview.js";
import { count, milliseconds } from "./format.js";

type Minute = Overview["history"][number];

interface ChartLine {
  label: string;
  colour: string;
  values: (number | null)[];
  bars?: boolean;
}

const HEIGHT = 180;
const dark = window.matchMedia("(prefers-color-scheme: dark)");

function colourOf(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function optionsOf(
  width: number,
  lines: ChartLine[],
  show: (value: number) => string,
): uPlot.Options {
  const [ink, rule] = [colourOf("--quiet"), colourOf("--line")];
  const axis = {
    stroke: ink,
    grid: { stroke: rule, width: 1 },
    ticks: { show: false },
    font: "12px system-ui, sans-serif",
  };
  return {
    width,
    height: HEIGHT,
    padding: [8, 8, 0, 0],
    cursor: { points: { show: false }, drag: { x: false, y: false } },
    legend: { show: true, live: false },
    scales: { y: { range: (_, __, most) => [0, Math.max(most * 1.1, 1)] } },
    axes: [
      {
        ...axis,
        size: 30,
        values: [[60, "{HH}:{mm}", null, null, null, null, null, null, 1]],
        space: 60,
      },
      { ...axis, size: 62, values: (_, marks) => marks.map((mark) => show(mark)) },
    ],
    series: [
      {},
      ...lines.map(({ label, colour, bars = false }) => ({
        label,
        stroke: colourOf(colour),
        width: bars ? 0 : 2,
        points: { show: !bars, size: 4, fill: colourOf(colour) },
        ...(bars && uPlot.paths.bars !== undefined
          ? { fill: colourOf(colour), paths: uPlot.paths.bars({ size: [0.7, 12] }) }
          : {}),
      })),
    ],
  };
}

function Chart({
  name,
  minutes,
  lines,
  show,
  words,
}: {
  name: string;
  minutes: Minute[];
  lines: ChartLine[];
  show: (value: number) => string;
  words: string;
}) {
  const place = useRef<HTMLDivElement>(null);
  const data = [
    minutes.map(({ at }) => Date.parse(at) / 1000),
    ...lines.map(({ values }) => values),
  ] as uPlot.AlignedData;
  const now = useRef(data);
  now.current = data;
  const drawn = useRef<uPlot | undefined>(undefined);
  useEffect(() => {
    const { current: holder } = place;
    if (holder === null) return;
    const draw = () => {
      drawn.current?.destroy();
      drawn.current = new uPlot(optionsOf(holder.clientWidth, lines, show), now.current, holder);
    };
    const watch = new ResizeObserver(() => {
      if (drawn.current?.width !== holder.clientWidth)
        drawn.current?.setSize({ width: holder.clientWidth, height: HEIGHT });
    });
    draw();
    watch.observe(holder);
    dark.addEventListener("change", draw);
    return () => {
      dark.removeEventListener("change", draw);
      watch.disconnect();
      drawn.current?.destroy();
      drawn.current = undefined;
    };
  }, []);
  useEffect(() => drawn.current?.setData(data), [minutes]);
  return (
    <figure class="chart">
      <figcaption>
        <h3>{name}</h3>
        <p class="quiet">{words}</p>
      </figcaption>
      <div ref={place} aria-hidden="true" />
    </figure>
  );
}

export function LastHour({ minutes }: { minutes: Minute[] }) {
  const images = minutes.reduce((sum, minute) => sum + minute.images, 0);
  const failed = minutes.reduce((sum, minute) => sum + minute.failed, 0);
  const most = Math.max(...minutes.map((minute) => minute.images));
  const timed = minutes.filter(({ p50_ms }) => p50_ms !== null);
  const slowest = Math.max(0, ...timed.map(({ p95_ms }) => p95_ms ?? 0));
  return (
    <div class="charts">
      <Chart
        name="Images a minute"
        minutes={minutes}
        show={count}
        words={`${count(images)} done, ${count(failed)} failed; at most ${count(most)} in a minute`}
        lines={[
          {
            label: "Done",
            colour: "--accent",
            bars: true,
            values: minutes.map((minute) => minute.images),
          },
          {
            label: "Failed",
            colour: "--bad",
            bars: true,
            values: minutes.map((minute) => minute.failed),
          },
        ]}
      />
      <Chart
        name="Time of a single request"
        minutes={minutes}
        show={milliseconds}
        words={
          timed.length === 0
            ? "No single request in the last hour"
            : `19 of 20 took less than ${milliseconds(slowest)} in the slowest minute`
        }
        lines={[
          { label: "Median", colour: "--accent", values: minutes.map((minute) => minute.p50_ms) },
          { label: "95 %", colour: "--second", values: minutes.map((minute) => minute.p95_ms) },
        ]}
      />
    </div>
  );
}
