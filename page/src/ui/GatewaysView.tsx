// All Gateways and IngressClasses, each with its listeners and rules.
import type { JSX } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { type Line, counts, filtered, judgementOf, linesOf, words } from "../model/gateways";
import { GRADES, GRADE_TEXT } from "../model/summary";
import { type Overview, overview } from "../net/gateways";
import { GatewayLine } from "./GatewayLine";
import { Virtual } from "./Virtual";
import { useFindings } from "./findings";
import { GradeSign } from "./glyphs";
import { useConnectionStatus, useNarrow, useShared, useWorld } from "./state";

const WIDE_ROW = 84;
const NARROW_ROW = 122;

export function GatewaysView(): JSX.Element {
  const world = useWorld();
  const { gatewayFilters: filters, connection } = useShared();
  useConnectionStatus(connection);
  const narrow = useNarrow();
  const [, redraw] = useState(0);
  const { answer, state } = useFindings("", overview);
  const change = (part: Partial<typeof filters>): void => {
    Object.assign(filters, part);
    redraw((count) => count + 1);
  };
  const lines = useMemo(() => (answer ? linesOf(answer) : []), [answer]);
  const [text, namespace, grade] = [filters.text, filters.namespace, filters.grade];
  const inPlace = useMemo(() => filtered(lines, { text, namespace, grade: null }), [lines, text, namespace]);
  const shown = useMemo(() => (grade ? filtered(lines, { text, namespace, grade }) : inPlace), [inPlace, grade]);
  const found = useMemo(() => counts(inPlace), [inPlace]);
  const namespaces = useMemo(() => [...new Set(lines.flatMap(namespaceOf))].sort(), [lines]);
  return (
    <section class="overview gateways" aria-labelledby="title">
      <div class="bar">
        <h1 id="title" tabIndex={-1}>Gateways</h1>
        <label class="field">
          <span>Namespace</span>
          <select value={filters.namespace} onChange={(event) => change({ namespace: event.currentTarget.value })}>
            <option value="">all</option>
            {namespaces.map((name) => <option key={name} value={name}>{name}</option>)}
          </select>
        </label>
        <label class="field grow">
          <span>Filter <kbd>/</kbd></span>
          <input
            id="filter"
            type="search"
            autocomplete="off"
            spellcheck={false}
            placeholder="host, path, name, Service, address"
            value={filters.text}
            onInput={(event) => change({ text: event.currentTarget.value })}
          />
        </label>
      </div>
      <div class="chips" role="group" aria-label="Show only">
        {GRADES.map((one) => (
          <button key={one} type="button" class="chip" aria-pressed={grade === one} onClick={() => change({ grade: grade === one ? null : one })}>
            <GradeSign grade={one} /> <span>{one === "alias" ? "other controller" : GRADE_TEXT[one]}</span> <b>{found.get(one) ?? 0}</b>
          </button>
        ))}
      </div>
      {!connection.serves("gateways") && <Install />}
      {!answer && <p class="empty" role="status">{state === "failed" ? "The server does not answer with a diagnosis." : "Reading Gateways…"}</p>}
      {answer && shown.length === 0 && <Nothing filtered={lines.length > 0} />}
      {shown.length > 0 && (
        <Virtual
          label="Gateways, listeners and rules in order of precedence"
          class="picture"
          items={shown}
          keyOf={(line) => line.key}
          rowHeight={narrow ? NARROW_ROW : WIDE_ROW}
          active={filters.active}
          onActive={(key) => (filters.active = key)}
          row={(line, tabIndex) => <GatewayLine line={line} world={world} tabIndex={tabIndex} />}
        />
      )}
      <p class="count" role="status">{answer ? countText(answer, shown, lines) : ""}</p>
      <Announcer lines={lines} />
    </section>
  );
}

function countText(answer: Overview, shown: readonly Line[], lines: readonly Line[]): string {
  const rules = (all: readonly Line[]): number => all.filter(({ type }) => type === "rule").length;
  const more = answer.more > 0 ? `; ${answer.more} more are not shown` : "";
  return `${rules(shown)} of ${rules(lines)} rules of ${answer.gateways.length} ${answer.gateways.length === 1 ? "Gateway" : "Gateways and classes"}${more}`;
}

function namespaceOf(line: Line): string[] {
  const key = line.type === "rule" ? line.rule.route.key : line.type === "apart" ? line.apart.key : line.type === "gateway" ? line.gateway.key : "";
  return key.includes("/") ? [key.split("/")[0] ?? ""] : [];
}

function Install(): JSX.Element {
  return (
    <p class="note" id="install">
      The Gateway API is not installed: Gateways and routes cannot be created. Start the server with <code>--gateway-api standard</code>, which installs it; Ingresses work without it.
    </p>
  );
}

function Nothing({ filtered }: { filtered: boolean }): JSX.Element {
  return filtered ? (
    <p class="empty">Nothing fits the filter.</p>
  ) : (
    <p class="empty">There is no Gateway yet. <code>kubectl create ingress web --rule=/=web:80</code> creates an Ingress, which needs none.</p>
  );
}

/** Announces changed states to screen readers. */
function Announcer({ lines }: { lines: readonly Line[] }): JSX.Element {
  const [before, setBefore] = useState<ReadonlyMap<string, string> | null>(null);
  const [text, setText] = useState("");
  useEffect(() => {
    const now = new Map(lines.map((line) => [nameOf(line), words(judgementOf(line))]));
    if (before && before.size > 0) {
      const changed = [...now].filter(([name, state]) => before.get(name) !== state);
      if (changed.length > 0) setText(changed.length > 3 ? `${changed.length} states changed.` : changed.map(([name, state]) => `${name}: ${state}.`).join(" "));
    }
    setBefore(now);
  }, [lines]);
  return <p class="voice" role="status" aria-live="polite">{text}</p>;
}

function nameOf(line: Line): string {
  switch (line.type) {
    case "gateway":
      return `${line.gateway.kind} ${line.gateway.key}`;
    case "listener":
      return `Listener ${line.listener.name} of ${line.gateway.key}`;
    case "rule":
      return `${line.rule.route.kind} ${line.rule.route.key}`;
    default:
      return `${line.apart.kind} ${line.apart.key}`;
  }
}

