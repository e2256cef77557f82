// A reflector: list, then watch from the revision of the list.
//
// In: the path of a collection. Out: `replace` with the whole list, `apply` for each change, and the health of the watch. A watch that
// ends is resumed at its last revision; only when that revision is compacted (410) is the collection listed again.
import type { Obj } from "./types";

export interface Sink {
  replace(objects: Obj[]): void;
  apply(type: "ADDED" | "MODIFIED" | "DELETED", object: Obj): void;
}

export type Health = "live" | "lost" | "unauthenticated" | "denied";

export interface Deps {
  fetch: (path: string, signal: AbortSignal) => Promise<Response>;
  wait: (milliseconds: number, signal: AbortSignal) => Promise<void>;
  report: (health: Health) => void;
  signal: AbortSignal;
}

interface WatchEvent {
  type: string;
  object: Obj & { code?: number; message?: string };
}

class HttpError extends Error {
  constructor(readonly code: number) {
    super(`HTTP status ${code}`);
  }
}

const MIN_BACKOFF = 500;
const MAX_BACKOFF = 8000;
/** Rights seldom change. */
const DENIED_BACKOFF = 60_000;
/** Between watches that the server ends at once. */
const EMPTY_WATCH_BACKOFF = 100;

/** Lists and watches until the signal aborts. */
export async function reflect(path: string, sink: Sink, deps: Deps): Promise<void> {
  let revision = "";
  let backoff = MIN_BACKOFF;
  while (!deps.signal.aborted) {
    try {
      if (!revision) revision = await list(path, sink, deps);
      const from = revision;
      await stream(path, from, deps, () => deps.report("live"), (event) => {
        if (event.type === "ERROR") throw new HttpError(event.object.code ?? 500);
        revision = event.object.metadata.resourceVersion ?? revision;
        if (event.type === "ADDED" || event.type === "MODIFIED" || event.type === "DELETED") {
          sink.apply(event.type, event.object);
        }
      });
      backoff = MIN_BACKOFF;
      if (revision === from) await deps.wait(EMPTY_WATCH_BACKOFF, deps.signal);
    } catch (error) {
      if (deps.signal.aborted) return;
      const code = error instanceof HttpError ? error.code : 0;
      if (code === 410) {
        revision = "";
        continue;
      }
      deps.report(code === 401 ? "unauthenticated" : code === 403 ? "denied" : "lost");
      await deps.wait(code === 403 ? DENIED_BACKOFF : backoff, deps.signal);
      backoff = Math.min(backoff * 2, MAX_BACKOFF);
    }
  }
}

async function list(path: string, sink: Sink, deps: Deps): Promise<string> {
  const response = await deps.fetch(path, deps.signal);
  if (!response.ok) throw new HttpError(response.status);
  const found = (await response.json()) as { metadata: { resourceVersion: string }; items: Obj[] | null };
  sink.replace(found.items ?? []);
  return found.metadata.resourceVersion;
}

async function stream(
  path: string,
  revision: string,
  deps: Deps,
  onOpen: () => void,
  onEvent: (event: WatchEvent) => void,
): Promise<void> {
  const query = `watch=1&allowWatchBookmarks=1&timeoutSeconds=290&resourceVersion=${encodeURIComponent(revision)}`;
  const response = await deps.fetch(`${path}?${query}`, deps.signal);
  if (!response.ok || !response.body) throw new HttpError(response.status);
  onOpen();
  const lines = new Lines();
  const reader = response.body.pipeThrough(new TextDecoderStream() as ReadableWritablePair<string, Uint8Array>).getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    for (const line of lines.push(value)) onEvent(JSON.parse(line) as WatchEvent);
  }
}

/** Splits chunks of text into lines. */
export class Lines {
  private rest = "";

  push(chunk: string): string[] {
    const parts = (this.rest + chunk).split("\n");
    this.rest = parts.pop() ?? "";
    return parts.filter((line) => line.trim() !== "");
  }
}
