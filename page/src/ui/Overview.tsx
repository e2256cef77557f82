// All Services, each with its slices and endpoints.
import type { JSX } from "preact";
import { useMemo, useState } from "preact/hooks";
import { GRADES, GRADE_TEXT, type Grade, type Summary, addressLine } from "../model/summary";
import type { World } from "../model/world";
import { Legend } from "./Legend";
import { Virtual } from "./Virtual";
import { DotSign, GradeSign } from "./glyphs";
import { serviceHref } from "./router";
import { useNarrow, useShared, useWorld } from "./state";

const WIDE_ROW = 76;
const NARROW_ROW = 122;
const MOST_SLICES = 3;

export function Overview(): JSX.Element {
  const world = useWorld();
  const { filters } = useShared();
  const narrow = useNarrow();
  const [, redraw] = useState(0);
  const change = (part: Partial<typeof filters>): void => {
    Object.assign(filters, part);
    redraw((count) => count + 1);
  };
  const counts = new Map<Grade, number>();
  const shown: string[] = [];
  const text = filters.text.trim().toLowerCase();
  for (const key of world.serviceKeys()) {
    const grade = world.summary(key)?.grade;
    if (!grade || !fits(world, key, filters.namespace, text)) continue;
    counts.set(grade, (counts.get(grade) ?? 0) + 1);
    if (!filters.grade || filters.grade === grade) shown.push(key);
  }
  // The same list stays the same object, so that rows are not rendered again.
  const keys = useMemo(() => shown, [shown.join(" ")]);
  const known = world.isDiagnosed();
  return (
    <section class="overview" aria-labelledby="title">
      <div class="bar">
        <h1 id="title" tabIndex={-1}>Services</h1>
        <label class="field">
          <span>Namespace</span>
          <select value={filters.namespace} onChange={(event) => change({ namespace: event.currentTarget.value })}>
            <option value="">all</option>
            {namespaces(world).map((name) => <option key={name} value={name}>{name}</option>)}
          </select>
        </label>
        <label class="field grow">
          <span>Filter <kbd>/</kbd></span>
          <input
            id="filter"
            type="search"
            autocomplete="off"
            spellcheck={false}
            placeholder="name, address, port, label"
            value={filters.text}
            onInput={(event) => change({ text: event.currentTarget.value })}
          />
        </label>
      </div>
      <div class="chips" role="group" aria-label="Show only">
        {GRADES.map((grade) => (
          <button
            key={grade}
            type="button"
            class="chip"
            aria-pressed={filters.grade === grade}
            onClick={() => change({ grade: filters.grade === grade ? null : grade })}
          >
            <GradeSign grade={grade} /> <span>{GRADE_TEXT[grade]}</span> <b>{counts.get(grade) ?? 0}</b>
          </button>
        ))}
        <Legend />
      </div>
      <p class="columns" aria-hidden="true"><span>Service</span><span>slices</span><span>endpoints</span></p>
      {!known && <p class="empty" role="status">Reading Services…</p>}
      {known && keys.length === 0 && <Nothing filtered={world.serviceKeys().length > 0} />}
      {known && keys.length > 0 && (
        <Virtual
          label="Services"
          class="picture"
          items={keys}
          keyOf={(key) => key}
          rowHeight={narrow ? NARROW_ROW : WIDE_ROW}
          active={filters.active}
          onActive={(key) => (filters.active = key)}
          row={(key, tabIndex) => <Row key={key} id={key} world={world} tabIndex={tabIndex} narrow={narrow} />}
        />
      )}
      <p class="count" role="status">{known ? `${keys.length} of ${world.serviceKeys().length} Services` : ""}</p>
    </section>
  );
}

function Nothing({ filtered }: { filtered: boolean }): JSX.Element {
  return filtered ? (
    <p class="empty">No Service fits the filter.</p>
  ) : (
    <p class="empty">There is no Service yet. <code>kubectl expose deployment web --port=80</code> creates one.</p>
  );
}

function namespaces(world: World): string[] {
  const names = new Set(world.table("namespaces").keys());
  for (const key of world.serviceKeys()) names.add(key.split("/")[0] ?? "");
  return [...names].sort();
}

function fits(world: World, key: string, namespace: string, text: string): boolean {
  if (namespace && !key.startsWith(`${namespace}/`)) return false;
  if (!text) return true;
  const service = world.table("services").get(key);
  if (!service) return false;
  const labels = Object.entries({ ...service.metadata.labels, ...service.spec.selector }).map(([name, value]) => `${name}=${value}`);
  const haystack = [key, service.spec.type, addressLine(service), ...(service.spec.clusterIPs ?? []), ...labels].join(" ").toLowerCase();
  return text.split(/\s+/).every((term) => haystack.includes(term));
}

interface RowProps {
  id: string;
  world: World;
  tabIndex: 0 | -1;
  narrow: boolean;
}

function Row({ id, world, tabIndex, narrow }: RowProps): JSX.Element | null {
  const service = world.table("services").get(id);
  const summary = world.summary(id);
  if (!service || !summary) return null;
  const { name, namespace } = service.metadata;
  return (
    <a class={`row is-${summary.grade}`} href={serviceHref(id)} data-row tabIndex={tabIndex} data-grade={summary.grade}>
      <span class="who">
        <GradeSign grade={summary.grade} />
        <span class="names">
          <span class="name">{name} <small>{namespace}</small></span>
          <span class="line"><span class="type">{service.spec.type ?? "ClusterIP"}</span> {addressLine(service)}</span>
          <span class="words">{GRADE_TEXT[summary.grade]}: {summary.text}</span>
        </span>
      </span>
      <Endpoints summary={summary} most={narrow ? 30 : 40} />
    </a>
  );
}

/** Slices and a dot for each endpoint. The text of the row says the same to screen readers. */
function Endpoints({ summary, most }: { summary: Summary; most: number }): JSX.Element {
  if (summary.grade === "alias") return <span class="behind" aria-hidden="true" />;
  const slices = summary.slices.slice(0, MOST_SLICES);
  const more = summary.slices.length - slices.length;
  const lines = Math.max(1, slices.length + (more > 0 ? 1 : 0));
  return (
    <span class="behind" aria-hidden="true">
      <Fan lines={lines} broken={summary.total === 0} />
      <span class="slices">
        {slices.map((slice) => (
          <span key={slice.name} class={`slice ${slice.ready === slice.total && slice.total > 0 ? "full" : slice.ready === 0 ? "none" : "part"}`}>
            {slice.family === "FQDN" ? "names" : slice.family} {slice.ready}/{slice.total}
          </span>
        ))}
        {more > 0 && <span class="slice">+{more} slices</span>}
        {summary.slices.length === 0 && <span class="slice none">no slice</span>}
      </span>
      <Fan lines={lines} broken={summary.total === 0} back />
      <span class="dots">
        {summary.dots.slice(0, most).map(({ dot, name }, at) => <DotSign key={at} dot={dot} title={name} />)}
        {summary.dots.length > most && <span class="more">+{summary.dots.length - most}</span>}
        {summary.dots.length === 0 && <span class="more">no endpoint</span>}
      </span>
    </span>
  );
}

/** Lines from one point to several, or back. */
function Fan({ lines, broken, back }: { lines: number; broken: boolean; back?: boolean }): JSX.Element {
  return (
    <svg class={`fan${broken ? " broken" : ""}`} viewBox="0 0 40 60" width="40" height="60">
      {Array.from({ length: lines }, (_, at) => {
        const y = 30 + (at - (lines - 1) / 2) * 19;
        return <path key={at} d={back ? `M2 ${y}C22 ${y} 18 30 38 30` : `M2 30C22 30 18 ${y} 38 ${y}`} />;
      })}
    </svg>
  );
}
