import { describe, expect, it } from "vitest";
import type { Obj } from "../src/net/types";
import { type Health, Lines, reflect } from "../src/net/watch";

const json = (body: unknown, status = 200): Response => new Response(JSON.stringify(body), { status });
const lines = (...events: unknown[]): Response => new Response(events.map((event) => `${JSON.stringify(event)}\n`).join(""));
const object = (name: string, resourceVersion: string): Obj => ({ metadata: { name, resourceVersion } });
const list = (revision: string, ...names: string[]): Response =>
  json({ metadata: { resourceVersion: revision }, items: names.map((name) => object(name, "1")) });

/** Watches with canned answers and ends after the last of them. */
async function run(...answers: (Response | Error)[]): Promise<{ asked: string[]; told: string[]; health: Health[] }> {
  const [asked, told, health]: [string[], string[], Health[]] = [[], [], []];
  const ending = new AbortController();
  await reflect("/things", {
    replace: (objects) => told.push(`all ${objects.map((one) => one.metadata.name).join()}`),
    apply: (type, one) => told.push(`${type} ${one.metadata.name}`),
  }, {
    fetch: (path) => {
      asked.push(path);
      const next = answers.shift();
      if (answers.length === 0) queueMicrotask(() => setTimeout(() => ending.abort(), 20));
      if (next === undefined) return new Promise((_, reject) => ending.signal.addEventListener("abort", reject));
      return next instanceof Error ? Promise.reject(next) : Promise.resolve(next);
    },
    wait: () => Promise.resolve(),
    report: (one) => health.push(one),
    signal: ending.signal,
  }).catch(() => undefined);
  return { asked, told, health };
}

const from = (path: string | undefined): string | null => new URL(path ?? "", "http://h").searchParams.get("resourceVersion");

describe("the reflector", () => {
  it("splits chunks into lines", () => {
    const cut = new Lines();
    expect(cut.push('{"a":')).toEqual([]);
    expect(cut.push('1}\n{"b":2}\n\n{"c')).toEqual(['{"a":1}', '{"b":2}']);
    expect(cut.push('":3}\n')).toEqual(['{"c":3}']);
  });

  it("lists, watches from the revision, and resumes a watch that ended", async () => {
    const watched = lines({ type: "ADDED", object: object("b", "11") }, { type: "BOOKMARK", object: object("", "15") });
    const { asked, told, health } = await run(list("10", "a"), watched, lines({ type: "DELETED", object: object("a", "16") }));
    expect(told).toEqual(["all a", "ADDED b", "DELETED a"]);
    expect([from(asked[1]), from(asked[2])]).toEqual(["10", "15"]);
    expect(asked[2]).toContain("watch=1");
    expect(health).not.toContain("lost");
  });

  it("lists again when the revision is compacted", async () => {
    const gone = { type: "ERROR", object: { metadata: {}, code: 410 } };
    const { told } = await run(list("1", "a"), json({}, 410), list("5", "b"), lines(gone), list("9", "c"), lines());
    expect(told).toEqual(["all a", "all b", "all c"]);
  });

  it("reports a lost connection and resumes at the same revision", async () => {
    const { asked, health } = await run(list("7"), lines(), new TypeError("no network"), json({}, 503), lines());
    expect(health).toEqual(["live", "lost", "lost", "live"]);
    expect(new Set(asked.slice(1).map(from))).toEqual(new Set(["7"]));
  });

  it("distinguishes unauthenticated from denied", async () => {
    expect((await run(json({}, 401), list("1"))).health[0]).toBe("unauthenticated");
    expect((await run(json({}, 403), list("1"))).health[0]).toBe("denied");
  });
});
