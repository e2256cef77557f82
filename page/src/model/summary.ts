// A Service in the list: its state as the server diagnosed it, and counts of its endpoints. Pure.
import type { ServiceState } from "../net/findings";
import type { Endpoint, Service, Slice } from "../net/types";

/** `alias` needs no endpoints; `waiting` works inside and waits for a load balancer. */
export type Grade = "ready" | "partly" | "failing" | "waiting" | "alias" | "unknown";

export type Dot = "ready" | "unready" | "terminating";

export interface SliceSummary {
  name: string;
  family: string;
  total: number;
  ready: number;
}

export interface Summary {
  grade: Grade;
  text: string;
  total: number;
  ready: number;
  slices: SliceSummary[];
  /** One for each endpoint, the ready ones first. */
  dots: { dot: Dot; name: string }[];
}

export const GRADES: readonly Grade[] = ["failing", "partly", "waiting", "unknown", "ready", "alias"];

export const GRADE_TEXT: Record<Grade, string> = {
  ready: "ready",
  partly: "partly ready",
  failing: "not working",
  waiting: "waiting",
  alias: "alias",
  unknown: "unknown",
};

/** A missing `ready` means ready. */
export const isReady = (endpoint: Endpoint): boolean => endpoint.conditions?.ready ?? true;
export const isTerminating = (endpoint: Endpoint): boolean => endpoint.conditions?.terminating ?? false;

const dotOf = (endpoint: Endpoint): Dot => (isTerminating(endpoint) ? "terminating" : isReady(endpoint) ? "ready" : "unready");
const ORDER: Record<Dot, number> = { ready: 0, unready: 1, terminating: 2 };

export const isHeadless = (service: Service): boolean => service.spec.clusterIP === "None";
export const isAlias = (service: Service): boolean => service.spec.type === "ExternalName";

export function summarize(service: Service, slices: readonly Slice[], state: ServiceState): Summary {
  const sorted = [...slices].sort((a, b) => (a.metadata.name < b.metadata.name ? -1 : 1));
  const parts: SliceSummary[] = [];
  const dots: { dot: Dot; name: string }[] = [];
  for (const slice of sorted) {
    const endpoints = slice.endpoints ?? [];
    const ready = endpoints.filter(isReady).length;
    parts.push({ name: slice.metadata.name, family: slice.addressType, total: endpoints.length, ready });
    for (const endpoint of endpoints) {
      dots.push({ dot: dotOf(endpoint), name: endpoint.targetRef?.name ?? endpoint.addresses[0] ?? "" });
    }
  }
  dots.sort((a, b) => ORDER[a.dot] - ORDER[b.dot] || (a.name < b.name ? -1 : a.name > b.name ? 1 : 0));
  const total = dots.length;
  const ready = dots.filter(({ dot }) => dot === "ready").length;
  const counts = isAlias(service) ? `CNAME ${service.spec.externalName ?? ""}` : `${ready} of ${total} ready`;
  return { grade: gradeOf(service, state, ready < total), text: state.message ?? counts, total, ready, slices: parts, dots };
}

function gradeOf(service: Service, { state }: ServiceState, someUnready: boolean): Grade {
  switch (state) {
    case "not working":
      return "failing";
    case "degraded":
      return "partly";
    case "pending":
      return "waiting";
    case "ok":
      return isAlias(service) ? "alias" : someUnready ? "partly" : "ready";
    default:
      return "unknown";
  }
}

/** Type, addresses and ports in one line. */
export function addressLine(service: Service): string {
  if (isAlias(service)) return service.spec.externalName ?? "";
  const ips = (service.spec.clusterIPs ?? []).filter((ip) => ip !== "" && ip !== "None");
  const ports = (service.spec.ports ?? []).map((port) => {
    const node = port.nodePort ? `:${port.nodePort}` : "";
    return `${port.port}${node}/${port.protocol ?? "TCP"}`;
  });
  const where = isHeadless(service) ? "headless" : (ips[0] ?? "no address");
  return [where, ports.join(", ")].filter(Boolean).join(" · ");
}
