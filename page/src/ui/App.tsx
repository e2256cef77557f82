// From a link to a visit to a view.
import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { World } from "../model/world";
import { Connection } from "../net/connection";
import * as session from "../net/session";
import { EventsView } from "./EventsView";
import { Frame } from "./Frame";
import { Login } from "./Login";
import { MapsView } from "./MapsView";
import { Overview } from "./Overview";
import { ServiceView } from "./ServiceView";
import { type Place, usePlace } from "./router";
import { type Shared, SharedContext, useStanding } from "./state";

type Step = { at: "asking" } | { at: "outside"; why: string | null; ended: boolean } | { at: "inside"; shared: Shared };

function begin(visit: session.Visit): Shared {
  const world = new World((call) => requestAnimationFrame(call));
  const connection = new Connection(world);
  connection.start();
  return { world, connection, visit, filters: { text: "", namespace: "", grade: null, active: null } };
}

export function App(): JSX.Element {
  const [step, setStep] = useState<Step>({ at: "asking" });
  const entered = (visit: session.Visit): void => setStep({ at: "inside", shared: begin(visit) });

  useEffect(() => {
    const come = async (): Promise<void> => {
      const word = session.wordOf(location.hash);
      if (!word) return;
      // The word is good for nothing after this, and must not stay in the history.
      history.replaceState(null, "", "#/");
      const visit = await session.enter(word);
      if (typeof visit !== "string") return entered(visit);
      // Somebody who is inside already stays inside.
      const old = await session.current();
      if (old) entered(old);
      else setStep({ at: "outside", why: visit, ended: false });
    };
    const start = async (): Promise<void> => {
      if (session.wordOf(location.hash)) return come();
      const visit = await session.current();
      if (visit) entered(visit);
      else setStep({ at: "outside", why: visit === undefined ? "The server does not answer." : null, ended: false });
    };
    void start();
    const changed = (): void => void come();
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);

  if (step.at === "asking") return <main class="login" id="content"><h1>Waypost</h1><p role="status">Asking who you are…</p></main>;
  if (step.at === "outside") return <Login why={step.why} ended={step.ended} onVisit={entered} />;
  return (
    <SharedContext.Provider value={step.shared}>
      <Inside key={step.shared.visit.user} shared={step.shared} onEnd={(ended) => setStep({ at: "outside", why: null, ended })} />
    </SharedContext.Provider>
  );
}

function Inside({ shared, onEnd }: { shared: Shared; onEnd: (ended: boolean) => void }): JSX.Element {
  const { connection } = shared;
  const place = usePlace();
  const { state } = useStanding(connection);
  useEffect(() => () => connection.stop(), [connection]);
  useEffect(() => {
    if (state === "out") onEnd(true);
  }, [state]);
  useKeys();
  useArrival(place);
  return (
    <Frame place={place} onLeave={() => void session.leave().then(() => onEnd(false))}>
      <View place={place} />
    </Frame>
  );
}

function View({ place }: { place: Place }): JSX.Element {
  switch (place.view) {
    case "service":
      return <ServiceView key={`${place.namespace}/${place.name}`} namespace={place.namespace} name={place.name} />;
    case "maps":
      return <MapsView />;
    case "events":
      return <EventsView />;
    default:
      return <Overview />;
  }
}

/** `/` leads to the filter, as in many programs. */
function useKeys(): void {
  useEffect(() => {
    const pressed = (event: KeyboardEvent): void => {
      const target = event.target as HTMLElement;
      const typing = /^(input|select|textarea)$/i.test(target.tagName);
      const filter = document.getElementById("filter") as HTMLInputElement | null;
      if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey && filter) {
        event.preventDefault();
        filter.focus();
        filter.select();
      }
    };
    document.addEventListener("keydown", pressed);
    return () => document.removeEventListener("keydown", pressed);
  }, []);
}

/** A new view says its name, to the eyes in the title and to the ears by the focus. */
function useArrival(place: Place): void {
  const first = useRef(true);
  const words = place.view === "service" ? `${place.namespace}/${place.name}` : { overview: "Services", maps: "Maps", events: "Events" }[place.view];
  useEffect(() => {
    document.title = `${words} – Waypost`;
    if (first.current) {
      first.current = false;
      return;
    }
    scrollTo(0, 0);
    document.getElementById("title")?.focus({ preventScroll: true });
  }, [words]);
}
