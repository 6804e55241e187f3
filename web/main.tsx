/** The page for people: who signs in, which view is shown, and what is asked for all views. */
import { render } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Overview } from "../src/server/overview.js";
import {
  askWho,
  call,
  dropToken,
  Fault,
  faultOfPage,
  isPassing,
  keepToken,
  onRefused,
  session,
  storedToken,
  useLoaded,
  usePoll,
  WHO,
  type Person,
} from "./api.js";
import { DriftPage } from "./drift.js";
import { droppedFiles } from "./files.js";
import { GatewayView } from "./gateway.js";
import type { Given } from "./given.js";
import { ItemView, JobsView, JobView } from "./jobs.js";
import { OverviewView } from "./overview.js";
import { Allowed } from "./parts.js";
import { ResultsView } from "./results.js";
import { SendView } from "./send.js";
import "uplot/dist/uPlot.min.css";
import "./style.css";

const OVERVIEW_MS = 5_000;

/**
 * The part of the address after `#`, and how many times it was opened: a link may be opened again
 * after the page took its number out of the address.
 */
function useHash(): { hash: string; times: number } {
  const [opened, open] = useState({ hash: location.hash, times: 0 });
  useEffect(() => {
    const changed = () => open(({ times }) => ({ hash: location.hash, times: times + 1 }));
    window.addEventListener("hashchange", changed);
    return () => window.removeEventListener("hashchange", changed);
  }, []);
  return opened;
}

/** A page that the browser has kept shows what was true when it was left: it is loaded again. */
function useReload(): void {
  useEffect(() => {
    const back = ({ persisted }: PageTransitionEvent) => persisted && location.reload();
    window.addEventListener("pageshow", back);
    return () => window.removeEventListener("pageshow", back);
  }, []);
}

/**
 * Files that were let fall on the page, whichever view is shown; the view that sends them opens.
 */
function useDropped(): [given: Promise<Given> | undefined, forget: () => void] {
  const [given, give] = useState<Promise<Given>>();
  useEffect(() => {
    const end = new AbortController();
    const isFiles = (event: DragEvent) => event.dataTransfer?.types.includes("Files") === true;
    const over = (event: DragEvent) => {
      // The browser itself would open the file
      if (isFiles(event)) event.preventDefault();
    };
    const drop = (event: DragEvent) => {
      if (!isFiles(event)) return;
      event.preventDefault();
      if (event.dataTransfer !== null) give(droppedFiles(event.dataTransfer));
      location.hash = "#/send";
    };
    window.addEventListener("dragover", over, { signal: end.signal });
    window.addEventListener("drop", drop, { signal: end.signal });
    return () => end.abort();
  }, []);
  return [given, () => give(undefined)];
}

function Brand() {
  return (
    <span class="brand">
      <svg viewBox="0 0 32 32" width="24" height="24" aria-hidden="true">
        <rect width="32" height="32" rx="8" fill="currentColor" />
        <circle cx="16" cy="16" r="9" class="brand-ring" />
        <path d="M16 16 L22.4 9.6" class="brand-ring" />
      </svg>
      Radserve
    </span>
  );
}

/** A token as people paste it: broken over lines, in quotes, or with the word before it. */
const bareToken = (pasted: string): string =>
  pasted
    .trim()
    .replace(/^Bearer\s/i, "")
    .replace(/\s|^["'`]|["'`]$/g, "");

interface SignInOptions {
  why: string | undefined;
  /** A proxy may sign people in. */
  byProxy: boolean;
  enter: (token: string) => void;
}

function SignIn({ why, byProxy, enter }: SignInOptions) {
  const [token, setToken] = useState("");
  const [fault, setFault] = useState(why);
  const [busy, setBusy] = useState(false);
  const check = async () => {
    const given = bareToken(token);
    setBusy(true);
    try {
      if (!/^[\x21-\x7e]+$/.test(given))
        throw faultOfPage("A token has letters, digits, dots, - and _ alone: copy it once more.");
      await call("GET", "/overview", { token: given });
      enter(given);
    } catch (thrown) {
      setFault(thrown instanceof Fault ? thrown.message : String(thrown));
    }
    setBusy(false);
  };
  return (
    <main class="sign-in">
      <form
        class="card"
        onSubmit={(event) => {
          event.preventDefault();
          void check();
        }}
      >
        <Brand />
        <h1>Sign in with a token</h1>
        <p class="quiet" id="token-hint">
          <code>radserve token issue --subject NAME</code> makes one. It is kept for this tab only.
        </p>
        {fault !== undefined && (
          <p class="note bad" role="alert">
            {fault}
          </p>
        )}
        {byProxy && (
          <button type="button" class="primary" onClick={() => location.reload()}>
            Sign in again
          </button>
        )}
        <label for="token">Token</label>
        <textarea
          id="token"
          rows={5}
          required
          spellcheck={false}
          autocomplete="off"
          aria-describedby="token-hint"
          value={token}
          onInput={({ currentTarget }) => setToken(currentTarget.value)}
          onKeyDown={(event) => {
            // A token has no lines: Enter sends it
            if (event.key !== "Enter") return;
            event.preventDefault();
            event.currentTarget.form?.requestSubmit();
          }}
        />
        <button type="submit" class="primary" disabled={busy}>
          {busy ? "Checking…" : "Sign in"}
        </button>
      </form>
    </main>
  );
}

type View = readonly [hash: string, name: string, feature?: string];

const FIRST: View = ["#/", "Overview"];
/** Those of a feature are there while it is on. */
const VIEWS: readonly View[] = [
  FIRST,
  ["#/jobs", "Jobs"],
  ["#/results", "Results"],
  ["#/send", "Send"],
  ["#/gateway", "Gateway", "gateway"],
  ["#/drift", "Over time"],
];

function stateOf(
  overview: Overview | undefined,
  fault: Fault | undefined,
): [tone: string, words: string] {
  if (fault?.status === 0) return ["bad", "No connection"];
  if (overview === undefined) return ["calm", "Loading"];
  return overview.ready ? ["good", "Ready"] : ["bad", "Not ready"];
}

const PERSON_MS = 5_000;

/** Nothing of one person is left for the next. */
function leaveToAnother(): void {
  dropToken();
  location.hash = "#/";
  location.reload();
}

/** Tells the other tabs of this browser who came, or that nobody is signed in (null). */
const tabs = new BroadcastChannel("radserve-person");
const tellTabs = (subject: string | null) => tabs.postMessage(subject);

/**
 * Asks again who it is: in another tab somebody may sign out, and another person in.
 * @param back the person is still the same
 * @param left somebody signed out in another tab
 */
function useSame(person: Person | undefined, back: () => void, left: () => void): void {
  const { data, fault, again } = usePoll<Person>(
    person === undefined ? null : WHO,
    () => PERSON_MS,
    { always: true },
  );
  useEffect(() => {
    if (person === undefined || (data === undefined && fault === undefined)) return;
    if (fault === undefined && data?.subject === null) onRefused.tell("");
    else if (fault === undefined && data?.subject === person.subject) back();
    else if (fault === undefined || !(isPassing(fault) || fault.status === 401)) leaveToAnother();
  }, [data, fault]);
  useEffect(() => {
    if (person === undefined) return;
    tellTabs(person.subject);
    const told = ({ data: subject }: MessageEvent<string | null>) => {
      if (subject === null) left();
      else if (subject === person.subject) again();
      else leaveToAnother();
    };
    tabs.addEventListener("message", told);
    return () => tabs.removeEventListener("message", told);
  }, [person]);
}

const PLACE = "radserve-place";
/** Where a person was when their session ended: they come back there, and nobody else does. */
function keepPlace({ subject }: Person): void {
  sessionStorage.setItem(PLACE, JSON.stringify([subject, location.hash]));
}
const dropPlace = () => sessionStorage.removeItem(PLACE);
/**
 * An address that was opened since then, such as another program's link to another patient, is
 * shown whoever comes.
 */
function takePlace({ subject }: Person): void {
  const [whose, hash = "#/"] = JSON.parse(sessionStorage.getItem(PLACE) ?? "[]") as string[];
  dropPlace();
  const isAskedFor = !["", "#/", hash].includes(location.hash);
  if (whose !== undefined && !isAskedFor) location.hash = whose === subject ? hash : "#/";
}

/** Whoever opens an address while the session is over asks for that, and not for their place. */
function usePlaceLeft(): void {
  useEffect(() => {
    const changed = () => session.isOver && dropPlace();
    window.addEventListener("hashchange", changed);
    return () => window.removeEventListener("hashchange", changed);
  }, []);
}

/** In the place of a page whose session is over, which waits behind it. */
function Ended({ opened }: { opened: (tab: Window) => void }) {
  return (
    <main class="sign-in">
      <div class="card">
        <Brand />
        <h1>You are signed out</h1>
        <p role="alert">
          Your session has ended. Sign in again, and this page is as you left it. Somebody else who
          signs in sees nothing of it.
        </p>
        <button
          type="button"
          class="primary"
          onClick={() => {
            const tab = window.open("./");
            if (tab === null) location.reload();
            else opened(tab);
          }}
        >
          Sign in again
        </button>
      </div>
    </main>
  );
}

interface SignedOptions {
  /** Undefined where a token says who it is. */
  person: Person | undefined;
  leave: () => void;
}

function Signed({ person, leave }: SignedOptions) {
  const { hash, times } = useHash();
  useReload();
  const main = useRef<HTMLElement>(null);
  const first = useRef(true);
  const polled = usePoll<Overview>("/overview", () => OVERVIEW_MS);
  const [dropped, forget] = useDropped();
  const [, job, item] = /^#\/jobs\/([\w-]+)(?:\/(\d{1,9}))?$/.exec(hash) ?? [];
  const views = VIEWS.filter(
    ([, , feature]) => feature === undefined || polled.data?.features.includes(feature) === true,
  );
  const [view, name] = views.find((one) => one !== FIRST && hash.startsWith(one[0])) ?? FIRST;
  // Before the new view is seen: an effect that comes later takes the focus from a field of it
  useLayoutEffect(() => {
    document.title = `${name} – Radserve`;
    // Screen readers are taken to the new view, but not at the first
    if (!first.current) main.current?.focus();
    first.current = false;
  }, [times, name]);
  const [tone, words] = stateOf(polled.data, polled.fault);
  return (
    <>
      <a
        class="skip"
        href="#page"
        onClick={(event) => {
          event.preventDefault();
          main.current?.focus();
        }}
      >
        Skip to content
      </a>
      <header class="top">
        <Brand />
        <nav aria-label="Views">
          {views.map(([of, label]) => (
            <a key={of} href={of} aria-current={of === view ? "page" : undefined}>
              {label}
            </a>
          ))}
        </nav>
        <span class={`state ${tone}`} role="status">
          {words}
        </span>
        {person !== undefined && <span class="person">{person.subject}</span>}
        <button type="button" class="small" onClick={leave}>
          Sign out
        </button>
      </header>
      <main ref={main} tabIndex={-1}>
        <Allowed.Provider value={polled.data?.files_by_http ?? []}>
          {view === "#/send" ? (
            <SendView overview={polled.data} dropped={dropped} taken={forget} />
          ) : view === "#/results" ? (
            <ResultsView hash={hash} times={times} overview={polled.data} />
          ) : view === "#/gateway" ? (
            <GatewayView />
          ) : view === "#/drift" ? (
            <DriftPage />
          ) : job !== undefined && item !== undefined ? (
            <ItemView key={hash} id={job} index={Number(item)} />
          ) : job !== undefined ? (
            <JobView key={job} id={job} />
          ) : view === "#/jobs" ? (
            <JobsView />
          ) : (
            <OverviewView {...polled} />
          )}
        </Allowed.Provider>
      </main>
    </>
  );
}

/**
 * Who a proxy says that it is; null where that is nobody, undefined until it is known.
 * @param isAsked false while a token says who it is
 */
function useWho(isAsked: boolean): [Person | null | undefined, fault: Fault | undefined] {
  const { data, fault } = useLoaded<Person>(isAsked ? "who" : null, async () => {
    const who = await askWho();
    // Before anything is shown
    if (who.subject !== null) takePlace(who);
    return who;
  });
  if (fault !== undefined && !isPassing(fault)) return [null, fault];
  return [data, fault];
}

function App() {
  const [token, setToken] = useState(storedToken());
  const [why, setWhy] = useState<string>();
  const [out, setOut] = useState(false);
  const [ended, setEnded] = useState(false);
  const opened = useRef<Window>(undefined);
  usePlaceLeft();
  const [who, fault] = useWho(token === null);
  const person = token === null && !out && typeof who?.subject === "string" ? who : undefined;
  onRefused.tell = (message) => {
    if (person !== undefined) {
      session.end();
      keepPlace(person);
      setEnded(true);
      return;
    }
    dropToken();
    setWhy(message);
    setToken(null);
    setOut(true);
  };
  const leave = () => {
    dropToken();
    session.isOver = false;
    setEnded(false);
    // Whoever comes next has not asked for what was shown
    location.hash = "#/";
    setWhy(undefined);
    setToken(null);
    if (person !== undefined) setOut(true);
  };
  useSame(
    person,
    () => {
      if (!session.isOver) return;
      dropPlace();
      setEnded(false);
      session.resume();
      opened.current?.close();
    },
    () => {
      leave();
      setWhy("You are signed out.");
    },
  );
  if (token === null && who === undefined && fault === undefined) return <main class="sign-in" />;
  if (token === null && person === undefined)
    return (
      <SignIn
        why={why ?? fault?.message}
        byProxy={who === null || who?.enabled === true}
        enter={(given) => {
          keepToken(given);
          setToken(given);
        }}
      />
    );
  return (
    <>
      {ended && <Ended opened={(tab) => (opened.current = tab)} />}
      <div class="signed" hidden={ended}>
        <Signed
          person={person}
          leave={() => {
            leave();
            if (person === undefined) return;
            tellTabs(null);
            location.assign(person.sign_out ?? "./");
          }}
        />
      </div>
    </>
  );
}

const place = document.getElementById("page");
if (place !== null) render(<App />, place);
