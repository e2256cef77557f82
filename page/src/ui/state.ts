// What all views share: the world, the connection, the visit, and what the person has typed into filters.
import { createContext } from "preact";
import { useContext, useEffect, useState } from "preact/hooks";
import type { Grade } from "../model/judge";
import type { World } from "../model/world";
import type { Connection, Standing } from "../net/connection";
import type { Visit } from "../net/session";

export interface Filters {
  text: string;
  namespace: string;
  grade: Grade | null;
  /** The row that had the focus. */
  active: string | null;
}

export interface Shared {
  world: World;
  connection: Connection;
  visit: Visit;
  filters: Filters;
}

export const SharedContext = createContext<Shared | null>(null);

export function useShared(): Shared {
  const shared = useContext(SharedContext);
  if (!shared) throw new Error("views stand inside the app");
  return shared;
}

/** Draws again whenever the world has changed, once for each picture. */
export function useWorld(): World {
  const { world } = useShared();
  const [, setVersion] = useState(world.version);
  useEffect(() => world.listen(() => setVersion(world.version)), [world]);
  return world;
}

export function useStanding(connection: Connection): Standing {
  const [standing, setStanding] = useState(connection.now);
  useEffect(() => {
    setStanding(connection.now);
    return connection.listen(() => setStanding(connection.now));
  }, [connection]);
  return standing;
}

/** Draws again as time passes, for words such as "3s ago". */
export function useClock(every: number): number {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), every);
    return () => clearInterval(timer);
  }, [every]);
  return now;
}

/** Whether the window is as narrow as a phone. */
export function useNarrow(): boolean {
  const [query] = useState(() => matchMedia("(max-width: 45rem)"));
  const [narrow, setNarrow] = useState(query.matches);
  useEffect(() => {
    const changed = (): void => setNarrow(query.matches);
    query.addEventListener("change", changed);
    return () => query.removeEventListener("change", changed);
  }, [query]);
  return narrow;
}
