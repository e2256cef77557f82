// The cache of objects, and a summary of each Service.
//
// In: lists, changes, and the states that the server diagnosed. Out: `version`, and a call to listeners at most once per animation frame.
// Only Services that a change concerns are summarized again.
import type { KubeEvent, Node, Obj, Pod, Service, ServiceCidr, Slice } from "../net/types";
import { keyOf } from "../net/types";
import type { ServiceState } from "../net/findings";
import type { Sink } from "../net/watch";
import { type Grade, type Summary, summarize } from "./summary";

export interface Tables {
  services: Service;
  slices: Slice;
  pods: Pod;
  nodes: Node;
  events: KubeEvent;
  namespaces: Obj;
  cidrs: ServiceCidr;
  gatewayclasses: Obj;
  gateways: Obj;
  listenersets: Obj;
  httproutes: Obj;
  grpcroutes: Obj;
  tlsroutes: Obj;
  tcproutes: Obj;
  udproutes: Obj;
  referencegrants: Obj;
  backendtlspolicies: Obj;
  trafficpolicies: Obj;
  ingressclasses: Obj;
  ingresses: Obj;
}

export type Name = keyof Tables;

export const PATHS: Record<Name, string> = {
  services: "/api/v1/services",
  slices: "/apis/discovery.k8s.io/v1/endpointslices",
  pods: "/api/v1/pods",
  nodes: "/api/v1/nodes",
  events: "/api/v1/events",
  namespaces: "/api/v1/namespaces",
  cidrs: "/apis/networking.k8s.io/v1/servicecidrs",
  gatewayclasses: "/apis/gateway.networking.k8s.io/v1/gatewayclasses",
  gateways: "/apis/gateway.networking.k8s.io/v1/gateways",
  listenersets: "/apis/gateway.networking.k8s.io/v1/listenersets",
  httproutes: "/apis/gateway.networking.k8s.io/v1/httproutes",
  grpcroutes: "/apis/gateway.networking.k8s.io/v1/grpcroutes",
  tlsroutes: "/apis/gateway.networking.k8s.io/v1/tlsroutes",
  tcproutes: "/apis/gateway.networking.k8s.io/v1/tcproutes",
  udproutes: "/apis/gateway.networking.k8s.io/v1/udproutes",
  referencegrants: "/apis/gateway.networking.k8s.io/v1beta1/referencegrants",
  backendtlspolicies: "/apis/gateway.networking.k8s.io/v1/backendtlspolicies",
  trafficpolicies: "/apis/waypost.dev/v1/trafficpolicies",
  ingressclasses: "/apis/networking.k8s.io/v1/ingressclasses",
  ingresses: "/apis/networking.k8s.io/v1/ingresses",
};

export const NAMES = Object.keys(PATHS) as Name[];

/** Tables of layer 7, named by plural. Only metadata are watched: the server sends what the views show. */
export const LAYER7: readonly Name[] = [
  "gatewayclasses", "gateways", "listenersets", "httproutes", "grpcroutes", "tlsroutes", "tcproutes", "udproutes", "referencegrants",
  "backendtlspolicies", "trafficpolicies", "ingressclasses", "ingresses",
];

/** Tables that a diagnosis depends on. */
const DIAGNOSED: readonly Name[] = ["services", "slices", "pods", "nodes", "cidrs"];
const NO_ANSWER: ServiceState = { state: "unknown", message: "the server does not answer with a diagnosis" };

/** A Service whose grade changed. */
export interface GradeChange {
  key: string;
  from: Grade | null;
  to: Grade | null;
}

const OWNER = "kubernetes.io/service-name";
const NONE = new Map<string, never>();

export class World {
  /** Grows with every call to listeners. */
  version = 0;
  private readonly tables = new Map<Name, Map<string, Obj>>(NAMES.map((name) => [name, new Map()]));
  private readonly sliceIndex = new Map<string, Map<string, Slice>>();
  private readonly summaries = new Map<string, Summary>();
  private states: Record<string, ServiceState> | null = null;
  private unavailable = false;
  private readonly dirty = new Set<string>();
  private readonly complete = new Set<Name>();
  private readonly listeners = new Set<() => void>();
  private readonly gradeListeners = new Set<(changes: GradeChange[]) => void>();
  private readonly objectListeners = new Set<() => void>();
  private readonly layer7Listeners = new Set<() => void>();
  private keys: string[] | null = null;
  private pending = false;
  private objectsChanged = false;
  private layer7Changed = false;
  private summarized = false;

  /** `schedule` defers the call to listeners: in a browser, to the next animation frame. */
  constructor(private readonly schedule: (call: () => void) => void) {}

  table<N extends Name>(name: N): ReadonlyMap<string, Tables[N]> {
    return this.tables.get(name) as unknown as ReadonlyMap<string, Tables[N]>;
  }

  /** Whether tables have been listed. */
  has(...names: Name[]): boolean {
    return names.every((name) => this.complete.has(name));
  }

  slicesOf(service: string): ReadonlyMap<string, Slice> {
    return this.sliceIndex.get(service) ?? NONE;
  }

  summary(service: string): Summary | undefined {
    return this.summaries.get(service);
  }

  /** Whether the state of Services is known. */
  isDiagnosed(): boolean {
    return this.has("services", "slices") && (this.states !== null || this.unavailable);
  }

  /** Takes the states of all Services; null when the server did not answer. */
  setStates(states: Record<string, ServiceState> | null): void {
    const [before, after] = [this.states ?? {}, states ?? this.states ?? {}];
    const changed = (key: string): boolean => before[key]?.state !== after[key]?.state || before[key]?.message !== after[key]?.message;
    const keys = new Set([...this.table("services").keys(), ...Object.keys(after)]);
    for (const key of keys) if (changed(key) || !this.summaries.has(key)) this.dirty.add(key);
    this.unavailable = states === null;
    this.states = states ?? this.states;
    this.wake();
  }

  /** Keys of Services, sorted. */
  serviceKeys(): readonly string[] {
    this.keys ??= [...this.table("services").keys()].sort();
    return this.keys;
  }

  listen(call: () => void): () => void {
    this.listeners.add(call);
    return () => this.listeners.delete(call);
  }

  onGradeChange(call: (changes: GradeChange[]) => void): () => void {
    this.gradeListeners.add(call);
    return () => this.gradeListeners.delete(call);
  }

  /** Calls after changes of objects that a diagnosis depends on. */
  onObjects(call: () => void): () => void {
    this.objectListeners.add(call);
    return () => this.objectListeners.delete(call);
  }

  /** Calls after changes of objects that a diagnosis of layer 7 depends on, Services and Pods included. */
  onLayer7(call: () => void): () => void {
    this.layer7Listeners.add(call);
    return () => this.layer7Listeners.delete(call);
  }

  sink(name: Name): Sink {
    return {
      replace: (objects) => this.replace(name, objects),
      apply: (type, object) => this.apply(name, type === "DELETED", object),
    };
  }

  private replace(name: Name, objects: Obj[]): void {
    const table = this.tables.get(name) as Map<string, Obj>;
    const gone = new Set(table.keys());
    for (const object of objects) {
      gone.delete(keyOf(object));
      this.apply(name, false, object);
    }
    for (const key of gone) this.apply(name, true, table.get(key) as Obj);
    this.complete.add(name);
    this.note(name);
    this.wake();
  }

  private apply(name: Name, deleted: boolean, object: Obj): void {
    delete object.metadata.managedFields;
    this.note(name);
    const table = this.tables.get(name) as Map<string, Obj>;
    const key = keyOf(object);
    const before = table.get(key);
    if (deleted) table.delete(key);
    else table.set(key, object);
    if (name === "services") {
      if (deleted === (before !== undefined)) this.keys = null;
      this.dirty.add(key);
    } else if (name === "slices") {
      this.index(before as Slice | undefined, deleted ? undefined : (object as Slice), key);
    }
    this.wake();
  }

  private note(name: Name): void {
    this.objectsChanged ||= DIAGNOSED.includes(name);
    this.layer7Changed ||= DIAGNOSED.includes(name) || name === "namespaces" || LAYER7.includes(name);
  }

  private index(before: Slice | undefined, after: Slice | undefined, key: string): void {
    const owner = (slice: Slice | undefined): string | null => {
      const name = slice?.metadata.labels?.[OWNER];
      return name ? `${slice.metadata.namespace ?? ""}/${name}` : null;
    };
    const [old, now] = [owner(before), owner(after)];
    if (old && old !== now) this.sliceIndex.get(old)?.delete(key);
    if (old) this.dirty.add(old);
    if (now && after) {
      let own = this.sliceIndex.get(now);
      if (!own) this.sliceIndex.set(now, (own = new Map()));
      own.set(key, after);
      this.dirty.add(now);
    }
  }

  private wake(): void {
    if (this.pending) return;
    this.pending = true;
    this.schedule(() => this.flush());
  }

  /** Summarizes changed Services and calls listeners. */
  flush(): void {
    this.pending = false;
    const changes = this.isDiagnosed() ? this.summarizeDirty() : [];
    this.version += 1;
    for (const call of this.listeners) call();
    if (changes.length > 0) for (const call of this.gradeListeners) call(changes);
    const [objects, layer7] = [this.objectsChanged, this.layer7Changed];
    [this.objectsChanged, this.layer7Changed] = [false, false];
    if (objects) for (const call of this.objectListeners) call();
    if (layer7) for (const call of this.layer7Listeners) call();
  }

  private summarizeDirty(): GradeChange[] {
    const changes: GradeChange[] = [];
    for (const key of this.dirty) {
      const service = this.table("services").get(key);
      const from = this.summaries.get(key)?.grade ?? null;
      // A new Service is shown once the server has diagnosed it.
      const state = this.states?.[key] ?? (this.unavailable ? NO_ANSWER : undefined);
      if (!service) this.summaries.delete(key);
      else if (state) this.summaries.set(key, summarize(service, [...this.slicesOf(key).values()], state));
      const to = this.summaries.get(key)?.grade ?? null;
      if (from !== to) changes.push({ key, from, to });
    }
    this.dirty.clear();
    // The first summaries are no change.
    const first = !this.summarized;
    this.summarized = true;
    return first ? [] : changes;
  }
}
