// Events, the newest first.
import type { KubeEvent } from "../net/types";

export const timeOf = (event: KubeEvent): string =>
  event.series?.lastObservedTime ?? event.lastTimestamp ?? event.eventTime ?? event.firstTimestamp ?? event.metadata.creationTimestamp ?? "";

export const timesOf = (event: KubeEvent): number => event.series?.count ?? event.count ?? 1;

export const aboutOf = ({ involvedObject }: KubeEvent): string =>
  `${involvedObject.kind ?? "?"} ${involvedObject.namespace ? `${involvedObject.namespace}/` : ""}${involvedObject.name ?? ""}`;

export function newestFirst(events: Iterable<KubeEvent>): KubeEvent[] {
  const timed = [...events].map((event) => ({ event, at: timeOf(event) }));
  timed.sort((a, b) => (a.at < b.at ? 1 : a.at > b.at ? -1 : a.event.metadata.name < b.event.metadata.name ? -1 : 1));
  return timed.map(({ event }) => event);
}

/** How long ago something was, short; `now` in milliseconds. */
export function ago(time: string, now: number): string {
  const seconds = Math.max(0, Math.round((now - Date.parse(time)) / 1000));
  if (!Number.isFinite(seconds)) return "";
  if (seconds < 60) return `${seconds}s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)}m`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)}h`;
  return `${Math.floor(seconds / 86_400)}d`;
}
