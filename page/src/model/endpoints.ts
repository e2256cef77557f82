// The endpoints of a Service: those of its slices, and selected Pods that are in no slice.
import type { Endpoint, Slice } from "../net/types";
import { isReady, isTerminating } from "./summary";

export interface Row {
  key: string;
  address: string;
  ports: string;
  pod: string;
  node: string;
  /** Whether it gets new connections. */
  in: boolean;
  why: string;
}

/** One row for each endpoint; `excluded` are the Pods that are no endpoints, with the reason. */
export function rows(slices: readonly Slice[], excluded: Record<string, string>): Row[] {
  const out: Row[] = [];
  const listed = new Set<string>();
  // While no endpoint is ready, terminating ones that still serve get connections.
  const anyReady = slices.some((slice) => (slice.endpoints ?? []).some(isReady));
  for (const slice of slices) {
    const ports = (slice.ports ?? []).map((port) => `${port.port ?? "any"}/${port.protocol ?? "TCP"}`).join(", ");
    for (const endpoint of slice.endpoints ?? []) {
      const pod = endpoint.targetRef?.kind === "Pod" ? (endpoint.targetRef.name ?? "") : "";
      if (pod) listed.add(pod);
      const [isIn, why] = reason(endpoint, ports !== "", anyReady, excluded[pod]);
      out.push({
        key: `${slice.metadata.name}/${endpoint.addresses[0] ?? ""}`,
        address: endpoint.addresses.join(", "),
        ports,
        pod,
        node: endpoint.nodeName ?? "",
        in: isIn,
        why,
      });
    }
  }
  for (const [pod, why] of Object.entries(excluded)) {
    if (!listed.has(pod)) out.push({ key: `pod/${pod}`, address: "", ports: "", pod, node: "", in: false, why });
  }
  return out.sort((a, b) => Number(b.in) - Number(a.in) || (a.key < b.key ? -1 : 1));
}

function reason(endpoint: Endpoint, hasPorts: boolean, anyReady: boolean, excluded: string | undefined): [boolean, string] {
  if (!hasPorts) return [false, "its slice has no ports"];
  if (isTerminating(endpoint)) {
    if (endpoint.conditions?.serving && !anyReady) return [true, "terminating, still serving while no endpoint is ready"];
    return [false, "terminating"];
  }
  return isReady(endpoint) ? [true, "ready"] : [false, excluded ?? "is not ready"];
}
