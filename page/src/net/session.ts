// The session: the token of a link is exchanged for a cookie, and the server names the user.

export interface Session {
  user: string;
  version: string;
  /** Plurals of the kinds of layer 7 that the server has: those of the Gateway API may not be installed. */
  kinds: string[];
  nodePorts: { first: number; last: number };
}

const PATH = "/page/session";

/** The login token in the fragment of a link. */
export const tokenOf = (hash: string): string | null => /^#login=([\w-]+)$/.exec(hash)?.[1] ?? null;

/** Starts a session; returns the error message if that fails. */
export async function login(token: string): Promise<Session | string> {
  try {
    const response = await fetch(PATH, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ link: token }),
    });
    const answer = (await response.json()) as Session & { message?: string };
    return response.ok ? answer : (answer.message ?? `The server answers ${response.status}.`);
  } catch {
    return "The server does not answer.";
  }
}

/** The current session; `null` when there is none, `undefined` when the server does not answer. */
export async function current(signal?: AbortSignal): Promise<Session | null | undefined> {
  try {
    const response = await fetch(PATH, { cache: "no-store", ...(signal ? { signal } : {}) });
    if (response.ok) return (await response.json()) as Session;
    return response.status === 401 || response.status === 403 ? null : undefined;
  } catch {
    return undefined;
  }
}

export async function logout(): Promise<void> {
  try {
    await fetch(PATH, { method: "DELETE" });
  } catch {
    // The server is unreachable; the session expires by itself.
  }
}
