// What nodes say of their proxies. Where a node says nothing, nothing is known: that is told, never guessed.

export interface Backend {
  address: string;
  local: boolean;
  /** False for one that has connections left, and gets no new ones. */
  planned?: boolean;
  connections: number | null;
  bytes: number | null;
}

export interface ReportedPort {
  name: string;
  protocol: string;
  port: number;
  frontends: string[];
  backends: Backend[];
}

export interface ReportedService {
  programmed: boolean;
  why: string;
  ports: ReportedPort[];
}

/** What a node found when it tried something as a client would. */
export interface Try {
  verdict: "proved" | "failed" | "unmeasured" | "unneeded";
  text: string;
  /** Where it failed, what to type; where it was not measured, how it can be. */
  next: string;
}

export interface Tried {
  name: Try;
  reachable: Try;
}

/** The answer of a node about one Service, or why there is none. */
export type Report =
  | { node: string; mode: string; synced: boolean; syncedAt: string; service: ReportedService | null; tried: Tried | null }
  | { node: string; silent: string };

export const isSilent = (report: Report): report is { node: string; silent: string } => "silent" in report;

interface Wire {
  mode?: string;
  synced?: boolean;
  syncedAt?: string;
  services?: Record<string, Partial<ReportedService>>;
  tried?: { name?: Partial<Try>; reachable?: Partial<Try> };
}

type Fetch = (path: string) => Promise<Response>;
// A node takes up to five seconds to try a Service that does not answer.
const patient: Fetch = (path) => fetch(path, { cache: "no-store", signal: AbortSignal.timeout(8000) });

const place = (node: string, what: string, service: string): string =>
  `/api/v1/nodes/${encodeURIComponent(node)}/proxy/waypost/${what}?service=${encodeURIComponent(service)}`;

function silence(code: number): string {
  if (code === 401 || code === 403) return "you may not ask nodes (nodes/proxy)";
  return "it does not report";
}

/** Asks a node about a Service, and to try it. */
export async function report(node: string, service: string, ask: Fetch = patient): Promise<Report> {
  try {
    const response = await ask(`${place(node, "report", service)}&try=true`);
    if (!response.ok) return { node, silent: silence(response.status) };
    return read(node, service, (await response.json()) as Wire);
  } catch {
    return { node, silent: "it does not answer" };
  }
}

/** Reads a report; what is not as agreed counts as silence. */
export function read(node: string, key: string, wire: Wire): Report {
  if (typeof wire?.mode !== "string" || typeof wire.services !== "object" || wire.services === null) {
    return { node, silent: "its report cannot be read" };
  }
  const found = wire.services[key];
  const service = found
    ? { programmed: found.programmed === true, why: found.why ?? "", ports: found.ports ?? [] }
    : null;
  const { name, reachable } = wire.tried ?? {};
  const tried = name && reachable ? { name: attempt(name), reachable: attempt(reachable) } : null;
  return { node, mode: wire.mode, synced: wire.synced === true, syncedAt: wire.syncedAt ?? "", service, tried };
}

/** A verdict that is not one of ours proves nothing. */
function attempt({ verdict, text, next }: Partial<Try>): Try {
  const known = verdict === "proved" || verdict === "failed" || verdict === "unneeded";
  return { verdict: known ? verdict : "unmeasured", text: text ?? "", next: next ?? "" };
}

/** The rules of a Service on a node, or why there are none to show. */
export async function rules(node: string, service: string, ask: Fetch = patient): Promise<{ text: string } | { silent: string }> {
  try {
    const response = await ask(place(node, "rules", service));
    if (!response.ok) return { silent: silence(response.status) };
    return { text: await response.text() };
  } catch {
    return { silent: "it does not answer" };
  }
}

export interface Flow {
  node: string;
  port: string;
  backend: string;
  local: boolean;
  planned: boolean;
  connections: number | null;
  bytes: number | null;
}

/** Connections of a Service, one row for each node, port and backend. */
export function flows(reports: readonly Report[]): Flow[] {
  const out: Flow[] = [];
  for (const one of reports) {
    if (isSilent(one) || !one.service) continue;
    for (const port of one.service.ports) {
      const name = `${port.port}/${port.protocol}`;
      for (const { address, local, planned, connections, bytes } of port.backends ?? []) {
        out.push({ node: one.node, port: name, backend: address, local, planned: planned !== false, connections: connections ?? null, bytes: bytes ?? null });
      }
    }
  }
  return out;
}
