// For somebody who has not come by a link.
import type { JSX } from "preact";
import { useEffect } from "preact/hooks";
import * as session from "../net/session";
import { Command } from "./Command";

interface Props {
  /** Why a link did not work, if there was one. */
  why: string | null;
  /** Whether there was a visit, which has ended. */
  ended: boolean;
  onVisit: (visit: session.Visit) => void;
}

const LOOK = 3000;

export function Login({ why, ended, onVisit }: Props): JSX.Element {
  // The link may be opened in another window: then this one can go on, too.
  useEffect(() => {
    const timer = setInterval(() => void session.current().then((visit) => visit && onVisit(visit)), LOOK);
    return () => clearInterval(timer);
  }, []);
  return (
    <main class="login" id="content">
      <img src="/page/favicon.svg" alt="" width="48" height="48" />
      <h1>Waypost</h1>
      {why && <p class="verdict" role="alert">{why}</p>}
      {!why && ended && <p class="verdict" role="alert">The server does not know this visit any more: it has ended, or the server was started anew.</p>}
      <p>This page shows the Services of a cluster, live. It needs to know who you are.</p>
      <p>Where you use <code>kubectl</code>, type</p>
      <Command text="waypost page" />
      <p>and open the link that it prints. It works once, within a minute. The page shows what you may see, and changes nothing.</p>
    </main>
  );
}
