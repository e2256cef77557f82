// What is around every view: the way to the others, the connection, the theme, and a voice for what changes.
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { GRADE_WORDS } from "../model/judge";
import type { Turn, World } from "../model/world";
import type { Standing } from "../net/connection";
import type { Place } from "./router";
import { useShared, useStanding } from "./state";
import * as themes from "./theme";

const LINKS: readonly { view: Place["view"]; href: string; text: string }[] = [
  { view: "overview", href: "#/", text: "Services" },
  { view: "maps", href: "#/maps", text: "Maps" },
  { view: "events", href: "#/events", text: "Events" },
];

export function Frame({ place, onLeave, children }: { place: Place; onLeave: () => void; children: ComponentChildren }): JSX.Element {
  const { world, connection, visit } = useShared();
  const standing = useStanding(connection);
  const [theme, setTheme] = useState(themes.chosen());
  const here = place.view === "service" ? "overview" : place.view;
  return (
    <>
      <a class="skip" href="#content" onClick={skip}>Skip to content</a>
      <header class="top">
        <a class="brand" href="#/"><img src="/page/favicon.svg" alt="" width="24" height="24" /> Waypost</a>
        <nav aria-label="Views">
          {LINKS.map(({ view, href, text }) => <a key={view} href={href} aria-current={here === view ? "page" : undefined}>{text}</a>)}
        </nav>
        <span class="tools">
          <Pulse standing={standing} />
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
          <span class="user" title={`You see what ${visit.user} may see`}>{visit.user}</span>
          <button type="button" class="quiet" onClick={onLeave}>Leave</button>
        </span>
      </header>
      <Banner standing={standing} />
      <main id="content" tabIndex={-1} class={`view-${place.view}`} data-stale={standing.state === "lost"}>{children}</main>
      <Voice world={world} />
    </>
  );
}

/** A link inside the page must not change the address, which says where the person is. */
function skip(event: MouseEvent): void {
  event.preventDefault();
  document.getElementById("content")?.focus();
}

function Pulse({ standing }: { standing: Standing }): JSX.Element {
  const words = { live: "● live", lost: "✕ lost", connecting: "… connecting", out: "✕ left" }[standing.state];
  return <span class={`pulse ${standing.state}`} id="pulse" data-state={standing.state}>{words}</span>;
}

function Banner({ standing }: { standing: Standing }): JSX.Element {
  const { connection } = useShared();
  const time = new Date(standing.since).toLocaleTimeString();
  return (
    <>
      <div role="alert" class="alert">
        {standing.state === "lost" && (
          <div class="banner" id="lost">
            <p><strong>Connection lost</strong> at {time}. What you see is of that moment. Trying again…</p>
            <button type="button" onClick={connection.again}>Try now</button>
          </div>
        )}
      </div>
      {standing.denied.length > 0 && <p class="banner note">You may not read {standing.denied.join(", ")}; what depends on it is missing here.</p>}
    </>
  );
}

const QUIET = 2000;

/** Says which Services changed how they are, a few at a time, for those who do not see it. */
function Voice({ world }: { world: World }): JSX.Element {
  const [words, setWords] = useState("");
  const waiting = useRef(new Map<string, Turn>());
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const stop = world.onTurn((turns) => {
      for (const turn of turns) waiting.current.set(turn.key, turn);
      if (timer) return;
      timer = setTimeout(() => {
        timer = undefined;
        const all = [...waiting.current.values()];
        waiting.current.clear();
        setWords(all.length > 3 ? `${all.length} Services changed.` : all.map(sentence).join(" "));
      }, QUIET);
    });
    return () => (stop(), clearTimeout(timer));
  }, [world]);
  return <p class="voice" role="status" aria-live="polite" id="voice">{words}</p>;
}

function sentence({ key, from, to }: Turn): string {
  if (!to) return `${key} is gone.`;
  return from ? `${key} is now ${GRADE_WORDS[to]}.` : `${key} is new and ${GRADE_WORDS[to]}.`;
}
