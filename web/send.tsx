/** One image, series or folder sent by its path, and what came of it. */
import { useContext, useEffect, useState } from "preact/hooks";
import type { Accepted } from "../src/jobs/schema.js";
import type { Answer } from "../src/results/receipt/receipt.js";
import type { Overview } from "../src/server/overview.js";
import type { PathList } from "../src/features/viewer/endpoints.js";
import { call, faultOfPage, isPassing, judge, sendFile, session, type Fault } from "./api.js";
import { chosenFiles } from "./files.js";
import type { Given, GivenFile, Refusal } from "./given.js";
import { bytes, counted } from "./format.js";
import { Allowed, FaultNote } from "./parts.js";
import { Result } from "./answer.js";

const KINDS = [
  ["png", "Picture"],
  ["sr", "Structured report"],
  ["seg", "Segmentation"],
  ["rtstruct", "Contours (RTSTRUCT)"],
  ["sc", "Secondary capture"],
] as const;

function Choice({
  legend,
  hint,
  names,
  chosen,
  choose,
}: {
  legend: string;
  hint: string;
  names: readonly (readonly [name: string, label: string])[];
  chosen: readonly string[];
  choose: (chosen: string[]) => void;
}) {
  return (
    <fieldset>
      <legend>{legend}</legend>
      <p class="quiet">{hint}</p>
      <div class="choices">
        {names.map(([name, label]) => (
          <label key={name}>
            <input
              type="checkbox"
              checked={chosen.includes(name)}
              onChange={({ currentTarget }) =>
                choose(
                  currentTarget.checked ? [...chosen, name] : chosen.filter((one) => one !== name),
                )
              }
            />
            {label}
          </label>
        ))}
      </div>
    </fieldset>
  );
}

/** So long after the last key the server is asked how the path may go on. */
const TYPED_MS = 200;

function usePaths(side: string, typed: string): PathList["paths"] {
  const looks = useContext(Allowed).includes("view");
  const [paths, setPaths] = useState<PathList["paths"]>([]);
  useEffect(() => {
    if (!looks) return;
    const end = new AbortController();
    const ask = () =>
      call<PathList>("POST", "/paths", { body: { side, path: typed }, signal: end.signal }).then(
        (answer) => setPaths(answer.paths),
        // A path that cannot be completed is told when it is sent
        () => setPaths([]),
      );
    const timer = window.setTimeout(() => void ask(), TYPED_MS);
    return () => {
      window.clearTimeout(timer);
      end.abort();
    };
  }, [side, typed, looks]);
  return paths;
}

function Path({
  name,
  label,
  hint,
  value,
  change,
}: {
  name: string;
  label: string;
  hint: string;
  value: string;
  change: (value: string) => void;
}) {
  const paths = usePaths(name, value);
  return (
    <div class="field">
      <label for={name}>{label}</label>
      <input
        id={name}
        name={name}
        value={value}
        required
        spellcheck={false}
        autocomplete="off"
        list={`${name}-paths`}
        aria-describedby={`${name}-hint`}
        onInput={({ currentTarget }) => change(currentTarget.value)}
      />
      <datalist id={`${name}-paths`}>
        {paths.map(({ path, kind }) => (
          <option key={path} value={kind === "folder" ? `${path}/` : path} />
        ))}
      </datalist>
      <p id={`${name}-hint`} class="quiet">
        {hint}
      </p>
    </div>
  );
}

/**
 * The folder that dropped files go to: beside what was typed, else the first that the token
 * reaches.
 */
async function folderFor(typed: string, looks: boolean): Promise<string> {
  // Never into files that were given before: they are another patient's
  const beside = typed
    .replace(/\/dropped-\w+(\/.*)?$/, "/")
    .split("/")
    .slice(0, -1)
    .join("/");
  const [first] =
    beside !== "" || !looks
      ? []
      : (await call<PathList>("POST", "/paths", { body: { side: "input" } })).paths;
  const folder = beside === "" ? first?.path : beside;
  if (folder === undefined)
    throw faultOfPage(
      "There is no folder to upload to: type the path of an image folder first, with a slash at its end.",
    );
  return `${folder}/dropped-${new Date().toISOString().replace(/\W|\.\d+/g, "")}`;
}

/** Paths that somebody wants to send once more; the form takes them when it opens. */
export const sendAgain: { paths: { input: string; output: string } | undefined } = {
  paths: undefined,
};

/** How far files that were given by hand are. */
interface Upload {
  folder: string;
  /** Those that are not sent yet. */
  left: readonly GivenFile[];
  sent: readonly GivenFile[];
  refused: readonly Refusal[];
  bytes: number;
  all: { files: number; bytes: number };
}

const above = (path: string): string => path.slice(0, Math.max(0, path.lastIndexOf("/")));

/** What is sent of them: the file, the folder in which all lie, or several folders. */
function inputOf({ folder, sent }: Upload): { path: string; many: boolean } | undefined {
  const [first, ...others] = sent;
  if (first === undefined) return undefined;
  if (others.length === 0) return { path: `${folder}/${first.path}`, many: false };
  const folders = new Set(sent.map(({ path }) => above(path)));
  const [only = ""] = folders;
  return folders.size > 1
    ? { path: folder, many: true }
    : { path: only === "" ? folder : `${folder}/${only}`, many: false };
}

/** The chooser for files and folders, and how far those are that were given. */
function ByHand({
  give,
  upload,
  going,
  stop,
  resume,
}: {
  give: (given: Promise<Given>) => void;
  upload: Upload | undefined;
  going: boolean;
  stop: () => void;
  resume: () => void;
}) {
  const take = (input: HTMLInputElement) => {
    give(chosenFiles(input.files));
    // The same may be chosen once more
    input.value = "";
  };
  const { all, bytes: gone = 0, sent = [], left = [], refused = [] } = upload ?? {};
  const text =
    all === undefined
      ? ""
      : `${sent.length} of ${counted(all.files, "file")}, ${bytes(gone)} of ${bytes(all.bytes)}`;
  return (
    <fieldset class="by-hand">
      <legend>Files of this computer</legend>
      <p class="quiet">
        Choose them, or drop them anywhere on this page: files, folders, ZIP files. They are copied
        to the server, and their path then appears below.
      </p>
      <div class="choices">
        <label>
          Files
          <input
            type="file"
            multiple
            disabled={going}
            onChange={({ currentTarget }) => take(currentTarget)}
          />
        </label>
        <label>
          A folder
          <input
            type="file"
            ref={(input) => input?.setAttribute("webkitdirectory", "")}
            disabled={going}
            onChange={({ currentTarget }) => take(currentTarget)}
          />
        </label>
      </div>
      {all !== undefined && (
        <div class="meter">
          <div class="meter-text">
            <span>{going ? "Sending" : left.length > 0 ? "Stopped" : "Sent"}</span>
            <span class="figure">{text}</span>
          </div>
          <progress max={Math.max(all.bytes, 1)} value={gone} aria-label={`Sent: ${text}`} />
        </div>
      )}
      {going && (
        <div class="orders">
          <button type="button" onClick={stop}>
            Stop
          </button>
        </div>
      )}
      {!going && left.length > 0 && (
        <div class="orders">
          <button type="button" onClick={resume}>
            Send the other {left.length}
          </button>
        </div>
      )}
      <p class="said" role="status">
        {!going && sent.length > 0 && `Uploaded ${counted(sent.length, "file")}.`}
      </p>
      {refused.length > 0 && <Refused refused={refused} />}
    </fieldset>
  );
}

const REFUSED_SHOWN = 10;

/** What was not taken, with the sentence of whoever refused it. */
function Refused({ refused }: { refused: readonly Refusal[] }) {
  return (
    <div class="note warn" role="alert">
      <strong>{counted(refused.length, "file")} not uploaded</strong>
      <ul>
        {refused.slice(0, REFUSED_SHOWN).map(({ path, why }) => (
          <li key={path}>
            {path}: {why}
          </li>
        ))}
      </ul>
      {refused.length > REFUSED_SHOWN && (
        <p class="quiet">and {refused.length - REFUSED_SHOWN} more</p>
      )}
    </div>
  );
}

export function SendView({
  overview,
  dropped,
  taken,
}: {
  overview: Overview | undefined;
  /** Files that were let fall on the page, and what forgets them, so that they are sent once. */
  dropped: Promise<Given> | undefined;
  taken: () => void;
}) {
  const [again] = useState(() => sendAgain.paths);
  sendAgain.paths = undefined;
  const [many, setMany] = useState(false);
  const [input, setInput] = useState(again?.input ?? "");
  const [typed, setOutput] = useState(again?.output);
  const output = typed ?? overview?.disks[0]?.folder ?? "";
  const [upload, setUpload] = useState<Upload>();
  const [uploading, setUploading] = useState<AbortController>();
  const allowed = useContext(Allowed);
  const [models, setModels] = useState<string[]>([]);
  const [kinds, setKinds] = useState<string[]>([]);
  const [stat, setStat] = useState(false);
  const [grouped, setGrouped] = useState(false);
  const [busy, setBusy] = useState(false);
  const [fault, setFault] = useState<Fault>();
  const [answer, setAnswer] = useState<Answer>();
  const known =
    overview?.models
      .filter(({ health }) => health === "ready")
      .map(({ name }) => [name, name] as const) ?? [];

  const run = async (from: Upload) => {
    const end = new AbortController();
    setUploading(end);
    let now = from;
    const show = (more: Partial<Upload>) => setUpload((now = { ...now, ...more }));
    for (const file of from.left) {
      const before = now.bytes;
      try {
        const blob = await file.read();
        const told = (gone: number) => show({ bytes: before + gone });
        await sendFile(`${now.folder}/${file.path}`, blob, told, end.signal);
        show({ sent: [...now.sent, file] });
      } catch (thrown) {
        if (end.signal.aborted) break;
        const found = thrown instanceof Error ? thrown : new Error(String(thrown));
        const known = judge(thrown);
        if (isPassing(known) || session.isOver) {
          setFault(known);
          show({ bytes: before });
          break;
        }
        show({ refused: [...now.refused, { path: file.path, why: found.message }] });
      }
      show({ bytes: before + file.bytes, left: now.left.slice(1) });
    }
    const found = inputOf(now);
    if (found !== undefined) {
      setInput(found.path);
      setMany(found.many);
    }
    setUploading(undefined);
  };
  const take = async (given: Promise<Given>) => {
    setFault(undefined);
    setAnswer(undefined);
    setUpload(undefined);
    try {
      const { files, refused } = await given;
      const folder = await folderFor(input, allowed.includes("view"));
      const all = { files: files.length, bytes: files.reduce((sum, one) => sum + one.bytes, 0) };
      const first: Upload = { folder, left: files, sent: [], refused, bytes: 0, all };
      setUpload(first);
      if (files.length > 0) await run(first);
      else if (refused.length === 0) throw faultOfPage("There is no file in what was given.");
    } catch (thrown) {
      setFault(judge(thrown));
    }
  };
  const takes = allowed.includes("upload");
  const isFree = uploading === undefined && !busy;
  // What falls while files are sent, or an answer is waited for, has its turn after it
  useEffect(() => {
    if (dropped === undefined || !takes || !isFree) return;
    taken();
    void take(dropped);
  }, [dropped, takes, isFree]);
  useEffect(() => () => uploading?.abort(), [uploading]);

  // The picture would lie below the window
  useEffect(() => document.querySelector(".result")?.scrollIntoView(), [answer]);

  const send = async () => {
    setBusy(true);
    setFault(undefined);
    setAnswer(undefined);
    const choice = {
      ...(models.length === 0 ? {} : { models }),
      ...(kinds.length === 0 ? {} : { outputs: kinds }),
      ...(grouped ? { group: "series" } : {}),
    };
    try {
      if (many) {
        const body = { input_folder_path: input, output_folder_path: output, ...choice };
        const { job_id } = await call<Accepted>("POST", "/bulk_inference", { body });
        location.hash = `#/jobs/${job_id}`;
      } else {
        const priority = stat ? { priority: "stat" } : {};
        const body = {
          input_image_path: input,
          output_folder_path: output,
          ...choice,
          ...priority,
        };
        setAnswer(await call<Answer>("POST", "/single_inference", { body, patient: true }));
      }
    } catch (thrown) {
      setFault(judge(thrown));
    }
    setBusy(false);
  };

  return (
    <>
      <h1>Send</h1>
      <form
        class="card send"
        onSubmit={(event) => {
          event.preventDefault();
          void send();
        }}
      >
        <fieldset>
          <legend>What</legend>
          <div class="choices">
            <label>
              <input type="radio" name="what" checked={!many} onChange={() => setMany(false)} />
              One image or series
            </label>
            <label>
              <input type="radio" name="what" checked={many} onChange={() => setMany(true)} />
              All images of a folder, as a job
            </label>
          </div>
        </fieldset>
        {takes ? (
          <ByHand
            give={(given) => void take(given)}
            upload={upload}
            going={uploading !== undefined}
            stop={() => uploading?.abort()}
            resume={() => upload !== undefined && void run(upload)}
          />
        ) : (
          dropped !== undefined &&
          overview !== undefined && (
            <p class="note warn" role="alert">
              This server does not accept uploads. The setting{" "}
              <code>RADSERVE_FILES_BY_HTTP=upload</code> allows them; without it, send an image by
              its path.
            </p>
          )
        )}
        <Path
          name="input"
          label={many ? "Folder with images" : "Image, or folder of one series"}
          hint="The path on the server, or one that its path map translates."
          value={input}
          change={setInput}
        />
        <Path
          name="output"
          label="Folder for the results"
          hint="It is created if it does not exist."
          value={output}
          change={setOutput}
        />
        <Choice
          legend="Models"
          hint="If none is chosen, every model that accepts the image runs."
          names={known}
          chosen={models}
          choose={setModels}
        />
        <Choice
          legend="Files"
          hint="If none is chosen, each model decides. The receipt is always written."
          names={KINDS}
          chosen={kinds}
          choose={setKinds}
        />
        <label class="stat">
          <input
            type="checkbox"
            checked={grouped}
            onChange={({ currentTarget }) => setGrouped(currentTarget.checked)}
          />
          Treat each series of a folder as one item, also for models of single images
        </label>
        {!many && (
          <label class="stat">
            <input
              type="checkbox"
              checked={stat}
              onChange={({ currentTarget }) => setStat(currentTarget.checked)}
            />
            Stat: run before all others
          </label>
        )}
        <div class="orders">
          <button type="submit" class="primary" disabled={!isFree}>
            {busy ? "Working…" : many ? "Send the folder" : "Send the image"}
          </button>
        </div>
      </form>
      <div aria-live="polite">
        {fault !== undefined && <FaultNote fault={fault} />}
        {answer !== undefined && <Result answer={answer} />}
      </div>
    </>
  );
}
