// Events as a table of which only the visible rows are rendered.
import type { JSX } from "preact";
import { aboutOf, ago, timeOf, timesOf } from "../model/events";
import { type KubeEvent, keyOf } from "../net/types";
import { Virtual } from "./Virtual";
import { objectHref, serviceHref } from "./router";
import { useClock, useNarrow } from "./state";

interface Props {
  events: KubeEvent[];
  label: string;
  empty: string;
  short?: boolean;
}

export function EventTable({ events, label, empty, short }: Props): JSX.Element {
  const now = useClock(1000);
  const narrow = useNarrow();
  if (events.length === 0) return <p class="empty">{empty}</p>;
  return (
    <div class={`events-table${short ? " short" : ""}`} role="table" aria-label={label} aria-rowcount={events.length + 1}>
      <div class="head" role="rowgroup">
        <div role="row" aria-rowindex={1}>
          <span role="columnheader">Kind</span>
          <span role="columnheader">Last seen</span>
          <span role="columnheader">About</span>
          <span role="columnheader">Reason</span>
          <span role="columnheader">Message</span>
        </div>
      </div>
      <Virtual
        label={label}
        items={events}
        keyOf={keyOf}
        rowHeight={narrow ? 128 : 60}
        role={{ list: "rowgroup", item: "row", offset: 1 }}
        row={(event, tabIndex) => <EventRow event={event} now={now} tabIndex={tabIndex} />}
      />
    </div>
  );
}

const VIEWS: readonly string[] = ["Gateway", "ListenerSet", "HTTPRoute", "GRPCRoute", "TLSRoute", "TCPRoute", "UDPRoute", "Ingress"];

/** The view of an object, if it has one. */
function hrefOf(kind: string, key: string): string | null {
  if (kind === "Service") return serviceHref(key);
  return VIEWS.includes(kind) ? objectHref({ kind, key }) : null;
}

function EventRow({ event, now, tabIndex }: { event: KubeEvent; now: number; tabIndex: 0 | -1 }): JSX.Element {
  const warning = event.type === "Warning";
  const time = timeOf(event);
  const about = event.involvedObject;
  const href = about.namespace && about.name ? hrefOf(about.kind ?? "", `${about.namespace}/${about.name}`) : null;
  return (
    <>
      <span role="cell"><span class={`tag ${warning ? "bad" : "plain"}`}>{warning ? "▲ warning" : "normal"}</span></span>
      <span role="cell"><time dateTime={time} title={time}>{ago(time, now)} ago</time>{timesOf(event) > 1 ? `, ${timesOf(event)} times` : ""}</span>
      <span role="cell" class="cut">
        {href ? (
          <a href={href} data-row tabIndex={tabIndex}>{aboutOf(event)}</a>
        ) : (
          <span data-row tabIndex={tabIndex}>{aboutOf(event)}</span>
        )}
      </span>
      <span role="cell" class="cut">{event.reason}</span>
      <span role="cell" class="message" title={event.message}>{event.message}</span>
    </>
  );
}
