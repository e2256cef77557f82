// Signs: every state has its own shape besides its colour.
import type { JSX } from "preact";
import type { Status } from "../model/stages";
import type { Dot, Grade } from "../model/summary";

const stroke = { fill: "none", stroke: "currentColor", "stroke-width": 2, "stroke-linecap": "round", "stroke-linejoin": "round" } as const;

const SHAPES: Record<Grade, JSX.Element> = {
  ready: (
    <>
      <circle cx="8" cy="8" r="7" fill="currentColor" />
      <path d="M4.8 8.2 7 10.4l4.2-4.6" {...stroke} stroke="var(--surface)" />
    </>
  ),
  partly: (
    <>
      <circle cx="8" cy="8" r="6" {...stroke} />
      <path d="M8 2a6 6 0 0 1 0 12z" fill="currentColor" />
    </>
  ),
  failing: (
    <>
      <path d="M8 .8 15.2 8 8 15.2.8 8z" fill="currentColor" />
      <path d="m5.8 5.8 4.4 4.4m0-4.4-4.4 4.4" {...stroke} stroke="var(--surface)" />
    </>
  ),
  waiting: <path d="M4 2h8M4 14h8M5 2c0 4 6 4 6 6s-6 2-6 6m6-12c0 4-6 4-6 6s6 2 6 6" {...stroke} stroke-width={1.6} />,
  alias: <path d="M2 8h11M9 4l4 4-4 4" {...stroke} />,
  unknown: (
    <>
      <circle cx="8" cy="8" r="6.5" {...stroke} stroke-width={1.5} stroke-dasharray="2.5 2.6" />
      <path d="M6.2 6.3a1.9 1.9 0 1 1 2.6 1.8c-.6.3-.8.6-.8 1.2" {...stroke} stroke-width={1.5} />
      <circle cx="8" cy="11.6" r=".9" fill="currentColor" />
    </>
  ),
};

export function GradeSign({ grade }: { grade: Grade }): JSX.Element {
  return (
    <svg class={`sign grade-${grade}`} viewBox="0 0 16 16" width="18" height="18" aria-hidden="true">
      {SHAPES[grade]}
    </svg>
  );
}

const DOTS: Record<Dot, JSX.Element> = {
  ready: <circle cx="6" cy="6" r="5" fill="currentColor" />,
  unready: <path d="M6 1.5 11 10.5H1z" {...stroke} stroke-width={1.6} />,
  terminating: <path d="M2 2l8 8m0-8-8 8" {...stroke} />,
};

export const DOT_TEXT: Record<Dot, string> = { ready: "ready", unready: "not ready", terminating: "terminating" };

export function DotSign({ dot, title }: { dot: Dot; title?: string }): JSX.Element {
  return (
    <svg class={`dot dot-${dot}`} viewBox="0 0 12 12" width="12" height="12" aria-hidden="true">
      {title ? <title>{title}</title> : null}
      {DOTS[dot]}
    </svg>
  );
}

const STATUSES: Record<Status, JSX.Element> = {
  ok: SHAPES.ready,
  failed: SHAPES.failing,
  unmeasured: SHAPES.unknown,
  unneeded: <path d="M4 8h8" {...stroke} />,
};

export function StatusSign({ status }: { status: Status }): JSX.Element {
  return (
    <svg class={`sign status-${status}`} viewBox="0 0 16 16" width="22" height="22" aria-hidden="true">
      {STATUSES[status]}
    </svg>
  );
}
