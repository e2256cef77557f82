// Following a collection: list, then watch from there, then again from where the watch ended.
//
// In: the path of a collection. Out: `replace` with everything, `apply` for each change, and whether what was told is
// still true. A watch that ends is taken up at its last revision; only when the server has forgotten it (410) is everything read again.
import type { Obj } from "./types";

export interface Sink {
  replace(objects: Obj[]): void;
  apply(type: "ADDED" | "MODIFIED" | "DELETED", object: Obj): void;
}

export type Health = "live" | "lost" | "out" | "denied";

export interface Means {
  fetch: (path: string, signal: AbortSignal) => Promise<Response>;
  wait: (milliseconds: number, signal: AbortSignal) => Promise<void>;
  tell: (health: Health) => void;
  signal: AbortSignal;
}

interface WatchEvent {
  type: string;
  object: Obj & { code?: number; message?: string };
}

class Refused extends Error {
  constructor(readonly code: number) {
    super(`the server answers ${code}`);
  }
}

const FIRST_PAUSE = 500;
const LONGEST_PAUSE = 8000;

/** Follows until the signal ends it. */
export async function follow(path: string, sink: Sink, means: Means): Promise<void> {
  let revision = "";
  let pause = FIRST_PAUSE;
  while (!means.signal.aborted) {
    try {
      if (!revision) revision = await list(path, sink, means);
      const from = revision;
      await stream(path, from, means, () => means.tell("live"), (event) => {
        if (event.type === "ERROR") throw new Refused(event.object.code ?? 500);
        revision = event.object.metadata.resourceVersion ?? revision;
        if (event.type === "ADDED" || event.type === "MODIFIED" || event.type === "DELETED") {
          sink.apply(event.type, event.object);
        }
      });
      pause = FIRST_PAUSE;
      // A server that ends every watch at once must not be asked without end.
      if (revision === from) await means.wait(100, means.signal);
    } catch (error) {
      if (means.signal.aborted) return;
      const code = error instanceof Refused ? error.code : 0;
      if (code === 410) {
        revision = "";
        continue;
      }
      means.tell(code === 401 ? "out" : code === 403 ? "denied" : "lost");
      await means.wait(code === 403 ? 60_000 : pause, means.signal);
      pause = Math.min(pause * 2, LONGEST_PAUSE);
    }
  }
}

async function list(path: string, sink: Sink, means: Means): Promise<string> {
  const response = await means.fetch(path, means.signal);
  if (!response.ok) throw new Refused(response.status);
  const found = (await response.json()) as { metadata: { resourceVersion: string }; items: Obj[] | null };
  sink.replace(found.items ?? []);
  return found.metadata.resourceVersion;
}

async function stream(
  path: string,
  revision: string,
  means: Means,
  begun: () => void,
  take: (event: WatchEvent) => void,
): Promise<void> {
  const query = `watch=1&allowWatchBookmarks=1&timeoutSeconds=290&resourceVersion=${encodeURIComponent(revision)}`;
  const response = await means.fetch(`${path}?${query}`, means.signal);
  if (!response.ok || !response.body) throw new Refused(response.status);
  begun();
  const lines = new Lines();
  const reader = response.body.pipeThrough(new TextDecoderStream() as ReadableWritablePair<string, Uint8Array>).getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    for (const line of lines.push(value)) take(JSON.parse(line) as WatchEvent);
  }
}

/** Cuts text that comes in pieces into lines. */
export class Lines {
  private rest = "";

  push(piece: string): string[] {
    const parts = (this.rest + piece).split("\n");
    this.rest = parts.pop() ?? "";
    return parts.filter((line) => line.trim() !== "");
  }
}
