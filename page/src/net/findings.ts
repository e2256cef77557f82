// The findings of the server's diagnosis, limited to objects that this user may list.

export type State = "ok" | "degraded" | "pending" | "not working" | "unknown";

export interface ServiceState {
  state: State;
  code?: string;
  message?: string;
}

export interface Finding {
  code: string;
  level: string;
  message: string;
  evidence: string[];
  fix: string;
}

/** A stage that holds, that has a finding, or that cannot be decided with the rights of this user. */
export interface StageResult extends Partial<Finding> {
  ok?: boolean;
  unknown?: boolean;
  message: string;
}

export interface Diagnosis {
  state: State;
  address: StageResult;
  pods: StageResult;
  endpoints: StageResult;
  findings: Finding[];
  /** Pods that are selected and no endpoints, with the reason. */
  excluded?: Record<string, string>;
}

/** Null when the server does not answer, undefined when there is no such object, or none that the user may list. */
export async function get<T>(query: string): Promise<T | null | undefined> {
  try {
    const response = await fetch(`/page/findings${query}`, { cache: "no-store" });
    if (response.status === 404 || response.status === 403) return undefined;
    return response.ok ? ((await response.json()) as T) : null;
  } catch {
    return null;
  }
}

/** The state of every Service, by `namespace/name`; null when the server does not answer. */
export const states = async (): Promise<Record<string, ServiceState> | null> =>
  (await get<{ services: Record<string, ServiceState> }>(""))?.services ?? null;

/** The stages of one Service. */
export const diagnosis = (service: string): Promise<Diagnosis | null | undefined> => get(`?service=${encodeURIComponent(service)}`);

const DEBOUNCE = 250;
const RETRY = 2000;

/** Runs work after changes: once for many of them, never twice at a time, and at most a fifth of the time. */
export class Refresh {
  private timer: ReturnType<typeof setTimeout> | undefined;
  private running = false;
  private again = false;
  private stopped = false;
  private pause = DEBOUNCE;

  /** `work` returns whether it succeeded; it is retried if not. */
  constructor(private readonly work: () => Promise<boolean>) {}

  readonly request = (): void => {
    if (this.running) this.again = true;
    else this.timer ??= setTimeout(() => void this.run(), this.pause);
  };

  stop(): void {
    this.stopped = true;
    clearTimeout(this.timer);
  }

  private async run(): Promise<void> {
    this.timer = undefined;
    this.running = true;
    const begun = performance.now();
    const done = await this.work();
    this.running = false;
    if (this.stopped) return;
    this.pause = done ? Math.max(DEBOUNCE, 4 * (performance.now() - begun)) : RETRY;
    if (!done || this.again) this.request();
    this.again = false;
  }
}
