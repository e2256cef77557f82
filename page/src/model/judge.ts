// How a Service is, at a glance: from the Service and its slices alone, so that a thousand of them cost little.
import type { Endpoint, Service, Slice } from "../net/types";

/** `alias` needs nothing behind it; `waiting` works inside and waits for a load balancer. */
export type Grade = "ready" | "partly" | "failing" | "waiting" | "alias";

export type Dot = "ready" | "unready" | "ending";

export interface SliceSight {
  name: string;
  family: string;
  total: number;
  ready: number;
}

export interface Sight {
  grade: Grade;
  /** What is the matter, in a few words. */
  words: string;
  total: number;
  ready: number;
  slices: SliceSight[];
  /** One for each endpoint, the worst last. */
  dots: { dot: Dot; name: string }[];
}

export const GRADES: readonly Grade[] = ["failing", "partly", "waiting", "ready", "alias"];

export const GRADE_WORDS: Record<Grade, string> = {
  ready: "ready",
  partly: "partly ready",
  failing: "not working",
  waiting: "waiting",
  alias: "alias",
};

/** A missing `ready` means ready: whoever wrote the slice could not tell. */
export const isReady = (endpoint: Endpoint): boolean => endpoint.conditions?.ready ?? true;
export const isEnding = (endpoint: Endpoint): boolean => endpoint.conditions?.terminating ?? false;

const dotOf = (endpoint: Endpoint): Dot => (isEnding(endpoint) ? "ending" : isReady(endpoint) ? "ready" : "unready");
const ORDER: Record<Dot, number> = { ready: 0, unready: 1, ending: 2 };

/** Names of Service ports that no ready endpoint serves. */
export function unservedPorts(service: Service, slices: readonly Slice[]): string[] {
  const served = new Set<string>();
  for (const slice of slices) {
    if (!(slice.endpoints ?? []).some(isReady)) continue;
    for (const port of slice.ports ?? []) served.add(`${port.name ?? ""}/${port.protocol ?? "TCP"}`);
  }
  return (service.spec.ports ?? [])
    .filter((port) => !served.has(`${port.name ?? ""}/${port.protocol ?? "TCP"}`))
    .map((port) => port.name || String(port.port));
}

export const isHeadless = (service: Service): boolean => service.spec.clusterIP === "None";
export const isAlias = (service: Service): boolean => service.spec.type === "ExternalName";

/** Whether a load balancer was asked for and has not answered. */
export function isWaiting(service: Service): boolean {
  return service.spec.type === "LoadBalancer" && (service.status?.loadBalancer?.ingress ?? []).length === 0;
}

/** Looks at a Service. */
export function sight(service: Service, slices: readonly Slice[]): Sight {
  const sorted = [...slices].sort((a, b) => (a.metadata.name < b.metadata.name ? -1 : 1));
  const seen: SliceSight[] = [];
  const dots: { dot: Dot; name: string }[] = [];
  for (const slice of sorted) {
    const endpoints = slice.endpoints ?? [];
    const ready = endpoints.filter(isReady).length;
    seen.push({ name: slice.metadata.name, family: slice.addressType, total: endpoints.length, ready });
    for (const endpoint of endpoints) {
      dots.push({ dot: dotOf(endpoint), name: endpoint.targetRef?.name ?? endpoint.addresses[0] ?? "" });
    }
  }
  dots.sort((a, b) => ORDER[a.dot] - ORDER[b.dot] || (a.name < b.name ? -1 : a.name > b.name ? 1 : 0));
  const total = dots.length;
  const ready = dots.filter(({ dot }) => dot === "ready").length;
  const [grade, words] = grading(service, slices, total, ready);
  return { grade, words, total, ready, slices: seen, dots };
}

function grading(service: Service, slices: readonly Slice[], total: number, ready: number): [Grade, string] {
  if (isAlias(service)) return ["alias", `leads to ${service.spec.externalName ?? "?"}`];
  if (ready === 0) return ["failing", told(service) ?? (total === 0 ? "no endpoints" : `0 of ${total} ready`)];
  const lacking = unservedPorts(service, slices);
  const ports = (service.spec.ports ?? []).length;
  if (ports > 0 && lacking.length === ports) return ["failing", `no endpoint serves port ${lacking.join(", ")}`];
  if (lacking.length > 0) return ["partly", `nobody serves port ${lacking.join(", ")}`];
  if (isWaiting(service)) return ["waiting", "no load balancer has answered yet"];
  if (ready < total) return ["partly", `${ready} of ${total} ready`];
  return ["ready", `${ready} of ${total} ready`];
}

/** What the Service says of itself, when it is not well. */
const told = (service: Service): string | undefined =>
  (service.status?.conditions ?? []).find((one) => one.type === "Ready" && one.status === "False")?.message;

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
