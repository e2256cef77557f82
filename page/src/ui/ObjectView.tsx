// One Gateway, ListenerSet, route or Ingress: findings, what its traffic passes, conditions, Events.
import type { JSX } from "preact";
import { newestFirst } from "../model/events";
import { gradeOf, words } from "../model/gateways";
import { type ConditionGroup, type Item, explanation } from "../net/gateways";
import { EventTable } from "./EventTable";
import { Verdict } from "./Verdict";
import { type ReadState, useFindings } from "./findings";
import { GradeSign } from "./glyphs";
import { objectHref, serviceHref } from "./router";
import { useWorld } from "./state";

export function ObjectView({ kind, namespace, name }: { kind: string; namespace: string; name: string }): JSX.Element {
  const world = useWorld();
  const key = `${namespace}/${name}`;
  const { answer, state } = useFindings(`${kind} ${key}`, () => explanation(kind, key));
  const crumb = <p class="crumb"><a href="#/gateways">All Gateways</a></p>;
  if (!answer) {
    return (
      <section class="service" aria-labelledby="title">
        {crumb}
        <h1 id="title" tabIndex={-1}>{name}</h1>
        <p class="empty" role="status">{WITHOUT_ANSWER[state](`${kind} ${name} in ${namespace}`)}</p>
      </section>
    );
  }
  const about = [...world.table("events").values()].filter(({ involvedObject: one }) => one.kind === kind && one.name === name && one.namespace === namespace);
  const [first, ...others] = answer.findings;
  const judgement = { state: answer.state, message: first?.message ?? answer.message ?? "" };
  return (
    <section class="service object" aria-labelledby="title">
      {crumb}
      <header class="bar">
        <h1 id="title" tabIndex={-1}><GradeSign grade={gradeOf(answer)} /> {name} <small>{namespace}</small></h1>
        <p class="line"><span class="type">{kind}</span></p>
        <p class="words" role="status">{words(judgement)}</p>
      </header>
      {first && <Verdict title={first.code} text={first.message} evidence={first.evidence} commands={[first.fix]} others={others} />}
      {answer.items.length > 0 && (
        <section aria-labelledby="path-title">
          <h2 id="path-title">{kind.endsWith("Route") || kind === "Ingress" ? "Parents and rules" : "Listeners and routes"}</h2>
          <div class="tree"><Items items={answer.items} /></div>
        </section>
      )}
      <Conditions groups={answer.conditions} />
      <section aria-labelledby="events-title">
        <h2 id="events-title">Events</h2>
        <EventTable events={newestFirst(about)} label={`Events of this ${kind}`} empty={`There is no recent Event of this ${kind}.`} short />
      </section>
    </section>
  );
}

const WITHOUT_ANSWER: Record<ReadState, (object: string) => string> = {
  known: () => "",
  reading: () => "Reading…",
  absent: (object) => `There is no ${object} that you may list.`,
  failed: () => "The server does not answer with a diagnosis.",
};

const NOUNS: Record<string, string> = { listenerSet: "ListenerSet", hostnames: "hostnames", more: "" };

function Items({ items }: { items: readonly Item[] }): JSX.Element {
  return (
    <ul>
      {items.map((item, at) => (
        <li key={at} class={`item-${item.kind}`}>
          <span class="noun">{NOUNS[item.kind] ?? item.kind}</span> <ItemName item={item} />
          {item.says && <span class="says">{item.says}</span>}
          {item.items && item.items.length > 0 && <Items items={item.items} />}
        </li>
      ))}
    </ul>
  );
}

/** The name of a part; Services and other objects are links. */
function ItemName({ item }: { item: Item }): JSX.Element {
  const [kind, key, rest] = /^(\w+) (\S+?\/[^\s,]+)(.*)$/.exec(item.name)?.slice(1) ?? [];
  if (!kind || !key || kind === "TrafficPolicy") return <b>{item.name}</b>;
  return <b><a href={kind === "Service" ? serviceHref(key) : objectHref({ kind, key })}>{kind} {key}</a>{rest}</b>;
}

function Conditions({ groups }: { groups: readonly ConditionGroup[] }): JSX.Element | null {
  if (groups.length === 0) return null;
  return (
    <section aria-labelledby="conditions-title">
      <h2 id="conditions-title">Conditions</h2>
      <div class="scroll" tabIndex={0} role="group" aria-labelledby="conditions-title">
        <table>
          <thead>
            <tr><th scope="col">Of</th><th scope="col">Condition</th><th scope="col">Status</th><th scope="col">Reason</th><th scope="col">Message</th></tr>
          </thead>
          <tbody>
            {groups.flatMap(({ about, controller, conditions }) =>
              conditions.map(({ type, status, reason, message }) => (
                <tr key={`${about} ${controller} ${type}`}>
                  <td>{about || "the object"}{controller && !controller.startsWith("waypost.dev/") ? ` (${controller})` : ""}</td>
                  <th scope="row">{type}</th>
                  <td>{status}</td>
                  <td>{reason}</td>
                  <td class="text">{message}</td>
                </tr>
              )),
            )}
          </tbody>
        </table>
      </div>
    </section>
  );
}
