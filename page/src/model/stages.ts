// The stages of a Service from its address to a connection. Pure.
//
// In: the server's diagnosis, and what nodes report and measured. Out: six stages in the order in which a packet needs them, each with its
// evidence and, where it failed, a command. Nothing is called ok that was not seen.
import type { Diagnosis, StageResult } from "../net/findings";
import type { Node, Service } from "../net/types";
import { type Measured, type Measurement, type NodeReport, type Report, isUnavailable } from "../net/reports";
import { isAlias, isHeadless } from "./summary";

export type Status = "ok" | "failed" | "unmeasured" | "unneeded";

export interface Stage {
  id: "address" | "selector" | "endpoints" | "programmed" | "name" | "reachable";
  title: string;
  status: Status;
  text: string;
  code?: string;
  /** Commands that repair it, or that measure it. */
  commands: string[];
}

export const STATUS_TEXT: Record<Status, string> = { ok: "ok", failed: "failed", unmeasured: "not measured", unneeded: "not needed" };

export interface Facts {
  service: Service;
  /** Null until the server answers. */
  diagnosis: Diagnosis | null;
  nodes: readonly Node[];
  /** Null until the nodes answer. */
  reports: readonly Report[] | null;
}

type Result = Omit<Stage, "id" | "title">;

const ok = (text: string): Result => ({ status: "ok", text, commands: [] });
const failed = (text: string, ...commands: string[]): Result => ({ status: "failed", text, commands });
const unmeasured = (text: string, ...commands: string[]): Result => ({ status: "unmeasured", text, commands });
const unneeded = (text: string): Result => ({ status: "unneeded", text, commands: [] });

export function stages(facts: Facts): Stage[] {
  const { diagnosis } = facts;
  return [
    { id: "address", title: "Address", ...diagnosed(diagnosis?.address) },
    { id: "selector", title: "Pods", ...diagnosed(diagnosis?.pods) },
    { id: "endpoints", title: "Ready endpoints", ...diagnosed(diagnosis?.endpoints) },
    { id: "programmed", title: "Programmed on nodes", ...programmed(facts) },
    { id: "name", title: "Name resolves", ...measured(facts, "name", `waypost dig ${facts.service.metadata.name}.${facts.service.metadata.namespace}`) },
    { id: "reachable", title: "Reachable", ...reachable(facts) },
  ];
}

export const firstFailed = (all: readonly Stage[]): Stage | undefined => all.find(({ status }) => status === "failed");

function diagnosed(result: StageResult | undefined): Result {
  if (!result) return unmeasured("Waiting for the server's diagnosis.");
  const { message, code, fix } = result;
  if (result.ok) return ok(message);
  if (result.unknown) return unmeasured(message);
  return { ...failed(message, ...(fix ? [fix] : [])), ...(code ? { code } : {}) };
}

const count = (number: number, noun: string): string => `${number} ${noun}${number === 1 ? "" : "s"}`;
const doctor = ({ service }: Facts): string => `waypost doctor ${service.metadata.name} -n ${service.metadata.namespace}`;

function programmed(facts: Facts): Result {
  const { service, nodes, reports } = facts;
  if (isAlias(service)) return unneeded("An ExternalName Service is served by DNS alone.");
  if (isHeadless(service)) return unneeded("Clients of a headless Service connect to its endpoints.");
  if (nodes.length === 0) return unmeasured("No Node exists that could report.", doctor(facts));
  if (!reports) return unmeasured("Waiting for the reports of nodes.");
  const total = nodes.length;
  const available = reports.filter((report) => !isUnavailable(report)) as NodeReport[];
  const bad = available.find((report) => !(report.synced && report.service?.programmed));
  if (bad) {
    const why = !bad.synced ? "the last sync of its kernel rules failed" : bad.service ? bad.service.why || "the kernel rules differ from the plan" : "it has no rules for this Service";
    const good = available.filter((report) => report.synced && report.service?.programmed).length;
    return failed(`Programmed on ${good} of ${count(total, "node")}. Node ${bad.node}: ${why}.`, doctor(facts));
  }
  const unavailable = reports.find(isUnavailable);
  const reason = unavailable ? ` Node ${unavailable.node}: ${unavailable.unavailable}.` : "";
  if (available.length === 0) return unmeasured(`No node reports.${reason}`, doctor(facts));
  if (available.length < total) {
    return unmeasured(`Programmed on ${available.length} of ${count(total, "node")}; the others do not report.${reason}`, doctor(facts));
  }
  return ok(`Programmed on ${available.length} of ${count(total, "node")}.`);
}

function reachable(facts: Facts): Result {
  if (isAlias(facts.service)) return unneeded("An ExternalName Service has no address of its own.");
  return measured(facts, "reachable", doctor(facts));
}

/** What the nodes measured; `otherwise` is the command that measures it by hand. */
function measured(facts: Facts, what: keyof Measured, otherwise: string): Result {
  const { nodes, reports } = facts;
  if (nodes.length === 0) return unmeasured("No Node exists that could measure it.", otherwise);
  if (!reports) return unmeasured("Waiting for the measurements of nodes.");
  const found: { node: string; one: Measurement }[] = [];
  const lacking: { node: string; why: string }[] = [];
  for (const report of reports) {
    if (isUnavailable(report)) lacking.push({ node: report.node, why: report.unavailable });
    else if (!report.measured) lacking.push({ node: report.node, why: "it does not measure Services" });
    else found.push({ node: report.node, one: report.measured[what] });
  }
  const those = (status: Status): typeof found => found.filter(({ one }) => one.status === status);
  const from = ({ node, one }: (typeof found)[number]): string => `From node ${node}: ${sentence(one.text)}`;
  const [bad] = those("failed");
  if (bad) return failed(from(bad), bad.one.next || otherwise);
  const good = those("ok");
  const [first] = good;
  const [unsure] = those("unmeasured");
  const [spared] = those("unneeded");
  const needed = nodes.length - those("unneeded").length;
  if (first && good.length >= needed) {
    return ok(needed === 1 ? from(first) : `From ${needed} of ${count(needed, "node")}. Node ${first.node}: ${sentence(first.one.text)}`);
  }
  const seen = first ? `Ok from ${good.length} of ${count(needed, "node")}. ` : "";
  if (unsure) {
    const how = unsure.one.next ? ` To measure it: ${unsure.one.next}.` : "";
    return unmeasured(`${seen}${from(unsure)}${how}`, otherwise);
  }
  const [none] = lacking;
  if (none) return unmeasured(`${seen}Node ${none.node}: ${none.why}.`, otherwise);
  return unmeasured(spared ? `${seen}${from(spared)}` : "No node has measured it.", otherwise);
}

const sentence = (text: string): string => (text.endsWith(".") ? text : `${text}.`);
