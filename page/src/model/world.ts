// What the page knows: tables of objects, and how each Service is, kept up to date one change at a time.
//
// In: whole lists and single changes. Out: `version` and a call to whoever listens, at most once for each picture that the browser
// draws, however many changes came. Only Services that a change touched are looked at again.
import type { KubeEvent, Node, Obj, Pod, Service, ServiceCidr, Slice } from "../net/types";
import { keyOf } from "../net/types";
import type { Sink } from "../net/watch";
import { type Grade, type Sight, sight } from "./judge";

export interface Tables {
  services: Service;
  slices: Slice;
  pods: Pod;
  nodes: Node;
  events: KubeEvent;
  namespaces: Obj;
  cidrs: ServiceCidr;
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
};

export const NAMES = Object.keys(PATHS) as Name[];

/** A Service whose grade is another one than before. */
export interface Turn {
  key: string;
  from: Grade | null;
  to: Grade | null;
}

const OWNER = "kubernetes.io/service-name";
const NONE = new Map<string, never>();

export class World {
  /** Grows with every change that listeners were told of. */
  version = 0;
  private readonly tables = new Map<Name, Map<string, Obj>>(NAMES.map((name) => [name, new Map()]));
  private readonly sliceIndex = new Map<string, Map<string, Slice>>();
  private readonly podIndex = new Map<string, Map<string, Pod>>();
  private readonly sights = new Map<string, Sight>();
  private readonly dirty = new Set<string>();
  private readonly complete = new Set<Name>();
  private readonly listeners = new Set<() => void>();
  private readonly turnListeners = new Set<(turns: Turn[]) => void>();
  private keys: string[] | null = null;
  private pending = false;
  private looked = false;

  /** `soon` calls back when it is time to tell listeners: in a browser, before the next picture. */
  constructor(private readonly soon: (call: () => void) => void) {}

  table<N extends Name>(name: N): ReadonlyMap<string, Tables[N]> {
    return this.tables.get(name) as unknown as ReadonlyMap<string, Tables[N]>;
  }

  /** Whether a table has been read once. */
  has(...names: Name[]): boolean {
    return names.every((name) => this.complete.has(name));
  }

  slicesOf(service: string): ReadonlyMap<string, Slice> {
    return this.sliceIndex.get(service) ?? NONE;
  }

  podsIn(namespace: string): ReadonlyMap<string, Pod> {
    return this.podIndex.get(namespace) ?? NONE;
  }

  sight(service: string): Sight | undefined {
    return this.sights.get(service);
  }

  /** Services in the order of their names. */
  serviceKeys(): readonly string[] {
    this.keys ??= [...this.table("services").keys()].sort();
    return this.keys;
  }

  listen(call: () => void): () => void {
    this.listeners.add(call);
    return () => this.listeners.delete(call);
  }

  onTurn(call: (turns: Turn[]) => void): () => void {
    this.turnListeners.add(call);
    return () => this.turnListeners.delete(call);
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
    this.wake();
  }

  private apply(name: Name, deleted: boolean, object: Obj): void {
    delete object.metadata.managedFields;
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
    } else if (name === "pods") {
      const namespace = object.metadata.namespace ?? "";
      let pods = this.podIndex.get(namespace);
      if (!pods) this.podIndex.set(namespace, (pods = new Map()));
      if (deleted) pods.delete(key);
      else pods.set(key, object as Pod);
    }
    this.wake();
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
    this.soon(() => this.flush());
  }

  /** Looks again at what was touched, and tells. */
  flush(): void {
    this.pending = false;
    // Before slices are known every Service would seem to have none.
    const turns = this.has("services", "slices") ? this.look() : [];
    this.version += 1;
    for (const call of this.listeners) call();
    if (turns.length > 0) for (const call of this.turnListeners) call(turns);
  }

  private look(): Turn[] {
    const turns: Turn[] = [];
    for (const key of this.dirty) {
      const service = this.table("services").get(key);
      const from = this.sights.get(key)?.grade ?? null;
      if (service) this.sights.set(key, sight(service, [...this.slicesOf(key).values()]));
      else this.sights.delete(key);
      const to = this.sights.get(key)?.grade ?? null;
      if (from !== to) turns.push({ key, from, to });
    }
    this.dirty.clear();
    // What is there at the beginning is no change.
    const first = !this.looked;
    this.looked = true;
    return first ? [] : turns;
  }
}
