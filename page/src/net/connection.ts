// The connection to the server as a whole: all watches, a sign of life every few seconds, and one honest word about both.
//
// "live" means that every table is being followed and the server answered a moment ago. Anything else is said; what is shown is then as old
// as the moment at which it was last live.
import { NAMES, type Name, PATHS, type World } from "../model/world";
import * as session from "./session";
import { type Health, follow } from "./watch";

export type State = "connecting" | "live" | "lost" | "out";

export interface Standing {
  state: State;
  /** When it was live for the last time. */
  since: number;
  /** Tables that this user may not read. */
  denied: readonly Name[];
}

const PULSE = 5000;
const PATIENCE = 4000;

export class Connection {
  private health = new Map<Name, Health>();
  private standing: Standing = { state: "connecting", since: Date.now(), denied: [] };
  private ending = new AbortController();
  private readonly listeners = new Set<() => void>();
  private pulse: ReturnType<typeof setTimeout> | undefined;
  private stopped = false;

  constructor(private readonly world: World) {}

  get now(): Standing {
    return this.standing;
  }

  listen(call: () => void): () => void {
    this.listeners.add(call);
    return () => this.listeners.delete(call);
  }

  start(): void {
    this.follow();
    this.beat(PULSE);
    addEventListener("online", this.again);
    addEventListener("offline", this.lose);
    document.addEventListener("visibilitychange", this.seen);
  }

  stop(): void {
    this.stopped = true;
    this.ending.abort();
    clearTimeout(this.pulse);
    removeEventListener("online", this.again);
    removeEventListener("offline", this.lose);
    document.removeEventListener("visibilitychange", this.seen);
  }

  /** Tries again at once. */
  readonly again = (): void => {
    this.ending.abort();
    this.follow();
    this.beat(0);
  };

  private readonly lose = (): void => this.say("lost");

  /** Whoever comes back to the page must not look at an old picture. */
  private readonly seen = (): void => {
    if (document.visibilityState === "visible") this.beat(0);
  };

  private follow(): void {
    const ending = new AbortController();
    this.ending = ending;
    this.health = new Map();
    for (const name of NAMES) {
      void follow(PATHS[name], this.world.sink(name), {
        fetch: (path, signal) => fetch(path, { signal, headers: { Accept: "application/json" }, cache: "no-store" }),
        wait,
        signal: ending.signal,
        tell: (health) => {
          if (ending.signal.aborted) return;
          this.health.set(name, health);
          this.judge();
        },
      });
    }
  }

  private judge(): void {
    const all = NAMES.map((name) => this.health.get(name));
    if (all.includes("out")) return this.say("out");
    if (all.includes("lost")) return this.say("lost");
    if (all.every((health) => health === "live" || health === "denied")) this.say("live");
  }

  private say(state: State): void {
    const denied = NAMES.filter((name) => this.health.get(name) === "denied");
    const before = this.standing;
    const changed = before.state !== state || before.denied.join() !== denied.join();
    const since = before.state === "live" || state === "live" ? Date.now() : before.since;
    if (changed) this.standing = { state, since, denied };
    if (changed) for (const call of this.listeners) call();
  }

  private beat(after: number): void {
    clearTimeout(this.pulse);
    if (this.stopped) return;
    this.pulse = setTimeout(() => void this.check(), after);
  }

  /** A connection that died without a word looks like one on which nothing happens: so the server is asked. */
  private async check(): Promise<void> {
    const visit = await session.current(AbortSignal.timeout(PATIENCE));
    if (this.stopped) return;
    if (visit === null) {
      this.say("out");
    } else if (visit === undefined) {
      this.say("lost");
    } else if (this.standing.state === "lost" && [...this.health.values()].every((health) => health === "live")) {
      // The watches never noticed: they may be of another life of the server.
      this.again();
      return;
    }
    this.beat(PULSE);
  }
}

function wait(milliseconds: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });
}
