// What all views share: the object cache, the connection, the session, and the filters.
import { createContext } from "preact";
import { useContext, useEffect, useState } from "preact/hooks";
import type { Grade } from "../model/summary";
import type { World } from "../model/world";
import type { Connection, ConnectionStatus } from "../net/connection";
import type { Session } from "../net/session";

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
  session: Session;
  filters: Filters;
  /** Those of the Gateways view. */
  gatewayFilters: Filters;
}

export const SharedContext = createContext<Shared | null>(null);

export function useShared(): Shared {
  const shared = useContext(SharedContext);
  if (!shared) throw new Error("useShared outside of the app");
  return shared;
}

/** Renders again when objects have changed, at most once per frame. */
export function useWorld(): World {
  const { world } = useShared();
  const [, setVersion] = useState(world.version);
  useEffect(() => world.listen(() => setVersion(world.version)), [world]);
  return world;
}

export function useConnectionStatus(connection: Connection): ConnectionStatus {
  const [status, setStatus] = useState(connection.status);
  useEffect(() => {
    setStatus(connection.status);
    return connection.listen(() => setStatus(connection.status));
  }, [connection]);
  return status;
}

/** Renders again as time passes, for texts such as "3s ago". */
export function useClock(every: number): number {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), every);
    return () => clearInterval(timer);
  }, [every]);
  return now;
}

/** Whether the window has the width of a phone. */
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
