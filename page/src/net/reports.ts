// The reports of nodes about their proxies. What a node does not report is shown as not measured, never guessed.

export interface Backend {
  address: string;
  local: boolean;
  /** False for one that drains: it has connections left and gets no new ones. */
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

/** What a node measured as a client. */
export interface Measurement {
  status: "ok" | "failed" | "unmeasured" | "unneeded";
  text: string;
  /** Where it failed, the command that repairs it; where it was not measured, how it can be. */
  next: string;
}

export interface Measured {
  name: Measurement;
  reachable: Measurement;
}

export interface NodeReport {
  node: string;
  mode: string;
  synced: boolean;
  syncedAt: string;
  service: ReportedService | null;
  measured: Measured | null;
}

/** The report of a node about one Service, or why there is none. */
export type Report = NodeReport | Unavailable;

export interface Unavailable {
  node: string;
  unavailable: string;
}

export const isUnavailable = (report: Report): report is Unavailable => "unavailable" in report;

interface WireMeasurement {
  verdict?: string;
  text?: string;
  next?: string;
}

interface Wire {
  mode?: string;
  synced?: boolean;
  syncedAt?: string;
  services?: Record<string, Partial<ReportedService>>;
  tried?: { name?: WireMeasurement; reachable?: WireMeasurement };
}

type Fetch = (path: string) => Promise<Response>;
// A node takes up to five seconds to measure a Service that does not answer.
const TIMEOUT = 8000;
const fetchReport: Fetch = (path) => fetch(path, { cache: "no-store", signal: AbortSignal.timeout(TIMEOUT) });

const pathOf = (node: string, what: string, service: string): string =>
  `/api/v1/nodes/${encodeURIComponent(node)}/proxy/waypost/${what}?service=${encodeURIComponent(service)}`;

const reasonOf = (code: number): string =>
  code === 401 || code === 403 ? "you may not read reports of nodes (nodes/proxy)" : "it does not report";

/** Reads the report of a node about a Service, which the node measures for it. */
export async function report(node: string, service: string, get: Fetch = fetchReport): Promise<Report> {
  try {
    const response = await get(`${pathOf(node, "report", service)}&try=true`);
    if (!response.ok) return { node, unavailable: reasonOf(response.status) };
    return read(node, service, (await response.json()) as Wire);
  } catch {
    return { node, unavailable: "it does not answer" };
  }
}

/** Parses a report. */
export function read(node: string, key: string, wire: Wire): Report {
  if (typeof wire?.mode !== "string" || typeof wire.services !== "object" || wire.services === null) {
    return { node, unavailable: "its report is malformed" };
  }
  const found = wire.services[key];
  const service = found
    ? { programmed: found.programmed === true, why: found.why ?? "", ports: found.ports ?? [] }
    : null;
  const { name, reachable } = wire.tried ?? {};
  const measured = name && reachable ? { name: measurement(name), reachable: measurement(reachable) } : null;
  return { node, mode: wire.mode, synced: wire.synced === true, syncedAt: wire.syncedAt ?? "", service, measured };
}

/** An unknown verdict counts as not measured. */
function measurement({ verdict, text, next }: WireMeasurement): Measurement {
  const known = { proved: "ok", failed: "failed", unneeded: "unneeded" } as const;
  const status = known[verdict as keyof typeof known] ?? "unmeasured";
  return { status, text: text ?? "", next: next ?? "" };
}

/** The rules of a Service on a node, or why they are unavailable. */
export async function rules(node: string, service: string, get: Fetch = fetchReport): Promise<{ text: string } | { unavailable: string }> {
  try {
    const response = await get(pathOf(node, "rules", service));
    if (!response.ok) return { unavailable: reasonOf(response.status) };
    return { text: await response.text() };
  } catch {
    return { unavailable: "it does not answer" };
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
    if (isUnavailable(one) || !one.service) continue;
    for (const port of one.service.ports) {
      const name = `${port.port}/${port.protocol}`;
      for (const { address, local, planned, connections, bytes } of port.backends ?? []) {
        out.push({ node: one.node, port: name, backend: address, local, planned: planned !== false, connections: connections ?? null, bytes: bytes ?? null });
      }
    }
  }
  return out;
}
