// One Service: its checks, endpoints, connections, rules and Events.
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { GRADE_TEXT, addressLine } from "../model/summary";
import { stages } from "../model/stages";
import { newestFirst } from "../model/events";
import { type Row, rows } from "../model/endpoints";
import { type Diagnosis, Refresh, diagnosis } from "../net/findings";
import { type Report, report } from "../net/reports";
import { type Node, keyOf } from "../net/types";
import { EventTable } from "./EventTable";
import { Flows } from "./Flows";
import { LeadingRoutes } from "./LeadingRoutes";
import { Rules } from "./Rules";
import { Stages } from "./Stages";
import { GradeSign } from "./glyphs";
import { useConnectionStatus, useShared, useWorld } from "./state";

const REPORT_INTERVAL = 2000;

export function ServiceView({ namespace, name }: { namespace: string; name: string }): JSX.Element {
  const world = useWorld();
  const key = `${namespace}/${name}`;
  const nodes = [...world.table("nodes").values()];
  const reports = useReports(key, nodes, world.has("nodes"));
  const service = world.table("services").get(key);
  const summary = world.summary(key);
  const found = useDiagnosis(key, service !== undefined);
  if (!service || !summary) {
    return (
      <section aria-labelledby="title">
        <p><a href="#/">All Services</a></p>
        <h1 id="title" tabIndex={-1}>{name}</h1>
        {world.isDiagnosed() && !service ? (
          <p class="empty" role="status">There is no Service {name} in {namespace}. <code>kubectl get services -n {namespace}</code> lists those there are.</p>
        ) : (
          <p class="empty" role="status">Reading…</p>
        )}
      </section>
    );
  }
  const slices = [...world.slicesOf(key).values()];
  const all = [...world.table("events").values()];
  const events = newestFirst(
    all.filter(({ involvedObject: about }) => about.kind === "Service" && about.name === name && about.namespace === namespace),
  );
  return (
    <section class="service" aria-labelledby="title">
      <p class="crumb"><a href="#/">All Services</a></p>
      <header class="bar">
        <h1 id="title" tabIndex={-1}><GradeSign grade={summary.grade} /> {name} <small>{namespace}</small></h1>
        <p class="line"><span class="type">{service.spec.type ?? "ClusterIP"}</span> {addressLine(service)}</p>
        <p class="words" role="status">{GRADE_TEXT[summary.grade]}: {summary.text}</p>
      </header>
      <Stages stages={stages({ service, diagnosis: found, nodes, reports })} findings={found?.findings ?? []} />
      <Endpoints rows={rows(slices, found?.excluded ?? {})} />
      <LeadingRoutes service={key} />
      <Flows reports={reports} />
      <Rules service={key} nodes={nodes.map(keyOf)} />
      <section aria-labelledby="events-title">
        <h2 id="events-title">Events</h2>
        <EventTable events={events} label="Events of this Service" empty="There is no recent Event of this Service." short />
      </section>
    </section>
  );
}

/** The server's diagnosis of a Service, read again when objects change. */
function useDiagnosis(service: string, exists: boolean): Diagnosis | null {
  const { world } = useShared();
  const [answer, setAnswer] = useState<Diagnosis | null>(null);
  useEffect(() => {
    if (!exists) return;
    let over = false;
    const refresh = new Refresh(async () => {
      const found = await diagnosis(service);
      if (found && !over) setAnswer(found);
      return found !== null;
    });
    const stop = world.onObjects(refresh.request);
    refresh.request();
    return () => {
      over = true;
      stop();
      refresh.stop();
    };
  }, [service, exists, world]);
  return answer;
}

/** The reports of nodes about a Service, read again every two seconds while the page is visible. */
function useReports(service: string, nodes: readonly Node[], known: boolean): Report[] | null {
  const { connection } = useShared();
  const { state } = useConnectionStatus(connection);
  const [answer, setAnswer] = useState<{ service: string; reports: Report[] } | null>(null);
  const has = (node: Node): boolean => (node.status?.addresses ?? []).length > 0;
  const names = nodes.map((node) => (has(node) ? keyOf(node) : `!${keyOf(node)}`)).join(" ");
  useEffect(() => {
    if (!known || state !== "live") return;
    let over = false;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const poll = async (): Promise<void> => {
      if (document.visibilityState === "visible") {
        const read = (node: string): Promise<Report> | Report => (node.startsWith("!") ? { node: node.slice(1), unavailable: "it has no address" } : report(node, service));
        const reports = await Promise.all(names.split(" ").filter(Boolean).map(read));
        if (!over) setAnswer({ service, reports });
      }
      if (!over) timer = setTimeout(() => void poll(), REPORT_INTERVAL);
    };
    void poll();
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
        <p class="empty">This Service has no endpoint.</p>
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
                  <td>{row.node || "unknown"}</td>
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
