/** A result with its image: the picture, what is marked on it, its slices, and everything that the receipt says. */
import { useContext, useEffect, useMemo, useState } from "preact/hooks";
import { stepText } from "../src/images/step-text.js";
import type { Receipt } from "../src/results/receipt/receipt.js";
import type { Marks, Verification } from "../src/viewing/messages.js";
import { asked, call, callBlob, judge, useLoaded, type Fault } from "./api.js";
import { baseName, bytes, bytesOf, count, words } from "./format.js";
import { Kept } from "./kept.js";
import { Allowed, Badge, Card, Copy, FaultNote, Table, type Tone } from "./parts.js";
import { ModelResult, valueText } from "./result.js";
import { Corners, Drawn, EyeTools, innerWidth, useEye, useFrame } from "./viewer.js";

type Model = Receipt["models"][number];

interface Paths {
  receiptPath: string;
  inputPath: string;
}

const SEGMENTATIONS = new Set(["1.2.840.10008.5.1.4.1.1.66.4", "1.2.840.10008.5.1.4.1.1.66.7"]);
const hasMasks = ({ outputs }: Model) =>
  outputs.some(({ sop_class_uid: uid }) => uid !== undefined && SEGMENTATIONS.has(uid));
const hasBoxes = ({ findings }: Model) =>
  findings.some(({ box, point }) => box !== undefined || point !== undefined);

function pngBlob(base64: string): Blob {
  return new Blob([bytesOf(base64)], { type: "image/png" });
}

function useMarks({ receiptPath }: Paths, model: Model | undefined, frame: number) {
  const page =
    model === undefined || !hasMasks(model)
      ? null
      : asked("/results/marks", { path: receiptPath, model: model.name, frame });
  const loaded = useLoaded(page, async (signal) => ({
    page,
    marks: await call<Marks>("GET", page ?? "", { signal }),
  }));
  // Marks of another frame are never laid over this one
  const mine = page !== null && loaded.data?.page === page ? loaded.data.marks : undefined;
  const url = useMemo(
    () => (typeof mine?.png === "string" ? URL.createObjectURL(pngBlob(mine.png)) : undefined),
    [mine],
  );
  useEffect(() => () => (url === undefined ? undefined : URL.revokeObjectURL(url)), [url]);
  return { marks: mine, url, fault: loaded.fault };
}

/** Boxes, points and lines of a frame, in the source's pixels. */
function Boxes({
  model,
  frame,
  receipt,
  labels,
}: {
  model: Model;
  frame: number;
  receipt: Receipt;
  labels: boolean;
}) {
  const { rows, columns } = receipt.source;
  const here = model.findings.filter(
    ({ frame: of, frames, present }) => present && (frames?.includes(frame) ?? (of ?? 1) === frame),
  );
  const placed = here.flatMap(({ box, corners, point, label, score }) => {
    const corner = corners?.[0] ?? (box === undefined ? point : { x: box.x0, y: box.y0 });
    const said = score === undefined ? label : `${label} ${score.toFixed(2)}`;
    return corner === undefined ? [] : [{ box, corners, corner, said }];
  });
  const measured = model.measurements.flatMap((one) => {
    const [[from, to] = []] = one.lines ?? [];
    if (from === undefined || to === undefined || (one.frame ?? 1) !== frame) return [];
    // The names of points stand at the points
    const corner = { x: (from.x + to.x) / 2, y: (from.y + to.y) / 2 };
    return [{ lines: one.lines ?? [], corner, said: `${one.name} ${valueText(one)}` }];
  });
  return (
    <>
      <svg class="over" viewBox={`0 0 ${columns} ${rows}`} preserveAspectRatio="none" aria-hidden="true">
        {measured.flatMap(({ lines }, i) =>
          lines.map((line, n) => <polyline key={`${i} ${n}`} points={listed(line)} />),
        )}
        {placed.map(({ box, corners, corner: { x, y } }, i) =>
          corners !== undefined ? (
            <polygon key={i} points={listed(corners)} />
          ) : box === undefined ? (
            <path key={i} d={`M ${x} ${y} h 0`} />
          ) : (
            <rect key={i} x={x} y={y} width={box.x1 - x} height={box.y1 - y} />
          ),
        )}
      </svg>
      {labels && (
        <div class="over stage-labels" aria-hidden="true">
          {[
            ...placed.map((one) => ({ ...one, isPoint: one.box === undefined })),
            ...measured.map((one) => ({ ...one, isPoint: false })),
          ].map(({ isPoint, corner: { x, y }, said }, i) => {
            const across = (100 * x) / columns;
            // The label of a point lies over or under it, and within the picture; points mostly lie side by side
            const beside = i % 2 === 1 ? "0.3rem" : "calc(-100% - 0.3rem)";
            const style = {
              ...{ left: `${across}%`, top: `${(100 * y) / rows}%` },
              ...(isPoint ? { transform: `translate(${-across}%, ${beside})` } : {}),
            };
            return (
              <span key={i} style={style}>
                {said}
              </span>
            );
          })}
        </div>
      )}
    </>
  );
}

const listed = (points: readonly { x: number; y: number }[]): string =>
  points.map(({ x, y }) => `${x},${y}`).join(" ");

type Shape = [width: number, height: number];

/** The place of the picture in its true proportions: whatever lies over it has the same edges. */
const boxOf = ([width, height]: Shape) => ({
  aspectRatio: `${width} / ${height}`,
  width: innerWidth([width, height]),
});

function Stage({
  paths,
  receipt,
  frame,
  setFrame,
}: {
  paths: Paths;
  receipt: Receipt;
  frame: number;
  setFrame: (frame: number) => void;
}) {
  const { frames } = receipt.source;
  const drawn = receipt.models.filter((model) => hasMasks(model) || hasBoxes(model));
  const [chosen, choose] = useState(drawn[0]?.name ?? "");
  const [opacity, setOpacity] = useState(50);
  const [labels, setLabels] = useState(true);
  const model = drawn.find(({ name }) => name === chosen);
  const pictures = useMemo(() => new Kept<string>((url) => URL.revokeObjectURL(url)), []);
  useEffect(() => () => pictures.forget(), [pictures]);
  const [hidden, hide] = useState("");
  const seen = useFrame(paths, frame);
  const step = (by: number) => setFrame(Math.min(frames, Math.max(1, frame + by)));
  const overlay = () => {
    hide(chosen);
    choose(hidden);
  };
  const { eye, setEye, window, probe, stage, handlers } = useEye(seen.frame, { step, overlay });
  // The server draws what the browser cannot: colours, tables, curves
  const page =
    seen.frame === undefined || window !== undefined
      ? null
      : asked("/results/picture", { path: paths.receiptPath, input_path: paths.inputPath, frame });
  const picture = useLoaded(page, async (signal) => ({
    page,
    url: await pictures.get(page ?? "", async () =>
      URL.createObjectURL(new Blob([await callBlob(page ?? "", signal)], { type: "image/png" })),
    ),
  }));
  const { marks, url, fault } = useMarks(paths, model, frame);
  const [shape, setShape] = useState<Shape>([receipt.source.columns, receipt.source.rows]);
  const here = page !== null && picture.data?.page === page ? picture.data.url : undefined;
  const shown = window === undefined && here === undefined ? undefined : seen.frame;
  const unit = receipt.source.slices === undefined ? "Frame" : "Slice";
  const alt = `${unit} ${frame} of ${frames} of ${baseName(paths.inputPath)}`;
  const facts = seen.frame?.facts;
  useEffect(() => {
    if (facts !== undefined) setShape([facts.columns, facts.rows * facts.pixel_aspect]);
  }, [facts]);
  return (
    <Card title="Picture" wide>
      <div
        class="stage"
        ref={stage}
        data-frame={shown === undefined ? "" : frame}
        tabIndex={0}
        role="application"
        aria-label="Picture"
        aria-describedby="stage-keys"
        {...handlers}
      >
        {shown !== undefined && (
          <div
            class="stage-inner"
            style={{
              ...boxOf(shape),
              transform: `translate(${eye.pan[0]}px, ${eye.pan[1]}px) scale(${eye.zoom})`,
            }}
          >
            {window !== undefined ? (
              <Drawn frame={shown} window={window} inverted={eye.inverted} label={alt} />
            ) : (
              <img
                class="over picture"
                src={here}
                style={eye.inverted ? { filter: "invert(1)" } : {}}
                onLoad={({ currentTarget: { naturalWidth, naturalHeight } }) =>
                  setShape([naturalWidth, naturalHeight])
                }
                alt={alt}
              />
            )}
            {url !== undefined && (
              <img class="over marks" src={url} alt="" style={{ opacity: String(opacity / 100) }} />
            )}
            {model !== undefined && hasBoxes(model) && (
              <Boxes model={model} frame={frame} receipt={receipt} labels={labels} />
            )}
          </div>
        )}
        {shown === undefined && <div class="stage-inner" style={boxOf(shape)} />}
        {shown !== undefined && (
          <Corners
            frame={shown}
            window={window}
            place={frames === 1 ? "" : `${unit} ${count(frame)} of ${count(frames)}`}
            probe={probe}
            zoom={eye.zoom}
          />
        )}
      </div>
      {seen.fault !== undefined && <FaultNote fault={seen.fault} />}
      {picture.fault !== undefined && <FaultNote fault={picture.fault} />}
      {fault !== undefined && <FaultNote fault={fault} />}
      <div class="tools">
        {frames > 1 && (
          <label class="slice">
            <span class="figure">
              {unit} {count(frame)} of {count(frames)}
            </span>
            <input
              type="range"
              aria-label={unit}
              min={1}
              max={frames}
              value={frame}
              onInput={({ currentTarget }) => setFrame(Number(currentTarget.value))}
            />
          </label>
        )}
        <EyeTools frame={seen.frame} eye={eye} setEye={setEye} />
        {drawn.length > 0 && (
          <label>
            Overlay
            <select value={chosen} onChange={({ currentTarget }) => choose(currentTarget.value)}>
              {drawn.map(({ name }) => (
                <option key={name} value={name}>
                  {name}
                </option>
              ))}
              <option value="">none</option>
            </select>
          </label>
        )}
        {model !== undefined && hasMasks(model) && (
          <label>
            Opacity
            <input
              type="range"
              min={0}
              max={100}
              value={opacity}
              onInput={({ currentTarget }) => setOpacity(Number(currentTarget.value))}
            />
          </label>
        )}
        {model !== undefined && (
          <label>
            <input
              type="checkbox"
              checked={labels}
              onChange={({ currentTarget }) => setLabels(currentTarget.checked)}
            />
            Labels
          </label>
        )}
      </div>
      {labels && marks !== undefined && (
        <ul class="legend" aria-label="Labels">
          {marks.segments.map(({ number, label, colour, pixels }) => (
            <li key={number}>
              <span class="swatch" style={{ borderColor: colour, background: tints(colour, opacity) }} />
              {label} <span class="quiet">{count(pixels)} pixels</span>
            </li>
          ))}
        </ul>
      )}
      <p class="quiet" id="stage-keys">
        Keys: arrows go through slices, + and − zoom, f fits, i inverts, o switches the overlay. Only the
        image that the receipt names is shown. A drag sets the window, with Shift it moves the picture; Ctrl
        and the wheel zoom. For orientation; a diagnosis is made at a workstation.
      </p>
    </Card>
  );
}

/** A mask's colour as it looks on black, grey and white, at an opacity in percent. */
function tints(colour: string, opacity: number): string {
  const over = (under: string) => `color-mix(in srgb, ${colour} ${opacity}%, ${under})`;
  return `linear-gradient(90deg, ${over("black")} 33%, ${over("#808080")} 33% 67%, ${over("white")} 67%)`;
}

function Steps({ title, steps }: { title: string; steps: Receipt["transforms"] }) {
  if (steps.length === 0) return null;
  return (
    <details>
      <summary>{title}</summary>
      <ol>
        {steps.map((step, i) => (
          <li key={i}>{stepText(step)}</li>
        ))}
      </ol>
    </details>
  );
}

function Files({ receipt, paths }: { receipt: Receipt; paths: Paths }) {
  const gives = useContext(Allowed).includes("download");
  const [fault, setFault] = useState<Fault>();
  const folder = paths.receiptPath.slice(0, -baseName(paths.receiptPath).length);
  const files = [
    { path: baseName(paths.receiptPath), media_type: "application/json", bytes: undefined },
    ...receipt.models.flatMap(({ outputs }) => outputs),
  ];
  const save = async (path: string) => {
    setFault(undefined);
    try {
      const url = URL.createObjectURL(await callBlob(asked("/files", { path: folder + path })));
      const link = document.createElement("a");
      link.href = url;
      link.download = path;
      link.click();
      setTimeout(() => URL.revokeObjectURL(url), 60_000);
    } catch (thrown) {
      setFault(judge(thrown));
    }
  };
  return (
    <Card title="Files" wide>
      {fault !== undefined && <FaultNote fault={fault} />}
      <ul class="files">
        {files.map((file) => (
          <li key={file.path}>
            <code>{file.path}</code>{" "}
            <span class="quiet">
              {file.media_type}
              {file.bytes !== undefined && `, ${bytes(file.bytes)}`}
            </span>{" "}
            {gives && (
              <button type="button" class="small" onClick={() => void save(file.path)}>
                Save<span class="unseen"> {file.path}</span>
              </button>
            )}{" "}
            <Copy text={folder + file.path} what={`the path of ${file.path}`} />
          </li>
        ))}
      </ul>
    </Card>
  );
}

const VERDICTS: Readonly<Record<Verification["checks"][number]["verdict"], Tone>> = {
  ok: "good",
  differs: "bad",
  missing: "bad",
  not_replayed: "warn",
  known_fault: "warn",
};

function Verify({ paths }: { paths: Paths }) {
  const [busy, setBusy] = useState(false);
  const [fault, setFault] = useState<Fault>();
  const [found, setFound] = useState<Verification>();
  const verify = async () => {
    setBusy(true);
    setFault(undefined);
    try {
      const page = asked("/results/verification", { path: paths.receiptPath, input_path: paths.inputPath });
      setFound(await call<Verification>("GET", page, { patient: true }));
    } catch (thrown) {
      setFault(judge(thrown));
    }
    setBusy(false);
  };
  return (
    <Card title="Verify this result" wide>
      <p>Every file is compared with the receipt, and the models compute the result again.</p>
      <div class="orders">
        <button type="button" disabled={busy} onClick={() => void verify()}>
          {busy ? "Recomputing…" : "Verify"}
        </button>
      </div>
      <div aria-live="polite">
        {fault !== undefined && <FaultNote fault={fault} />}
        {found !== undefined && (
          <>
            <p class={found.equal ? "note" : "note bad"}>
              {found.equal
                ? "Verified: every file and every replayed result is equal."
                : "Not verified: something differs, is missing or cannot be replayed."}
            </p>
            <Table label="Checks" stacks head={["What", "Verdict", "Why"]}>
              {found.checks.map(({ what, verdict, detail }, i) => (
                <tr key={i}>
                  <th scope="row" class="path">
                    {what}
                  </th>
                  <td>
                    <Badge state={verdict} tone={VERDICTS[verdict]} />
                  </td>
                  <td>{detail}</td>
                </tr>
              ))}
            </Table>
          </>
        )}
      </div>
    </Card>
  );
}

/** The result of a model for one frame, and for the whole. */
const onFrame = (model: Model, frame: number): Model => ({
  ...model,
  findings: model.findings.filter((one) => one.frame === undefined || one.frame === frame),
  measurements: model.measurements.filter((one) => one.frame === undefined || one.frame === frame),
});

export function Look(paths: Paths) {
  const page = asked("/results", { path: paths.receiptPath });
  const { data: receipt, fault, busy } = useLoaded(page, (signal) => call<Receipt>("GET", page, { signal }));
  const [frame, setFrame] = useState(1);
  const [all, setAll] = useState(false);
  if (fault !== undefined) return <FaultNote fault={fault} />;
  if (receipt === undefined || busy) return <p class="quiet">Loading…</p>;
  const many = receipt.source.frames > 1;
  const part = receipt.source.slices === undefined ? "frame" : "slice";
  return (
    <section class="grid wide" aria-label="What was found">
      <Stage paths={paths} receipt={receipt} frame={frame} setFrame={setFrame} />
      {receipt.warnings.map(({ code, message }) => (
        <p key={code + message} class="note warn wide">
          <strong>{words(code)}</strong> {message}
        </p>
      ))}
      {many && (
        <label class="stat wide">
          <input
            type="checkbox"
            checked={all}
            onChange={({ currentTarget }) => setAll(currentTarget.checked)}
          />
          Findings of all {part}s
        </label>
      )}
      {receipt.models.map((model) => (
        <ModelResult
          key={model.name}
          model={many && !all ? onFrame(model, frame) : model}
          part={part}
          files={false}
          show={many && all ? setFrame : undefined}
        >
          <Steps
            title="From the file to the model, step by step"
            steps={[...receipt.transforms, ...model.transforms]}
          />
          <Steps title="From the model's numbers to boxes" steps={model.decoding ?? []} />
        </ModelResult>
      ))}
      <Files receipt={receipt} paths={paths} />
      <Verify paths={paths} />
    </section>
  );
}
