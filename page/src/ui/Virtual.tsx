// A list of any length of which only the visible rows are in the document.
//
// All rows have the same height. The arrow keys move through all of them: the active row is kept by key and changed with each key press, so
// that two presses within a frame are two steps, and a row inserted above does not move the focus.
import type { ComponentChildren, JSX } from "preact";
import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";

interface Props<T> {
  label: string;
  items: readonly T[];
  keyOf: (item: T) => string;
  rowHeight: number;
  /** Renders a row; the element with the focus carries `data-row` and this `tabIndex`. */
  row: (item: T, tabIndex: 0 | -1) => ComponentChildren;
  active?: string | null;
  onActive?: (key: string) => void;
  class?: string;
  role?: { list: "rowgroup"; item: "row"; offset: number };
}

/** Rows rendered above and below the visible ones. */
const OVERSCAN = 6;

export function Virtual<T>(props: Props<T>): JSX.Element {
  const { items, keyOf, rowHeight, role } = props;
  const scroller = useRef<HTMLDivElement>(null);
  const active = useRef<string | null>(props.active ?? null);
  const wantsFocus = useRef(false);
  const [view, setView] = useState({ top: 0, height: 600 });
  const [, redraw] = useState(0);
  const places = useMemo(() => new Map(items.map((item, at) => [keyOf(item), at])), [items]);

  const measure = (): void => {
    const element = scroller.current;
    if (!element) return;
    setView((old) =>
      old.top === element.scrollTop && old.height === element.clientHeight
        ? old
        : { top: element.scrollTop, height: element.clientHeight },
    );
  };

  useLayoutEffect(() => {
    const element = scroller.current;
    if (!element) return;
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    return () => observer.disconnect();
  }, []);

  useLayoutEffect(() => {
    if (!wantsFocus.current) return;
    wantsFocus.current = false;
    const key = active.current;
    const row = scroller.current?.querySelector<HTMLElement>(`[data-key="${CSS.escape(key ?? "")}"] [data-row]`);
    row?.focus({ preventScroll: true });
  });

  const choose = (key: string): void => {
    active.current = key;
    props.onActive?.(key);
  };

  const go = (to: number): void => {
    const at = Math.max(0, Math.min(items.length - 1, to));
    const item = items[at];
    const element = scroller.current;
    if (!item || !element) return;
    choose(keyOf(item));
    const [top, bottom] = [at * rowHeight, (at + 1) * rowHeight];
    if (top < element.scrollTop) element.scrollTop = top;
    else if (bottom > element.scrollTop + element.clientHeight) element.scrollTop = bottom - element.clientHeight;
    wantsFocus.current = true;
    measure();
    redraw((count) => count + 1);
  };

  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const at = places.get(active.current ?? "") ?? -1;
    const page = Math.max(1, Math.floor(view.height / rowHeight) - 1);
    const steps: Record<string, number> = {
      ArrowDown: at + 1,
      ArrowUp: at - 1,
      PageDown: at + page,
      PageUp: at - page,
      Home: 0,
      End: items.length - 1,
    };
    const to = steps[event.key];
    if (to === undefined) return;
    event.preventDefault();
    go(to);
  };

  const [List, Item] = role ? (["div", "div"] as const) : (["ul", "li"] as const);
  const first = Math.max(0, Math.floor(view.top / rowHeight) - OVERSCAN);
  const last = Math.min(items.length, Math.ceil((view.top + view.height) / rowHeight) + OVERSCAN);
  const activeAt = places.get(active.current ?? "");
  // The tab key finds the active row, or the first visible one.
  const stop = activeAt ?? Math.min(items.length - 1, Math.ceil(view.top / rowHeight));
  const shown: number[] = [];
  if (stop >= 0 && stop < first) shown.push(stop);
  for (let at = first; at < last; at += 1) shown.push(at);
  if (stop >= last && stop < items.length) shown.push(stop);

  return (
    <div class={`virtual ${props.class ?? ""}`} ref={scroller} onScroll={measure} onKeyDown={onKeyDown}>
      <List
        role={role?.list ?? "list"}
        aria-label={role ? undefined : props.label}
        style={{ height: `${items.length * rowHeight}px` }}
        onFocusIn={(event: FocusEvent) => {
          const key = (event.target as HTMLElement).closest<HTMLElement>("[data-key]")?.dataset["key"];
          if (key !== undefined && key !== active.current) choose(key);
        }}
      >
        {shown.map((at) => {
          const item = items[at] as T;
          const key = keyOf(item);
          return (
            <Item
              key={key}
              data-key={key}
              role={role?.item}
              aria-rowindex={role ? at + 1 + role.offset : undefined}
              aria-setsize={role ? undefined : items.length}
              aria-posinset={role ? undefined : at + 1}
              style={{ height: `${rowHeight}px`, transform: `translateY(${at * rowHeight}px)` }}
            >
              {props.row(item, at === stop ? 0 : -1)}
            </Item>
          );
        })}
      </List>
    </div>
  );
}
