// A range as a grid of at most 256 cells; a cell that covers several values can be opened.
import type { ComponentChildren, JSX } from "preact";
import { useId, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { type Cell, type Owner, cells, fullness } from "../model/ranges";
import { Virtual } from "./Virtual";

const COLUMNS = 16;

interface Props {
  title: string;
  size: bigint;
  owners: Owner[];
  what: string;
  plural: string;
  name: (offset: bigint) => string;
  children?: ComponentChildren;
}

export function RangeMap({ title, size, owners, what, plural, name, children }: Props): JSX.Element {
  const id = useId();
  const [trail, setTrail] = useState<Cell[]>([]);
  const [at, setAt] = useState(0);
  const active = useRef(0);
  const wantsFocus = useRef(false);
  const grid = useRef<HTMLDivElement>(null);
  const here = trail.at(-1) ?? { start: 0n, size };
  const shown = useMemo(() => cells(here.start, here.size, owners), [here.start, here.size, owners]);

  useLayoutEffect(() => {
    if (!wantsFocus.current) return;
    wantsFocus.current = false;
    grid.current?.querySelector<HTMLElement>(`[data-cell="${active.current}"]`)?.focus();
  });

  const go = (to: number): void => {
    active.current = Math.max(0, Math.min(shown.length - 1, to));
    wantsFocus.current = true;
    setAt(active.current);
  };
  const open = (cell: Cell): void => {
    const only = cell.owners[0];
    if (cell.size === 1n) {
      if (only?.href) location.hash = only.href;
      return;
    }
    setTrail([...trail, cell]);
    go(0);
  };
  const back = (): void => {
    const left = trail.at(-1);
    setTrail(trail.slice(0, -1));
    const each = trail.length > 1 ? (trail.at(-2)?.size ?? size) : size;
    const start = trail.length > 1 ? (trail.at(-2)?.start ?? 0n) : 0n;
    active.current = left ? Number((left.start - start) / (cells(start, each, [])[0]?.size ?? 1n)) : 0;
    wantsFocus.current = true;
    setAt(active.current);
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    const steps: Record<string, number> = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: COLUMNS, ArrowUp: -COLUMNS };
    const step = steps[event.key];
    if (step !== undefined) go(active.current + step);
    else if (event.key === "Home") go(0);
    else if (event.key === "End") go(shown.length - 1);
    else if ((event.key === "Escape" || event.key === "Backspace") && trail.length > 0) back();
    else return;
    event.preventDefault();
  };

  const current = shown[Math.min(at, shown.length - 1)];
  const tell = (cell: Cell): string => describe(cell, name, plural);
  const lines = Array.from({ length: Math.ceil(shown.length / COLUMNS) }, (_, line) => shown.slice(line * COLUMNS, (line + 1) * COLUMNS));
  return (
    <section class="map" aria-labelledby={id}>
      <h2 id={id}>{title}</h2>
      {children}
      <p class="line">
        {owners.length.toLocaleString("en")} of {size.toLocaleString("en")} {plural} taken
        {trail.length > 0 && <> · <button type="button" class="quiet" onClick={back}>← back from {name(here.start)}</button></>}
      </p>
      <div class="squares" role="grid" aria-labelledby={id} ref={grid} onKeyDown={onKeyDown}>
        {lines.map((line, row) => (
          <div role="row" key={row}>
            {line.map((cell, column) => {
              const number = row * COLUMNS + column;
              return (
                <span role="gridcell" key={number}>
                  <button
                    type="button"
                    data-cell={number}
                    class={`square full-${fullness(cell)}`}
                    tabIndex={number === Math.min(at, shown.length - 1) ? 0 : -1}
                    aria-label={tell(cell)}
                    onFocus={() => {
                      active.current = number;
                      setAt(number);
                    }}
                    onClick={() => open(cell)}
                  >
                    {cell.owners.length > 0 ? (cell.size === 1n ? "●" : cell.owners.length > 99 ? "+" : cell.owners.length) : ""}
                  </button>
                </span>
              );
            })}
          </div>
        ))}
      </div>
      <p class="tell" aria-hidden="true">{current ? tell(current) : ""}</p>
      <details>
        <summary>Owner of each {what}</summary>
        {owners.length === 0 ? (
          <p class="empty">None is allocated.</p>
        ) : (
          <Virtual
            label={`Owner of each ${what}: ${title}`}
            class="owners"
            items={owners}
            keyOf={(owner) => `${owner.offset} ${owner.label}`}
            rowHeight={34}
            row={(owner, tabIndex) =>
              owner.href ? (
                <a data-row tabIndex={tabIndex} href={owner.href}><b>{name(owner.offset)}</b> {owner.label}</a>
              ) : (
                <span data-row tabIndex={tabIndex}><b>{name(owner.offset)}</b> {owner.label}</span>
              )
            }
          />
        )}
      </details>
    </section>
  );
}

function describe(cell: Cell, name: (offset: bigint) => string, plural: string): string {
  const first = name(cell.start);
  const names = cell.owners.slice(0, 3).map((owner) => owner.label).join(", ");
  if (cell.size === 1n) return `${first}: ${names || "free"}`;
  const more = cell.owners.length > 3 ? " …" : "";
  const range = `${first} to ${name(cell.start + cell.size - 1n)}`;
  if (cell.owners.length === 0) return `${range}: all ${cell.size.toLocaleString("en")} ${plural} free`;
  return `${range}: ${cell.owners.length} of ${cell.size.toLocaleString("en")} taken: ${names}${more}`;
}
