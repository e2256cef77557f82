// The ladder of a Service: each rung is proved, failed or not measured. Pure.
//
// In: the Service, its slices, the Pods of its namespace, the Nodes, what nodes report. Out: six rungs in the order in which a packet needs
// them, each with its evidence; where one failed, why, and what to type. Nothing is called proved that was not seen.
import type { Node, Pod, Service, Slice } from "../net/types";
import { type Report, type Tried, type Try, isSilent } from "../net/reports";
import { isAlias, isHeadless, isReady, isWaiting, unservedPorts } from "./judge";
import { isPodReady, matches, nearMiss, selectorText, whyNotReady } from "./match";

export type Verdict = "proved" | "failed" | "unmeasured" | "unneeded";

export interface Rung {
  id: "address" | "selector" | "endpoints" | "programmed" | "name" | "reachable";
  title: string;
  verdict: Verdict;
  text: string;
  /** What to type to mend it, or to measure it. */
  commands: string[];
}

export const VERDICT_WORDS: Record<Verdict, string> = {
  proved: "proved",
  failed: "failed",
  unmeasured: "not measured",
  unneeded: "not needed",
};

export interface Facts {
  service: Service;
  slices: readonly Slice[];
  pods: readonly Pod[];
  nodes: readonly Node[];
  /** None as long as nodes were not asked. */
  reports: readonly Report[] | null;
}

/** What a rung says without its place. */
type Finding = Omit<Rung, "id" | "title">;

const proved = (text: string): Finding => ({ verdict: "proved", text, commands: [] });
const failed = (text: string, ...commands: string[]): Finding => ({ verdict: "failed", text, commands });
const unmeasured = (text: string, ...commands: string[]): Finding => ({ verdict: "unmeasured", text, commands });
const unneeded = (text: string): Finding => ({ verdict: "unneeded", text, commands: [] });

/** All rungs, in order. */
export function ladder(facts: Facts): Rung[] {
  return [
    { id: "address", title: "Address", ...address(facts) },
    { id: "selector", title: "Selector", ...selector(facts) },
    { id: "endpoints", title: "Ready endpoints", ...endpoints(facts) },
    { id: "programmed", title: "Programmed on nodes", ...programmed(facts) },
    { id: "name", title: "Name resolves", ...name(facts) },
    { id: "reachable", title: "Reachable", ...reachable(facts) },
  ];
}

/** The first rung that failed. */
export const broken = (rungs: readonly Rung[]): Rung | undefined => rungs.find((rung) => rung.verdict === "failed");

const place = ({ service }: Facts): string => `-n ${service.metadata.namespace ?? "default"}`;
const count = (number: number, word: string): string => `${number} ${word}${number === 1 ? "" : "s"}`;
const said = ({ service }: Facts, type: string): string | undefined =>
  (service.status?.conditions ?? []).find((one) => one.type === type && one.status === "False")?.message;

function address(facts: Facts): Finding {
  const { service } = facts;
  if (isAlias(service)) {
    const target = service.spec.externalName ?? "";
    if (/^[\d.]+$|:/.test(target)) {
      return failed(
        `The Service is an alias of ${target}, which is an address. An alias leads to a name; no resolver follows it to an address.`,
        `kubectl explain service.spec.externalName`,
      );
    }
    return proved(`The Service is an alias of ${target}; it needs no address of its own.`);
  }
  if (isHeadless(service)) return proved("The Service is headless: its name leads straight to its endpoints.");
  const ips = service.spec.clusterIPs ?? [];
  if (ips.length === 0) {
    return failed("The Service has no cluster IP.", `kubectl describe service ${service.metadata.name} ${place(facts)}`);
  }
  if (isWaiting(service)) {
    return failed(
      `No load balancer has answered yet; the cluster IP ${ips.join(", ")} works meanwhile.`,
      `kubectl get service ${service.metadata.name} ${place(facts)} --watch`,
    );
  }
  const balancers = (service.status?.loadBalancer?.ingress ?? []).map((one) => one.ip ?? one.hostname ?? "");
  return proved(`It has ${[...ips, ...balancers].join(", ")}.`);
}

function selector(facts: Facts): Finding {
  const { service, pods, slices } = facts;
  if (isAlias(service)) return unneeded("An alias selects no Pods.");
  const wanted = service.spec.selector ?? {};
  if (Object.keys(wanted).length === 0) {
    const total = slices.reduce((sum, slice) => sum + (slice.endpoints ?? []).length, 0);
    if (total > 0) return unneeded(`The Service has no selector; somebody wrote ${count(total, "endpoint")} by hand.`);
    return failed(
      "The Service has no selector, and nobody has written endpoints for it.",
      `kubectl set selector service/${service.metadata.name} ${place(facts)} app=NAME`,
    );
  }
  const found = pods.filter((pod) => matches(wanted, pod)).length;
  const text = selectorText(wanted);
  if (found > 0) return proved(`${text} matches ${count(found, "Pod")} of ${pods.length} in ${service.metadata.namespace}.`);
  const show = `kubectl get pods ${place(facts)} --show-labels`;
  const told = said(facts, "PodsMatched");
  const near = nearMiss(wanted, pods, told);
  const words = told ?? `${text} matches none of ${count(pods.length, "Pod")} in ${service.metadata.namespace}.`;
  if (!near) return failed(words, show);
  const meant = selectorText(near.selector);
  const hint = told ?? `${words} ${count(near.pods, "Pod")} would match ${meant}.`;
  return failed(hint, `kubectl set selector service/${service.metadata.name} ${place(facts)} ${meant}`, show);
}

function endpoints(facts: Facts): Finding {
  const { service, slices, pods } = facts;
  if (isAlias(service)) return unneeded("An alias has no endpoints.");
  const all = slices.flatMap((slice) => slice.endpoints ?? []);
  const ready = all.filter(isReady).length;
  const lacking = unservedPorts(service, slices);
  const describe = `kubectl describe service ${service.metadata.name} ${place(facts)}`;
  if (ready > 0 && lacking.length === 0) {
    return proved(`${ready} of ${count(all.length, "endpoint")} ${ready === 1 ? "is" : "are"} ready, and every port is served.`);
  }
  const told = said(facts, "EndpointsReady");
  if (ready > 0) {
    return failed(told ?? `No ready endpoint serves port ${lacking.join(", ")}: is its targetPort a port of the Pods?`, describe);
  }
  const wanted = service.spec.selector ?? {};
  const chosen = Object.keys(wanted).length > 0 ? pods.filter((pod) => matches(wanted, pod)) : [];
  const sick = chosen.filter((pod) => !isPodReady(pod));
  const first = sick[0];
  if (first) {
    const named = sick.slice(0, 3).map((pod) => `${pod.metadata.name} (${whyNotReady(pod)})`);
    const more = sick.length > 3 ? ` and ${sick.length - 3} more` : "";
    return failed(
      told ?? `${count(chosen.length, "Pod")} matched, none is ready: ${named.join(", ")}${more}.`,
      `kubectl describe pod ${first.metadata.name} ${place(facts)}`,
    );
  }
  if (chosen.length > 0) {
    return failed(told ?? `${count(chosen.length, "Pod")} matched and ready, but no slice has them: is the targetPort a port of theirs?`, describe);
  }
  return failed(told ?? "There is no endpoint at all.", `kubectl get endpointslices ${place(facts)} -l kubernetes.io/service-name=${service.metadata.name}`);
}

function programmed(facts: Facts): Finding {
  const { service, nodes, reports } = facts;
  if (isAlias(service)) return unneeded("An alias is answered by names alone.");
  if (isHeadless(service)) return unneeded("Clients of a headless Service go straight to its endpoints.");
  if (nodes.length === 0) return unmeasured("There is no Node that could report.", doctor(facts));
  if (!reports) return unmeasured("The nodes are being asked.");
  const total = nodes.length;
  const spoken = reports.filter((one) => !isSilent(one));
  const silent = reports.filter(isSilent);
  const bad = spoken.find((one) => !isSilent(one) && !(one.synced && one.service?.programmed));
  if (bad && !isSilent(bad)) {
    const why = !bad.synced ? "its last write to the kernel failed" : bad.service ? bad.service.why || "the kernel differs from the plan" : "it does not know this Service";
    const good = spoken.filter((one) => !isSilent(one) && one.synced && one.service?.programmed).length;
    return failed(`Programmed on ${good} of ${count(total, "node")}. Node ${bad.node}: ${why}.`, doctor(facts));
  }
  const quiet = silent[0];
  if (spoken.length === 0) {
    return unmeasured(quiet ? `No node reports. Node ${quiet.node}: ${quiet.silent}.` : "No node reports.", doctor(facts));
  }
  if (quiet || spoken.length < total) {
    const who = quiet ? ` Node ${quiet.node}: ${quiet.silent}.` : "";
    return unmeasured(`Programmed on ${spoken.length} of ${count(total, "node")}; the others are not known.${who}`, doctor(facts));
  }
  return proved(`Programmed on ${spoken.length} of ${count(total, "node")}.`);
}

const doctor = ({ service }: Facts): string => `waypost doctor ${service.metadata.name} -n ${service.metadata.namespace}`;

function name(facts: Facts): Finding {
  const { service } = facts;
  const dig = `waypost dig ${service.metadata.name}.${service.metadata.namespace}`;
  return tried(facts, "name", dig);
}

function reachable(facts: Facts): Finding {
  if (isAlias(facts.service)) return unneeded("An alias leads to a name; who answers there is not its business.");
  return tried(facts, "reachable", doctor(facts));
}

/** What the nodes found when they tried; `otherwise` is how to find out by hand. */
function tried(facts: Facts, what: keyof Tried, otherwise: string): Finding {
  const { nodes, reports } = facts;
  if (nodes.length === 0) return unmeasured("There is no Node that could try.", otherwise);
  if (!reports) return unmeasured("The nodes are trying.");
  const found: { node: string; one: Try }[] = [];
  const quiet: { node: string; why: string }[] = [];
  for (const report of reports) {
    if (isSilent(report)) quiet.push({ node: report.node, why: report.silent });
    else if (!report.tried) quiet.push({ node: report.node, why: "it does not try Services" });
    else found.push({ node: report.node, one: report.tried[what] });
  }
  const those = (verdict: Try["verdict"]): typeof found => found.filter(({ one }) => one.verdict === verdict);
  const from = ({ node, one }: (typeof found)[number]): string => `From node ${node}: ${sentence(one.text)}`;
  const [bad] = those("failed");
  if (bad) return failed(from(bad), bad.one.next || otherwise);
  const good = those("proved");
  const [first] = good;
  const [unsure] = those("unmeasured");
  const [spared] = those("unneeded");
  const asked = nodes.length - those("unneeded").length;
  if (first && good.length >= asked) {
    return proved(asked === 1 ? from(first) : `From ${asked} of ${count(asked, "node")}. Node ${first.node}: ${sentence(first.one.text)}`);
  }
  const seen = first ? `Proved from ${good.length} of ${count(asked, "node")}. ` : "";
  if (unsure) {
    // The way to measure it is words, or words around a command.
    const how = unsure.one.next ? ` To measure it: ${unsure.one.next}.` : "";
    return unmeasured(`${seen}${from(unsure)}${how}`, otherwise);
  }
  const mute = quiet[0];
  if (mute) return unmeasured(`${seen}Node ${mute.node}: ${mute.why}.`, otherwise);
  return unmeasured(spared ? `${seen}${from(spared)}` : "No node has tried.", otherwise);
}

/** Words of a node as a sentence. */
const sentence = (text: string): string => (text.endsWith(".") ? text : `${text}.`);
