// One Service: its ladder, who is behind it, what happened to it, who talks to it, and the rules that lead there.
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { GRADE_WORDS, addressLine } from "../model/judge";
import { ladder } from "../model/ladder";
import { newestFirst } from "../model/events";
import { type Row, rows } from "../model/endpoints";
import { type Report, report } from "../net/reports";
import { type Node, keyOf } from "../net/types";
import { EventTable } from "./EventTable";
import { Flows } from "./Flows";
import { Ladder } from "./Ladder";
import { Rules } from "./Rules";
import { GradeSign } from "./glyphs";
import { useStanding, useShared, useWorld } from "./state";

const EVERY = 2000;

export function ServiceView({ namespace, name }: { namespace: string; name: string }): JSX.Element {
  const world = useWorld();
  const key = `${namespace}/${name}`;
  const nodes = [...world.table("nodes").values()];
  const reports = useReports(key, nodes, world.has("nodes"));
  const service = world.table("services").get(key);
  const sight = world.sight(key);
  if (!service || !sight) {
    return (
      <section aria-labelledby="title">
        <p><a href="#/">All Services</a></p>
        <h1 id="title" tabIndex={-1}>{name}</h1>
        {world.has("services", "slices") ? (
          <p class="empty" role="status">There is no Service {name} in {namespace}. <code>kubectl get services -n {namespace}</code> lists those there are.</p>
        ) : (
          <p class="empty" role="status">Reading…</p>
        )}
      </section>
    );
  }
  const slices = [...world.slicesOf(key).values()];
  const pods = [...world.podsIn(namespace).values()];
  const all = [...world.table("events").values()];
  const events = newestFirst(
    all.filter(({ involvedObject: about }) => about.kind === "Service" && about.name === name && about.namespace === namespace),
  );
  return (
    <section class="service" aria-labelledby="title">
      <p class="crumb"><a href="#/">All Services</a></p>
      <header class="bar">
        <h1 id="title" tabIndex={-1}><GradeSign grade={sight.grade} /> {name} <small>{namespace}</small></h1>
        <p class="line"><span class="type">{service.spec.type ?? "ClusterIP"}</span> {addressLine(service)}</p>
        <p class="words" role="status">{GRADE_WORDS[sight.grade]}: {sight.words}</p>
      </header>
      <Ladder rungs={ladder({ service, slices, pods, nodes, reports })} />
      <Endpoints rows={rows(service, slices, pods)} />
      <Flows reports={reports} />
      <Rules service={key} nodes={nodes.map(keyOf)} />
      <section aria-labelledby="events-title">
        <h2 id="events-title">Events</h2>
        <EventTable events={events} label="Events of this Service" empty="Nothing has happened to this Service lately." short />
      </section>
    </section>
  );
}

/** What nodes say of a Service, asked again every two seconds while somebody looks. */
function useReports(service: string, nodes: readonly Node[], known: boolean): Report[] | null {
  const { connection } = useShared();
  const { state } = useStanding(connection);
  const [answer, setAnswer] = useState<{ service: string; reports: Report[] } | null>(null);
  // Where a Node has no address nobody can ask it.
  const has = (node: Node): boolean => (node.status?.addresses ?? []).length > 0;
  const names = nodes.map((node) => (has(node) ? keyOf(node) : `!${keyOf(node)}`)).join(" ");
  useEffect(() => {
    if (!known || state !== "live") return;
    let over = false;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const ask = async (): Promise<void> => {
      if (document.visibilityState === "visible") {
        const ask = (node: string): Promise<Report> | Report => (node.startsWith("!") ? { node: node.slice(1), silent: "it has no address" } : report(node, service));
        const reports = await Promise.all(names.split(" ").filter(Boolean).map(ask));
        if (!over) setAnswer({ service, reports });
      }
      if (!over) timer = setTimeout(() => void ask(), EVERY);
    };
    void ask();
    return () => {
      over = true;
      clearTimeout(timer);
    };
  }, [service, names, known, state]);
  return answer?.service === service ? answer.reports : null;
}

function Endpoints({ rows }: { rows: Row[] }): JSX.Element {
  return (
    <section aria-labelledby="endpoints-title">
      <h2 id="endpoints-title">Endpoints</h2>
      {rows.length === 0 ? (
        <p class="empty">Nobody is behind this Service.</p>
      ) : (
        <div class="scroll" tabIndex={0} role="group" aria-labelledby="endpoints-title">
          <table>
            <thead>
              <tr><th scope="col">In</th><th scope="col">Address</th><th scope="col">Ports</th><th scope="col">Pod</th><th scope="col">Node</th><th scope="col">Why</th></tr>
            </thead>
            <tbody>
              {rows.map((row) => (
                <tr key={row.key} class={row.in ? "is-in" : "is-out"}>
                  <td><span class={`tag ${row.in ? "good" : "bad"}`}>{row.in ? "in" : "out"}</span></td>
                  <th scope="row">{row.address || "none yet"}</th>
                  <td>{row.ports || "none"}</td>
                  <td>{row.pod || "not a Pod"}</td>
                  <td>{row.node || "not said"}</td>
                  <td class="text">{row.why}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}
