// Shown without a session.
import type { JSX } from "preact";
import { useEffect } from "preact/hooks";
import * as session from "../net/session";
import { Command } from "./Command";

interface Props {
  /** Why the login failed. */
  error: string | null;
  /** Whether a session ended. */
  ended: boolean;
  onSession: (current: session.Session) => void;
}

const POLL_INTERVAL = 3000;

export function Login({ error, ended, onSession }: Props): JSX.Element {
  // The link may have been opened in another window, which has the same cookie.
  useEffect(() => {
    const timer = setInterval(() => void session.current().then((current) => current && onSession(current)), POLL_INTERVAL);
    return () => clearInterval(timer);
  }, []);
  return (
    <main class="login" id="content">
      <img src="/page/favicon.svg" alt="" width="48" height="48" />
      <h1>Waypost</h1>
      {error && <p class="verdict" role="alert">{error}</p>}
      {!error && ended && <p class="verdict" role="alert">The session has ended: it expired, or the server was restarted.</p>}
      <p>This page shows the Services of a cluster, live. You are not logged in.</p>
      <p>Where you use <code>kubectl</code>, run</p>
      <Command text="waypost page" />
      <p>and open the link that it prints. The link is valid once, for one minute. The page shows what you may read, and changes nothing.</p>
    </main>
  );
}
