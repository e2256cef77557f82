// Objects for tests, as short as they can be.
import type { Endpoint, Pod, Service, Slice } from "../src/net/types";

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

export const pod = (name: string, labels: Record<string, string>, ready = true): Pod => ({
  metadata: { name, namespace: "default", labels },
  spec: { nodeName: "n1" },
  status: { phase: "Running", podIP: "10.244.0.9", conditions: [{ type: "Ready", status: ready ? "True" : "False", ...(ready ? {} : { message: "probe failed" }) }] },
});
