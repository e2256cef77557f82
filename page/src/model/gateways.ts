// The rows of the Gateways view: Gateways with their listeners and rules, in the order of the server. Pure.
import type { Apart, Gateway, Judgement, Layer7State, Listener, Overview, Rule, Share } from "../net/gateways";
import type { Grade } from "./summary";

export type Line =
  | { type: "gateway"; key: string; gateway: Gateway }
  | { type: "listener"; key: string; gateway: Gateway; listener: Listener }
  | { type: "rule"; key: string; rule: Rule; judgement: Judgement }
  | { type: "apart"; key: string; apart: Apart };

const GRADES: Record<Layer7State, Grade> = {
  ok: "ready",
  degraded: "partly",
  "not working": "failing",
  pending: "waiting",
  "not ours": "alias",
  unknown: "unknown",
};

const TEXTS: Record<Grade, string> = {
  ready: "works",
  partly: "partly works",
  failing: "not working",
  waiting: "waiting",
  alias: "of another controller",
  unknown: "unknown",
};

export const gradeOf = ({ state }: Judgement): Grade => GRADES[state] ?? "unknown";

/** The state of an object in words. */
export function words(judgement: Judgement): string {
  const text = TEXTS[gradeOf(judgement)];
  return judgement.message ? `${text}: ${judgement.message}` : text;
}

/** The judgement of the object of a line. */
export function judgementOf(line: Line): Judgement {
  switch (line.type) {
    case "gateway":
      return line.gateway;
    case "listener":
      return line.listener;
    case "rule":
      return line.judgement;
    default:
      return line.apart;
  }
}

const UNKNOWN: Judgement = { state: "unknown" };

/** All lines: each Gateway, its listeners, its rules; then what is attached to none. */
export function linesOf(overview: Overview): Line[] {
  const lines: Line[] = [];
  for (const gateway of overview.gateways) {
    const own = `${gateway.kind} ${gateway.key}`;
    lines.push({ type: "gateway", key: own, gateway });
    for (const listener of gateway.listeners) lines.push({ type: "listener", key: `${own} ${listener.set ?? ""} ${listener.name}`, gateway, listener });
    gateway.rows.forEach((rule, at) => {
      const route = `${rule.route.kind} ${rule.route.key}`;
      lines.push({ type: "rule", key: `${own} ${at} ${route}`, rule, judgement: overview.routes[route] ?? UNKNOWN });
    });
  }
  for (const apart of overview.apart) lines.push({ type: "apart", key: `apart ${apart.kind} ${apart.key}`, apart });
  return lines;
}

const isIn = (namespace: string, key: string): boolean => namespace === "" || key.startsWith(`${namespace}/`);

function haystack(line: Line): string {
  switch (line.type) {
    case "gateway":
      return [line.gateway.kind, line.gateway.key, line.gateway.class, ...line.gateway.addresses].join(" ");
    case "listener":
      return [line.listener.name, line.listener.set, line.listener.host, line.listener.protocol, line.listener.port].join(" ");
    case "rule": {
      const { host, condition, route, backends } = line.rule;
      return [host, condition, route.kind, route.key, ...backends.map(({ service, port }) => `${service ?? ""}:${port ?? ""}`)].join(" ");
    }
    default:
      return [line.apart.kind, line.apart.key, ...line.apart.hosts].join(" ");
  }
}

const namespaceKey = (line: Line): string =>
  line.type === "rule" ? line.rule.route.key : line.type === "apart" ? line.apart.key : line.type === "listener" ? (line.listener.set ?? line.gateway.key) : line.gateway.key;

/**
 * The lines that fit. A Gateway that fits is shown with all its rules; a rule or listener that fits, with its Gateway above it. With a grade,
 * only objects of that grade count.
 */
export function filtered(lines: readonly Line[], filter: { text: string; namespace: string; grade: Grade | null }): Line[] {
  const terms = filter.text.trim().toLowerCase().split(/\s+/).filter(Boolean);
  if (terms.length === 0 && !filter.namespace && !filter.grade) return [...lines];
  const fitsText = (line: Line): boolean => {
    const text = haystack(line).toLowerCase();
    return terms.every((term) => text.includes(term));
  };
  const fitsRest = (line: Line): boolean =>
    isIn(filter.namespace, namespaceKey(line)) && (!filter.grade || gradeOf(judgementOf(line)) === filter.grade);
  const out: Line[] = [];
  let heading: Line | null = null;
  let headingFits = false;
  for (const line of lines) {
    if (line.type === "gateway") {
      heading = line;
      headingFits = terms.length > 0 && fitsText(line);
      if (fitsText(line) && fitsRest(line)) {
        out.push(line);
        heading = null;
      }
      continue;
    }
    if (line.type === "apart") [heading, headingFits] = [null, false];
    if (!fitsRest(line) || !(headingFits || fitsText(line))) continue;
    if (heading) out.push(heading);
    heading = null;
    out.push(line);
  }
  return out;
}

/** How many objects have a state: Gateways, listeners, and each route once. */
export function counts(lines: readonly Line[]): Map<Grade, number> {
  const all = new Map<Grade, number>();
  const seen = new Set<string>();
  for (const line of lines) {
    const id = line.type === "rule" ? `${line.rule.route.kind} ${line.rule.route.key}` : line.key;
    if (seen.has(id)) continue;
    seen.add(id);
    const grade = gradeOf(judgementOf(line));
    all.set(grade, (all.get(grade) ?? 0) + 1);
  }
  return all;
}

/** `80 %` for a share; nothing where there is one backend. */
export function shareText(share: Share, all: readonly Share[]): string {
  const sum = all.reduce((total, { weight }) => total + weight, 0);
  if (all.length === 1 && share.weight > 0) return "";
  return sum === 0 ? "0 %" : `${Math.round((share.weight / sum) * 1000) / 10} %`;
}
