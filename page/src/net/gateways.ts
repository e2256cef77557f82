// Gateways, routes and Ingresses, as the server diagnosed them for this user.
import { type Finding, get } from "./findings";
import type { Condition } from "./types";

export type Layer7State = "ok" | "degraded" | "not working" | "not ours" | "pending" | "unknown";

/** How an object is, with its first finding. */
export interface Judgement {
  state: Layer7State;
  code?: string;
  message?: string;
  fix?: string;
}

export interface Subject {
  kind: string;
  /** `namespace/name`. */
  key: string;
}

export interface Listener extends Judgement {
  name: string;
  /** The ListenerSet that it is part of. */
  set?: string;
  protocol: string;
  port: number;
  host: string;
  routes: number;
}

export interface Share {
  service?: string;
  port?: number;
  weight: number;
  why?: string;
}

/** A match of a rule. */
export interface Rule {
  host: string;
  condition: string;
  listeners: string[];
  route: Subject;
  rule: number;
  says: string;
  backends: Share[];
}

export interface Gateway extends Subject, Judgement {
  class: string;
  addresses: string[];
  listeners: Listener[];
  rows: Rule[];
}

export interface Apart extends Subject, Judgement {
  hosts: string[];
}

/** Everything at a glance; rules are in order of precedence. */
export interface Overview {
  gateways: Gateway[];
  /** By `KIND namespace/name`. */
  routes: Record<string, Judgement>;
  apart: Apart[];
  more: number;
  /** Kinds that the user may not list in all namespaces. */
  missing: string[];
}

/** A part of an explanation. */
export interface Item {
  kind: string;
  name: string;
  says: string;
  items?: Item[];
}

export interface ConditionGroup {
  about: string;
  controller: string;
  conditions: Condition[];
}

export interface Explanation extends Subject {
  state: Layer7State;
  /** Why the state is unknown. */
  message?: string;
  findings: Finding[];
  items: Item[];
  conditions: ConditionGroup[];
}

export const overview = (): Promise<Overview | null | undefined> => get("?view=gateways");

/** Undefined when there is no such object, or none that the user may list. */
export const explanation = (kind: string, key: string): Promise<Explanation | null | undefined> =>
  get(`?object=${encodeURIComponent(`${kind}/${key}`)}`);

/** The routes that lead to a Service. */
export async function routesTo(service: string): Promise<Apart[] | null | undefined> {
  const found = await get<{ routes: Apart[] }>(`?routes=${encodeURIComponent(service)}`);
  return found ? found.routes : found;
}
