// What the server finds for objects of layer 7, kept up to date while it is shown.
import { useEffect, useState } from "preact/hooks";
import { Refresh } from "../net/findings";
import { useConnectionStatus, useShared } from "./state";

/** `absent`: there is no such object, or none that the user may list. */
export type ReadState = "reading" | "known" | "absent" | "failed";

interface Read<T> {
  answer: T | null;
  state: ReadState;
}

/** Between readings where changes cannot be watched. */
const POLL_INTERVAL = 10_000;

/**
 * The answer of `read`, which is called again when objects change. Users who may not watch a kind in all namespaces receive no changes of it:
 * for them it is called at intervals. The last answer stays while the server does not answer.
 */
export function useFindings<T>(subject: string, read: () => Promise<T | null | undefined>): Read<T> {
  const { world, connection } = useShared();
  const { denied } = useConnectionStatus(connection);
  const polls = denied.length > 0;
  const [found, setFound] = useState<Read<T> & { subject: string }>({ subject, answer: null, state: "reading" });
  useEffect(() => {
    let over = false;
    const refresh = new Refresh(async () => {
      const answer = await read();
      if (over) return true;
      if (answer === null) setFound((old) => ({ subject, answer: old.subject === subject ? old.answer : null, state: "failed" }));
      else setFound({ subject, answer: answer ?? null, state: answer === undefined ? "absent" : "known" });
      return answer !== null;
    });
    const stop = world.onLayer7(refresh.request);
    const timer = polls ? setInterval(() => document.visibilityState === "visible" && refresh.request(), POLL_INTERVAL) : undefined;
    refresh.request();
    return () => {
      over = true;
      stop();
      clearInterval(timer);
      refresh.stop();
    };
  }, [subject, polls, world]);
  return found.subject === subject ? found : { answer: null, state: "reading" };
}
