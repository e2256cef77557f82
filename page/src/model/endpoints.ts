// Who is behind a Service and who is not, with the reason: the endpoints of its slices, and Pods that were meant and are in none.
import type { Endpoint, Pod, Service, Slice } from "../net/types";
import { isEnding, isReady } from "./judge";
import { matches, whyNotReady } from "./match";

export interface Row {
  key: string;
  address: string;
  ports: string;
  pod: string;
  node: string;
  /** Whether new connections are led there. */
  in: boolean;
  why: string;
}

/** One row for each endpoint of each slice, then Pods that match and are in no slice. */
export function rows(service: Service, slices: readonly Slice[], pods: readonly Pod[]): Row[] {
  const out: Row[] = [];
  const named = new Set<string>();
  const byName = new Map(pods.map((pod) => [pod.metadata.name, pod]));
  // When nobody is ready, those that still serve while they end are better than nobody.
  const anyReady = slices.some((slice) => (slice.endpoints ?? []).some(isReady));
  for (const slice of slices) {
    const ports = (slice.ports ?? []).map((port) => `${port.port ?? "any"}/${port.protocol ?? "TCP"}`).join(", ");
    for (const endpoint of slice.endpoints ?? []) {
      const pod = endpoint.targetRef?.kind === "Pod" ? (endpoint.targetRef.name ?? "") : "";
      if (pod) named.add(pod);
      const [isIn, why] = reason(endpoint, ports !== "", anyReady, byName.get(pod));
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
  const selector = service.spec.selector ?? {};
  if (Object.keys(selector).length > 0) {
    for (const pod of pods) {
      if (!matches(selector, pod) || named.has(pod.metadata.name)) continue;
      out.push({
        key: `pod/${pod.metadata.name}`,
        address: pod.status?.podIP ?? "",
        ports: "",
        pod: pod.metadata.name,
        node: pod.spec?.nodeName ?? "",
        in: false,
        why: outside(pod),
      });
    }
  }
  return out.sort((a, b) => Number(b.in) - Number(a.in) || (a.key < b.key ? -1 : 1));
}

function reason(endpoint: Endpoint, hasPorts: boolean, anyReady: boolean, pod: Pod | undefined): [boolean, string] {
  if (!hasPorts) return [false, "none of its ports is the targetPort"];
  if (isEnding(endpoint)) {
    if (endpoint.conditions?.serving && !anyReady) return [true, "it is ending, but still serves and nobody else does"];
    return [false, "it is ending"];
  }
  if (!isReady(endpoint)) return [false, pod ? `not ready: ${whyNotReady(pod)}` : "not ready"];
  return [true, "ready"];
}

function outside(pod: Pod): string {
  if (pod.status?.phase === "Succeeded" || pod.status?.phase === "Failed") return `it has ended (${pod.status.phase})`;
  if (!pod.spec?.nodeName) return "no node was found for it yet";
  if (!pod.status?.podIP) return `it has no address yet: ${whyNotReady(pod)}`;
  return "it matches, and no slice has it yet";
}
