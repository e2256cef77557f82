// From a login link to a session to a view.
import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { World } from "../model/world";
import { Connection } from "../net/connection";
import { Refresh, states } from "../net/findings";
import * as session from "../net/session";
import { EventsView } from "./EventsView";
import { Frame } from "./Frame";
import { GatewaysView } from "./GatewaysView";
import { Login } from "./Login";
import { MapsView } from "./MapsView";
import { ObjectView } from "./ObjectView";
import { Overview } from "./Overview";
import { ServiceView } from "./ServiceView";
import { type Place, usePlace } from "./router";
import { type Filters, type Shared, SharedContext, useConnectionStatus } from "./state";

type Step = { at: "starting" } | { at: "login"; error: string | null; ended: boolean } | { at: "active"; shared: Shared };

function begin(current: session.Session): Shared {
  const world = new World((call) => requestAnimationFrame(call));
  const connection = new Connection(world, current.kinds);
  connection.start();
  const filters = (): Filters => ({ text: "", namespace: "", grade: null, active: null });
  return { world, connection, session: current, filters: filters(), gatewayFilters: filters() };
}

export function App(): JSX.Element {
  const [step, setStep] = useState<Step>({ at: "starting" });
  const onSession = (current: session.Session): void => setStep({ at: "active", shared: begin(current) });

  useEffect(() => {
    const login = async (): Promise<void> => {
      const token = session.tokenOf(location.hash);
      if (!token) return;
      // The token is valid once, and must not stay in the history.
      history.replaceState(null, "", "#/");
      const result = await session.login(token);
      if (typeof result !== "string") return onSession(result);
      // A session that exists stays valid.
      const old = await session.current();
      if (old) onSession(old);
      else setStep({ at: "login", error: result, ended: false });
    };
    const start = async (): Promise<void> => {
      if (session.tokenOf(location.hash)) return login();
      const current = await session.current();
      if (current) onSession(current);
      else setStep({ at: "login", error: current === undefined ? "The server does not answer." : null, ended: false });
    };
    void start();
    const changed = (): void => void login();
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);

  if (step.at === "starting") return <main class="login" id="content"><h1>Waypost</h1><p role="status">Reading the session…</p></main>;
  if (step.at === "login") return <Login error={step.error} ended={step.ended} onSession={onSession} />;
  return (
    <SharedContext.Provider value={step.shared}>
      <Active key={step.shared.session.user} shared={step.shared} onEnd={(ended) => setStep({ at: "login", error: null, ended })} />
    </SharedContext.Provider>
  );
}

function Active({ shared, onEnd }: { shared: Shared; onEnd: (ended: boolean) => void }): JSX.Element {
  const { connection, world } = shared;
  const place = usePlace();
  const { state } = useConnectionStatus(connection);
  useEffect(() => () => connection.stop(), [connection]);
  useEffect(() => {
    const refresh = new Refresh(async () => {
      const found = await states();
      world.setStates(found);
      return found !== null;
    });
    const stop = world.onObjects(refresh.request);
    refresh.request();
    return () => (stop(), refresh.stop());
  }, [world]);
  useEffect(() => {
    if (state === "unauthenticated") onEnd(true);
  }, [state]);
  useKeys();
  useTitle(place);
  return (
    <Frame place={place} onLogout={() => void session.logout().then(() => onEnd(false))}>
      <View place={place} />
    </Frame>
  );
}

function View({ place }: { place: Place }): JSX.Element {
  switch (place.view) {
    case "service":
      return <ServiceView key={`${place.namespace}/${place.name}`} namespace={place.namespace} name={place.name} />;
    case "gateways":
      return <GatewaysView />;
    case "object":
      return <ObjectView key={`${place.kind} ${place.namespace}/${place.name}`} kind={place.kind} namespace={place.namespace} name={place.name} />;
    case "maps":
      return <MapsView />;
    case "events":
      return <EventsView />;
    default:
      return <Overview />;
  }
}

/** `/` focuses the filter. */
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

function titleOf(place: Place): string {
  if (place.view === "service") return `${place.namespace}/${place.name}`;
  if (place.view === "object") return `${place.kind} ${place.namespace}/${place.name}`;
  return { overview: "Services", gateways: "Gateways", maps: "Maps", events: "Events" }[place.view];
}

/** A new view sets the title, and moves the focus to its heading for screen readers. */
function useTitle(place: Place): void {
  const first = useRef(true);
  const title = titleOf(place);
  useEffect(() => {
    document.title = `${title} – Waypost`;
    if (first.current) {
      first.current = false;
      return;
    }
    scrollTo(0, 0);
    document.getElementById("title")?.focus({ preventScroll: true });
  }, [title]);
}
