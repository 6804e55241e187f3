/**
 * Calls to the server with the token of this tab, and data that is asked for again and again while
 * somebody looks.
 */
import { useCallback, useEffect, useRef, useState } from "preact/hooks";

const KEY = "radserve-token";
/** No answer in so long a time is the same as none. */
const LONGEST_CALL_MS = 30_000;

/** Without a token a proxy says who it is, or nobody does. */
const authorization = (token: string | null): Record<string, string> =>
  token === null ? {} : { Authorization: token };

/**
 * A proxy that knows nobody any more answers 401, leads to where people sign in, or gives that page
 * as the answer. The server itself gives HTML as an attachment alone.
 */
const SIGNED_OUT = "You were signed out before this was done.";
const signedOut = () => toldFault(401, { error: "unauthorized", message: SIGNED_OUT });
const isLogin = (header: (name: string) => string | null): boolean =>
  header("Content-Type")?.startsWith("text/html") === true &&
  header("Content-Disposition") === null;
const sent = async (page: string, init: RequestInit): Promise<Response> => {
  const response = await fetch(`.${page}`, { ...init, redirect: "manual" });
  const isElsewhere =
    response.type === "opaqueredirect" ||
    (response.ok && isLogin((name) => response.headers.get(name)));
  if (isElsewhere) throw signedOut();
  return response;
};

/** What is to be forgotten when somebody signs out, because the next may be another person. */
const forgets: (() => void)[] = [];
export const onLeave = (forget: () => void): void => void forgets.push(forget);

export const storedToken = (): string | null => sessionStorage.getItem(KEY);
export const keepToken = (token: string): void => sessionStorage.setItem(KEY, token);
/** Forgets whoever looked at the page, and what was shown to them. */
export function dropToken(): void {
  sessionStorage.removeItem(KEY);
  for (const forget of forgets) forget();
}

/** An error as the server tells it; status 0: the server did not answer. */
export class Fault extends Error {
  /** Whoever met it asks the same question again by itself. */
  isAskedAgain = false;

  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly requestId: string | undefined,
    readonly details: Record<string, unknown> | undefined,
  ) {
    super(message);
  }
}

const away = () => new Fault(0, "unreachable", "The server does not answer.", undefined, undefined);

/** Something that the page itself cannot do. */
export const faultOfPage = (message: string): Fault =>
  new Fault(400, "not_possible", message, undefined, undefined);

/** Nobody answers, or not now: the same question may be answered later. */
export const isPassing = ({ status }: Fault): boolean => [0, 429, 502, 503, 504].includes(status);
/** So long after such a fault it is asked again. */
const AGAIN_MS = 3_000;

interface ErrorBody {
  error?: string;
  message?: string;
  request_id?: string;
  details?: Record<string, unknown>;
}

/** Sends one request and gives the answer's body. @throws Fault */
export async function call<T>(
  method: "GET" | "POST" | "DELETE",
  page: string,
  { body, signal, token = storedToken(), patient = false }: CallOptions = {},
): Promise<T> {
  const limits = [
    ...(signal === undefined ? [] : [signal]),
    ...(patient ? [] : [AbortSignal.timeout(LONGEST_CALL_MS)]),
  ];
  let response: Response;
  try {
    response = await sent(page, {
      method,
      headers: {
        ...authorization(token),
        ...(body === undefined ? {} : { "Content-Type": "application/json" }),
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      signal: AbortSignal.any(limits),
    });
    if (response.ok) return (await response.json()) as T;
  } catch (error) {
    if (signal?.aborted === true || error instanceof Fault) throw error;
    throw away();
  }
  throw await faultOf(response);
}

/** No path stands in an address, which browsers and proxies keep. */
const withPath = (path: string) => ({ "Radserve-Path": encodeURIComponent(path) });

/** A file that the server gives. @throws Fault */
export async function callBlob(
  page: string,
  signal?: AbortSignal,
  headers: Record<string, string> = {},
): Promise<Blob> {
  let response: Response;
  try {
    response = await sent(page, {
      headers: { ...authorization(storedToken()), ...headers },
      ...(signal === undefined ? {} : { signal }),
    });
    if (response.ok) return await response.blob();
  } catch (error) {
    if (signal?.aborted === true || error instanceof Fault) throw error;
    throw away();
  }
  throw await faultOf(response);
}

/**
 * Saves a file of an output folder where the browser saves files.
 * @param meant what only the file of the result that is shown has
 * @throws Fault
 */
export async function saveFile(
  path: string,
  meant: { sha256?: string; mac?: string | undefined } = {},
): Promise<void> {
  const page = asked("/files", meant);
  const url = URL.createObjectURL(await callBlob(page, undefined, withPath(path)));
  const link = document.createElement("a");
  link.href = url;
  link.download = path.replace(/^.*\//, "");
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

/** A browser does not say why it cannot. */
export const unreadable = (): Fault =>
  faultOfPage("The browser cannot read it: it was moved or changed, or is a folder.");

/**
 * Sends a file to a path in an input folder.
 * @param told how many of its bytes have gone
 * @throws Fault
 */
export async function sendFile(
  path: string,
  file: Blob,
  told: (bytes: number) => void,
  signal: AbortSignal,
): Promise<void> {
  // A browser reads it while it sends it, and says of either fault the same
  await file
    .slice(0, 1)
    .arrayBuffer()
    .catch(() => {
      throw unreadable();
    });
  return new Promise((resolve, reject) => {
    // fetch does not tell how far it is
    const request = new XMLHttpRequest();
    const address = new URL("./files", document.baseURI).href;
    request.open("PUT", address);
    request.setRequestHeader("Content-Type", "application/octet-stream");
    const headers = { ...authorization(storedToken()), ...withPath(path) };
    for (const [name, value] of Object.entries(headers)) request.setRequestHeader(name, value);
    request.upload.onprogress = ({ loaded }) => told(loaded);
    // It follows a proxy to where people sign in, and says of another site only that it fails
    request.onerror = () => void askWho().then(() => reject(away()), reject);
    request.onabort = () => reject(faultOfPage("It was stopped."));
    request.onload = () => {
      const isDone = request.status >= 200 && request.status < 300;
      const isPage = isDone && isLogin((name) => request.getResponseHeader(name));
      if (isPage || request.responseURL !== address) reject(signedOut());
      else if (isDone) resolve();
      else reject(toldFault(request.status, bodyOf(request.responseText)));
    };
    signal.addEventListener("abort", () => request.abort(), { once: true });
    request.send(file);
  });
}

function bodyOf(text: string): ErrorBody {
  try {
    return JSON.parse(text) as ErrorBody;
  } catch {
    return {};
  }
}

async function faultOf(response: Response): Promise<Fault> {
  return toldFault(response.status, bodyOf(await response.text().catch(() => "")));
}

function toldFault(status: number, told: ErrorBody): Fault {
  return new Fault(
    status,
    told.error ?? "unknown",
    told.message ?? (status === 401 ? SIGNED_OUT : `The server answered ${status}.`),
    told.request_id,
    told.details,
  );
}

/** A page with what it is asked for. */
export const asked = (page: string, query: Record<string, string | number | undefined>): string => {
  const given = Object.entries(query).filter(([, value]) => value !== undefined);
  return `${page}?${new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString()}`;
};

export interface Loaded<T> {
  data: T | undefined;
  fault: Fault | undefined;
  busy: boolean;
}

/**
 * Loads the value of a key once, and again while nobody answers; the value of the key before stays
 * until the next is there.
 */
export function useLoaded<T>(
  key: string | null,
  load: (signal: AbortSignal) => Promise<T>,
): Loaded<T> {
  const [state, setState] = useState<{ key?: string; data?: T; fault?: Fault }>({});
  const loading = useRef(load);
  loading.current = load;
  useEffect(() => {
    if (key === null) return;
    const end = new AbortController();
    let timer: number | undefined;
    let resuming = () => {};
    const ask = () =>
      loading.current(end.signal).then(
        (data) => {
          if (!end.signal.aborted) setState({ key, data });
        },
        (thrown: unknown) => {
          if (end.signal.aborted) return;
          const fault = judge(thrown);
          if (session.isOver) {
            resuming();
            resuming = session.onResume(() => {
              resuming();
              void ask();
            });
            return;
          }
          fault.isAskedAgain = isPassing(fault);
          setState({ key, fault });
          if (fault.isAskedAgain) timer = window.setTimeout(() => void ask(), AGAIN_MS);
        },
      );
    void ask();
    return () => {
      end.abort();
      window.clearTimeout(timer);
      resuming();
    };
  }, [key]);
  return { data: state.data, fault: state.fault, busy: key !== null && state.key !== key };
}

interface CallOptions {
  body?: unknown;
  signal?: AbortSignal | undefined;
  token?: string | null;
  /** An inference may take as long as its deadline. */
  patient?: boolean;
}

export const WHO = "/sign-in";
/** Whom a proxy signed in. @throws Fault */
export const askWho = () =>
  call<{ enabled: boolean; subject: string | null; sign_out: string | null }>("GET", WHO, {
    token: null,
  });
export type Person = Awaited<ReturnType<typeof askWho>>;

/** Tells whoever shows the page that the token is no good any more. */
export const onRefused: { tell: (message: string) => void } = { tell: () => undefined };

/**
 * The session of whom a proxy signed in. While it is over nothing is asked but who is signed in:
 * the answer may be another person's.
 */
class Session {
  isOver = false;
  readonly #waiting = new Set<() => void>();

  end(): void {
    this.isOver = true;
  }

  /** The same person is back: what views ask for is asked again. */
  resume(): void {
    this.isOver = false;
    for (const ask of this.#waiting) ask();
  }

  /** @returns ends it */
  onResume(ask: () => void): () => void {
    this.#waiting.add(ask);
    return () => void this.#waiting.delete(ask);
  }
}
export const session = new Session();

/** Handles any fault that a view meets: a refused token ends the view. */
export function judge(fault: unknown): Fault {
  const known = fault instanceof Fault ? fault : faultOfPage(String(fault));
  if (known.status === 401) onRefused.tell(known.message);
  return known;
}

export interface Polled<T> {
  data: T | undefined;
  fault: Fault | undefined;
  /** Asks at once, also while nobody looks. */
  again: () => void;
}

interface PollOptions {
  /** Asked in a body, as JSON; absent: with GET. */
  question?: string;
  /** Asked also while the session is over: who is signed in. */
  always?: boolean;
}

/**
 * Asks for a page now, and again that long after each answer, while the tab is looked at; and
 * whatever `pause` says while nobody answers. What was shown stays meanwhile.
 * @param page null: nothing is asked
 * @param pause milliseconds by what came last; null: it is not asked again
 */
export function usePoll<T>(
  page: string | null,
  pause: (data: T | undefined) => number | null,
  { question, always = false }: PollOptions = {},
): Polled<T> {
  const key = page === null ? null : `${page} ${question ?? ""}`;
  const [state, setState] = useState<{ key: string | null; data?: T; fault?: Fault }>({ key });
  const [round, setRound] = useState(0);
  const paused = useRef(pause);
  paused.current = pause;
  useEffect(() => {
    if (page === null) return;
    const end = new AbortController();
    let timer: number | undefined;
    let last: T | undefined;
    let asking = false;
    /** Not in a tab that was opened behind another one. */
    let wasAsked = false;
    let failed = false;
    const pauseNow = () => paused.current(last) ?? (failed ? AGAIN_MS : null);
    const ask = async (isWanted = false) => {
      if (asking || (document.hidden && !isWanted)) return;
      if (session.isOver && !always) return;
      asking = true;
      wasAsked = true;
      window.clearTimeout(timer);
      try {
        const { signal } = end;
        const data = await (question === undefined
          ? call<T>("GET", page, { signal })
          : call<T>("POST", page, { signal, body: JSON.parse(question) as unknown }));
        last = data;
        failed = false;
        setState({ key, data });
      } catch (thrown) {
        if (end.signal.aborted) return;
        const fault = judge(thrown);
        failed = session.isOver || isPassing(fault);
        if (session.isOver && !always) return;
        fault.isAskedAgain = failed;
        setState((before) => ({ ...(before.key === key ? before : { key }), fault }));
      } finally {
        asking = false;
      }
      const wait = pauseNow();
      if (wait !== null && !end.signal.aborted) timer = window.setTimeout(() => void ask(), wait);
    };
    const seen = () => {
      if (document.hidden) window.clearTimeout(timer);
      else if (!wasAsked || pauseNow() !== null) void ask();
    };
    document.addEventListener("visibilitychange", seen);
    const resumed = session.onResume(seen);
    void ask(round > 0);
    return () => {
      end.abort();
      resumed();
      window.clearTimeout(timer);
      document.removeEventListener("visibilitychange", seen);
    };
  }, [key, round]);
  const again = useCallback(() => setRound((n) => n + 1), []);
  // Items of another page are not shown for this one
  const mine = state.key === key;
  return { data: mine ? state.data : undefined, fault: mine ? state.fault : undefined, again };
}
