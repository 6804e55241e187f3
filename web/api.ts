/**
 * Calls to the server with the token of this tab, and data that is asked for again and again while
 * somebody looks.
 */
import { useCallback, useEffect, useRef, useState } from "preact/hooks";

const KEY = "radserve-token";
/** No answer in so long a time is the same as none. */
const LONGEST_CALL_MS = 30_000;

export const storedToken = (): string | null => sessionStorage.getItem(KEY);
export const keepToken = (token: string): void => sessionStorage.setItem(KEY, token);
export const dropToken = (): void => sessionStorage.removeItem(KEY);

/** An error as the server tells it; status 0: the server did not answer. */
export class Fault extends Error {
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
  let answer: unknown;
  try {
    response = await fetch(`.${page}`, {
      method,
      headers: {
        Authorization: token ?? "",
        ...(body === undefined ? {} : { "Content-Type": "application/json" }),
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      signal: AbortSignal.any(limits),
    });
    answer = await response.json();
  } catch (error) {
    if (signal?.aborted === true) throw error;
    throw away();
  }
  if (response.ok) return answer as T;
  throw toldFault(response.status, answer as ErrorBody);
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
    response = await fetch(`.${page}`, {
      headers: { Authorization: storedToken() ?? "", ...headers },
      ...(signal === undefined ? {} : { signal }),
    });
    if (response.ok) return await response.blob();
  } catch (error) {
    if (signal?.aborted === true) throw error;
    throw away();
  }
  throw await faultOf(response);
}

/** Saves a file of an output folder where the browser saves files. @throws Fault */
export async function saveFile(path: string): Promise<void> {
  const url = URL.createObjectURL(await callBlob("/files", undefined, withPath(path)));
  const link = document.createElement("a");
  link.href = url;
  link.download = path.replace(/^.*\//, "");
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

/** Sends a file to a path in an input folder. @throws Fault */
export async function sendFile(path: string, file: File): Promise<void> {
  const response = await fetch("./files", {
    method: "PUT",
    headers: {
      Authorization: storedToken() ?? "",
      "Content-Type": "application/octet-stream",
      ...withPath(path),
    },
    body: file,
  }).catch(() => {
    throw away();
  });
  if (!response.ok) throw await faultOf(response);
}

async function faultOf(response: Response): Promise<Fault> {
  const told = (await response.json().catch(() => ({}))) as ErrorBody;
  return toldFault(response.status, told);
}

function toldFault(status: number, told: ErrorBody): Fault {
  return new Fault(
    status,
    told.error ?? "unknown",
    told.message ?? `The server answered ${status}.`,
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

/** Loads the value of a key once; the value of the key before stays until the next is there. */
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
    loading.current(end.signal).then(
      (data) => {
        if (!end.signal.aborted) setState({ key, data });
      },
      (thrown: unknown) => {
        if (!end.signal.aborted) setState({ key, fault: judge(thrown) });
      },
    );
    return () => end.abort();
  }, [key]);
  return { data: state.data, fault: state.fault, busy: key !== null && state.key !== key };
}

interface CallOptions {
  body?: unknown;
  signal?: AbortSignal;
  token?: string | null;
  /** An inference may take as long as its deadline. */
  patient?: boolean;
}

/** Tells whoever shows the page that the token is no good any more. */
export const onRefused: { tell: (message: string) => void } = { tell: () => undefined };

/** Handles any fault that a view meets: a refused token ends the view. */
export function judge(fault: unknown): Fault {
  const known =
    fault instanceof Fault ? fault : new Fault(0, "page", String(fault), undefined, undefined);
  if (known.status === 401) onRefused.tell(known.message);
  return known;
}

export interface Polled<T> {
  data: T | undefined;
  fault: Fault | undefined;
  /** Asks at once. */
  again: () => void;
}

/**
 * Asks for a page now, and again that long after each answer, while the tab is looked at. What was
 * shown stays while the server is away.
 * @param page null: nothing is asked
 * @param pause milliseconds by what came last; null: it is not asked again
 * @param question asked in a body, as JSON; absent: with GET
 */
export function usePoll<T>(
  page: string | null,
  pause: (data: T | undefined) => number | null,
  question?: string,
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
    const ask = async () => {
      if (asking || document.hidden) return;
      asking = true;
      window.clearTimeout(timer);
      try {
        const { signal } = end;
        const data = await (question === undefined
          ? call<T>("GET", page, { signal })
          : call<T>("POST", page, { signal, body: JSON.parse(question) as unknown }));
        last = data;
        setState({ key, data });
      } catch (thrown) {
        if (end.signal.aborted) return;
        const fault = judge(thrown);
        setState((before) => ({ ...(before.key === key ? before : { key }), fault }));
      } finally {
        asking = false;
      }
      const wait = paused.current(last);
      if (wait !== null && !end.signal.aborted) timer = window.setTimeout(() => void ask(), wait);
    };
    const seen = () => {
      if (document.hidden) window.clearTimeout(timer);
      else if (paused.current(last) !== null) void ask();
    };
    document.addEventListener("visibilitychange", seen);
    void ask();
    return () => {
      end.abort();
      window.clearTimeout(timer);
      document.removeEventListener("visibilitychange", seen);
    };
  }, [key, round]);
  const again = useCallback(() => setRound((n) => n + 1), []);
  // Items of another page are not shown for this one
  const mine = state.key === key;
  return { data: mine ? state.data : undefined, fault: mine ? state.fault : undefined, again };
}
