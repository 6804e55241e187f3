/** One image, series or folder sent by its path, and what came of it. */
import { useContext, useEffect, useState } from "preact/hooks";
import type { Accepted } from "../src/jobs/schema.js";
import type { Answer } from "../src/results/receipt/receipt.js";
import type { Overview } from "../src/server/overview.js";
import type { PathList } from "../src/features/viewer/endpoints.js";
import { call, Fault, judge, sendFile } from "./api.js";
import { counted } from "./format.js";
import { Allowed, FaultNote } from "./parts.js";
import { Result } from "./result.js";

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
  const beside = typed.replace(/[^/]*$/, "").replace(/\/$/, "");
  const [first] =
    beside !== "" || !looks
      ? []
      : (await call<PathList>("POST", "/paths", { body: { side: "input" } })).paths;
  const folder = beside === "" ? first?.path : beside;
  if (folder === undefined)
    throw new Fault(
      400,
      "bad_request",
      "There is no folder to upload to: type the path of an image folder first, with a slash at its end.",
      undefined,
      undefined,
    );
  return `${folder}/dropped-${new Date().toISOString().replace(/\W|\.\d+/g, "")}`;
}

export function SendView({
  overview,
  dropped,
  taken,
}: {
  overview: Overview | undefined;
  /** Files that were let fall on the page, and what forgets them, so that they are sent once. */
  dropped: readonly File[];
  taken: () => void;
}) {
  const [many, setMany] = useState(false);
  const [input, setInput] = useState("");
  const [typed, setOutput] = useState<string>();
  const output = typed ?? overview?.disks[0]?.folder ?? "";
  const [sent, setSent] = useState("");
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

  const take = async () => {
    taken();
    setFault(undefined);
    setAnswer(undefined);
    try {
      const folder = await folderFor(input, allowed.includes("view"));
      for (const [i, file] of dropped.entries()) {
        setSent(`Sending ${i + 1} of ${dropped.length}…`);
        await sendFile(`${folder}/${file.name}`, file);
      }
      const [only] = dropped;
      setInput(dropped.length === 1 && only !== undefined ? `${folder}/${only.name}` : folder);
      setSent(`Uploaded ${counted(dropped.length, "file")}.`);
    } catch (thrown) {
      setSent("");
      setFault(judge(thrown));
    }
  };
  const takes = allowed.includes("upload");
  useEffect(() => {
    if (dropped.length > 0 && takes) void take();
  }, [dropped, takes]);

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
          <p class="quiet">
            Drop files on this page to upload them; their path then appears below.
          </p>
        ) : (
          dropped.length > 0 &&
          overview !== undefined && (
            <p class="note warn" role="alert">
              This server does not accept uploads. The setting{" "}
              <code>RADSERVE_FILES_BY_HTTP=upload</code> allows them; without it, send an image by
              its path.
            </p>
          )
        )}
        {sent !== "" && (
          <p class="note" role="status">
            {sent}
          </p>
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
          <button type="submit" class="primary" disabled={busy}>
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
