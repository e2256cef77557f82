// The connection to the server: all watches, and a heartbeat.
//
// "live" means that every table is watched and that the server answered the last heartbeat. In any other state the page shows old data and
// says since when.
import { LAYER7, NAMES, type Name, PATHS, type World } from "../model/world";
import * as session from "./session";
import { type Health, reflect } from "./watch";

export type State = "connecting" | "live" | "lost" | "unauthenticated";

export interface ConnectionStatus {
  state: State;
  /** When it was live for the last time. */
  since: number;
  /** Tables that this user may not list. */
  denied: readonly Name[];
}

const HEARTBEAT_INTERVAL = 5000;
const HEARTBEAT_TIMEOUT = 4000;

const JSON_TYPE = "application/json";
const metadataOf = (form: string): string => `application/json;as=${form};g=meta.k8s.io;v=v1,application/json`;

/** The form in which a table is read. */
export function accept(name: Name, path: string): string {
  if (!LAYER7.includes(name)) return JSON_TYPE;
  return metadataOf(path.includes("watch=1") ? "PartialObjectMetadata" : "PartialObjectMetadataList");
}

export class Connection {
  private health = new Map<Name, Health>();
  private current: ConnectionStatus = { state: "connecting", since: Date.now(), denied: [] };
  private abort = new AbortController();
  private readonly listeners = new Set<() => void>();
  private heartbeat: ReturnType<typeof setTimeout> | undefined;
  private stopped = false;

  /** `kinds` are the kinds of layer 7 that the server has. */
  constructor(private readonly world: World, private kinds: readonly string[]) {}

  /** The tables that the server has. */
  private names(): readonly Name[] {
    return NAMES.filter((name) => !LAYER7.includes(name) || this.kinds.includes(name));
  }

  /** Whether the server has a kind. */
  serves(name: Name): boolean {
    return this.names().includes(name);
  }

  get status(): ConnectionStatus {
    return this.current;
  }

  listen(call: () => void): () => void {
    this.listeners.add(call);
    return () => this.listeners.delete(call);
  }

  start(): void {
    this.watchAll();
    this.schedule(HEARTBEAT_INTERVAL);
    addEventListener("online", this.reconnect);
    addEventListener("offline", this.onOffline);
    document.addEventListener("visibilitychange", this.onVisible);
  }

  stop(): void {
    this.stopped = true;
    this.abort.abort();
    clearTimeout(this.heartbeat);
    removeEventListener("online", this.reconnect);
    removeEventListener("offline", this.onOffline);
    document.removeEventListener("visibilitychange", this.onVisible);
  }

  /** Reconnects at once. */
  readonly reconnect = (): void => {
    this.abort.abort();
    this.watchAll();
    this.schedule(0);
  };

  private readonly onOffline = (): void => this.setState("lost");

  /** A page that becomes visible checks at once whether it is up to date. */
  private readonly onVisible = (): void => {
    if (document.visibilityState === "visible") this.schedule(0);
  };

  private watchAll(): void {
    const abort = new AbortController();
    this.abort = abort;
    this.health = new Map();
    for (const name of NAMES) {
      // What was deleted with its definition is gone.
      if (!this.serves(name)) {
        this.world.sink(name).replace([]);
        continue;
      }
      void reflect(PATHS[name], this.world.sink(name), {
        fetch: (path, signal) => fetch(path, { signal, headers: { Accept: accept(name, path) }, cache: "no-store" }),
        wait,
        signal: abort.signal,
        report: (health) => {
          if (abort.signal.aborted) return;
          this.health.set(name, health);
          this.update();
        },
      });
    }
  }

  private update(): void {
    const all = this.names().map((name) => this.health.get(name));
    if (all.includes("unauthenticated")) return this.setState("unauthenticated");
    if (all.includes("lost")) return this.setState("lost");
    if (all.every((health) => health === "live" || health === "denied")) this.setState("live");
  }

  private setState(state: State): void {
    const denied = NAMES.filter((name) => this.health.get(name) === "denied");
    const before = this.current;
    const changed = before.state !== state || before.denied.join() !== denied.join();
    const since = before.state === "live" || state === "live" ? Date.now() : before.since;
    if (changed) this.current = { state, since, denied };
    if (changed) for (const call of this.listeners) call();
  }

  private schedule(after: number): void {
    clearTimeout(this.heartbeat);
    if (this.stopped) return;
    this.heartbeat = setTimeout(() => void this.check(), after);
  }

  /** A connection that died without FIN or RST looks like one without events. */
  private async check(): Promise<void> {
    const known = await session.current(AbortSignal.timeout(HEARTBEAT_TIMEOUT));
    if (this.stopped) return;
    if (known === null) {
      this.setState("unauthenticated");
    } else if (known === undefined) {
      this.setState("lost");
    } else if (known.kinds.join() !== this.kinds.join()) {
      // Definitions were installed or deleted.
      this.kinds = known.kinds;
      this.reconnect();
      return;
    } else if (this.current.state === "lost" && [...this.health.values()].every((health) => health === "live")) {
      // The watches did not notice; the server may have restarted.
      this.reconnect();
      return;
    }
    this.schedule(HEARTBEAT_INTERVAL);
  }
}

function wait(milliseconds: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });
}
