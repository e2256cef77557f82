// Who visits: the word of a link becomes a visit, and the server says whose it is.

export interface Visit {
  user: string;
  version: string;
  nodePorts: { first: number; last: number };
}

const SESSION = "/page/session";

/** The word in the address of a link, if the address is one. */
export const wordOf = (hash: string): string | null => /^#login=([\w-]+)$/.exec(hash)?.[1] ?? null;

/** Begins a visit; says why it cannot. */
export async function enter(word: string): Promise<Visit | string> {
  try {
    const response = await fetch(SESSION, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ link: word }),
    });
    const answer = (await response.json()) as Visit & { message?: string };
    return response.ok ? answer : (answer.message ?? `The server answers ${response.status}.`);
  } catch {
    return "The server does not answer.";
  }
}

/** The visit there is; `null` when there is none, `undefined` when nobody answers. */
export async function current(signal?: AbortSignal): Promise<Visit | null | undefined> {
  try {
    const response = await fetch(SESSION, { cache: "no-store", ...(signal ? { signal } : {}) });
    if (response.ok) return (await response.json()) as Visit;
    return response.status === 401 || response.status === 403 ? null : undefined;
  } catch {
    return undefined;
  }
}

export async function leave(): Promise<void> {
  try {
    await fetch(SESSION, { method: "DELETE" });
  } catch {
    // Nobody is there to be told; the visit ends by itself.
  }
}
