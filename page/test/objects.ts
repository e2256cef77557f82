// Objects for tests.
import type { Endpoint, Service, Slice } from "../src/net/types";

export const service = (name: string, spec: Partial<Service["spec"]> = {}, more: Partial<Service> = {}): Service => ({
  metadata: { name, namespace: "default" },
  spec: { type: "ClusterIP", clusterIP: "10.96.0.5", clusterIPs: ["10.96.0.5"], selector: { app: name }, ports: [{ port: 80 }], ...spec },
  ...more,
});

export const endpoint = (address: string, ready = true, more: Partial<Endpoint> = {}): Endpoint => ({
  addresses: [address],
  conditions: { ready, serving: ready, terminating: false },
  targetRef: { kind: "Pod", name: `pod-${address.split(".").pop()}`, namespace: "default" },
  ...more,
});

export const slice = (owner: string, endpoints: Endpoint[], ports: Slice["ports"] = [{ port: 8080, protocol: "TCP" }]): Slice => ({
  metadata: { name: `${owner}-abc`, namespace: "default", labels: { "kubernetes.io/service-name": owner } },
  addressType: "IPv4",
  endpoints,
  ports,
});
