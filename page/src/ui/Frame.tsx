// The frame of every view: navigation, connection status, theme, and a live region for changes.
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { GRADE_TEXT } from "../model/summary";
import { type GradeChange, LAYER7, type World } from "../model/world";
import type { ConnectionStatus } from "../net/connection";
import type { Place } from "./router";
import { useConnectionStatus, useShared } from "./state";
import * as themes from "./theme";

const LINKS: readonly { view: Place["view"]; href: string; text: string }[] = [
  { view: "overview", href: "#/", text: "Services" },
  { view: "gateways", href: "#/gateways", text: "Gateways" },
  { view: "maps", href: "#/maps", text: "Maps" },
  { view: "events", href: "#/events", text: "Events" },
];

export function Frame({ place, onLogout, children }: { place: Place; onLogout: () => void; children: ComponentChildren }): JSX.Element {
  const { world, connection, session } = useShared();
  const status = useConnectionStatus(connection);
  const [theme, setTheme] = useState(themes.chosen());
  const here = place.view === "service" ? "overview" : place.view === "object" ? "gateways" : place.view;
  return (
    <>
      <a class="skip" href="#content" onClick={skip}>Skip to content</a>
      <header class="top">
        <a class="brand" href="#/"><img src="/page/favicon.svg" alt="" width="24" height="24" /> Waypost</a>
        <nav aria-label="Views">
          {LINKS.map(({ view, href, text }) => <a key={view} href={href} aria-current={here === view ? "page" : undefined}>{text}</a>)}
        </nav>
        <span class="tools">
          <StatusLabel status={status} />
          <button
            type="button"
            class="quiet"
            id="theme"
            aria-label={`Theme: ${theme}. Change it`}
            onClick={() => {
              const chosen = themes.next(theme);
              themes.apply(chosen);
              setTheme(chosen);
            }}
          >
            <span aria-hidden="true">◐</span> {theme}
          </button>
          <span class="user" title={`Limited to what ${session.user} may read`}>{session.user}</span>
          <button type="button" class="quiet" onClick={onLogout}>Log out</button>
        </span>
      </header>
      <Banner status={status} layer7={here === "gateways"} />
      <main id="content" tabIndex={-1} class={`view-${place.view}`} data-stale={status.state === "lost"}>{children}</main>
      <Announcer world={world} />
    </>
  );
}

/** The fragment of the address is the route, so the link must not change it. */
function skip(event: MouseEvent): void {
  event.preventDefault();
  document.getElementById("content")?.focus();
}

function StatusLabel({ status }: { status: ConnectionStatus }): JSX.Element {
  const text = { live: "● live", lost: "✕ lost", connecting: "… connecting", unauthenticated: "✕ logged out" }[status.state];
  return <span class={`pulse ${status.state}`} id="pulse" data-state={status.state}>{text}</span>;
}

/** `layer7`: whether the view depends on Gateways and routes. */
function Banner({ status, layer7 }: { status: ConnectionStatus; layer7: boolean }): JSX.Element {
  const { connection } = useShared();
  const denied = status.denied.filter((name) => layer7 || !LAYER7.includes(name));
  const time = new Date(status.since).toLocaleTimeString();
  return (
    <>
      <div role="alert" class="alert">
        {status.state === "lost" && (
          <div class="banner" id="lost">
            <p><strong>Connection lost</strong> at {time}. The data below is of that moment. Reconnecting…</p>
            <button type="button" onClick={connection.reconnect}>Reconnect now</button>
          </div>
        )}
      </div>
      {denied.length > 0 && <p class="banner note">You may not list {denied.join(", ")}; what depends on them is missing here.</p>}
    </>
  );
}

const ANNOUNCE_INTERVAL = 2000;

/** Announces changed Services to screen readers, a few at a time. */
function Announcer({ world }: { world: World }): JSX.Element {
  const [text, setText] = useState("");
  const waiting = useRef(new Map<string, GradeChange>());
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const stop = world.onGradeChange((changes) => {
      for (const change of changes) waiting.current.set(change.key, change);
      if (timer) return;
      timer = setTimeout(() => {
        timer = undefined;
        const all = [...waiting.current.values()];
        waiting.current.clear();
        setText(all.length > 3 ? `${all.length} Services changed.` : all.map(sentence).join(" "));
      }, ANNOUNCE_INTERVAL);
    });
    return () => (stop(), clearTimeout(timer));
  }, [world]);
  return <p class="voice" role="status" aria-live="polite" id="voice">{text}</p>;
}

function sentence({ key, from, to }: GradeChange): string {
  if (!to) return `${key} was deleted.`;
  return from ? `${key} is now ${GRADE_TEXT[to]}.` : `${key} is new and ${GRADE_TEXT[to]}.`;
}
