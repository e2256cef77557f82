import { describe, expect, it, vi } from "vitest";
import { rows } from "../src/model/endpoints";
import { ago, newestFirst } from "../src/model/events";
import { summarize } from "../src/model/summary";
import { World } from "../src/model/world";
import { Refresh, type ServiceState } from "../src/net/findings";
import type { KubeEvent, Obj } from "../src/net/types";
import { endpoint, service, slice } from "./objects";

const OK: ServiceState = { state: "ok" };

describe("the summary of a Service", () => {
  const web = service("web");
  const half = [slice("web", [endpoint("10.0.0.1"), endpoint("10.0.0.2", false)])];

  it("has the state and the message of the server's diagnosis", () => {
    const broken: ServiceState = { state: "not working", code: "NoPodMatches", message: "selector app=web matches 0 of 1 pod" };
    expect(summarize(web, half, broken)).toMatchObject({ grade: "failing", text: broken.message, ready: 1, total: 2 });
    expect(summarize(web, half, { state: "degraded", message: "m" }).grade).toBe("partly");
    expect(summarize(web, half, { state: "pending", message: "m" }).grade).toBe("waiting");
    expect(summarize(web, half, { state: "unknown", message: "m" }).grade).toBe("unknown");
  });

  it("counts endpoints where there is no finding", () => {
    expect(summarize(web, half, OK)).toMatchObject({ grade: "partly", text: "1 of 2 ready" });
    expect(summarize(web, [slice("web", [{ addresses: ["10.0.0.1"] }])], OK)).toMatchObject({ grade: "ready", text: "1 of 1 ready" });
    expect(summarize(service("web", { type: "ExternalName", externalName: "example.com" }), [], OK)).toMatchObject({ grade: "alias" });
  });
});

describe("the table of endpoints", () => {
  it("has the reason of the server for Pods that are no endpoints", () => {
    const terminating = endpoint("10.0.0.3", false, { conditions: { ready: false, serving: true, terminating: true } });
    const all = [slice("web", [endpoint("10.0.0.1"), endpoint("10.0.0.2", false), terminating])];
    const found = rows(all, { "pod-2": "is not ready (probe failed)", late: "has no address yet" });
    expect(Object.fromEntries(found.map((row) => [row.pod, `${row.in ? "in" : "out"}: ${row.why}`]))).toEqual({
      "pod-1": "in: ready",
      "pod-2": "out: is not ready (probe failed)",
      "pod-3": "out: terminating",
      late: "out: has no address yet",
    });
    expect(rows([slice("web", [terminating])], {})[0]).toMatchObject({ in: true });
  });
});

describe("refreshing", () => {
  it("runs once for many requests, and again after one that came meanwhile", async () => {
    let runs = 0;
    const refresh = new Refresh(() => {
      runs += 1;
      if (runs === 1) refresh.request();
      return Promise.resolve(true);
    });
    vi.useFakeTimers();
    for (let at = 0; at < 10; at += 1) refresh.request();
    expect(runs).toBe(0);
    await vi.advanceTimersByTimeAsync(60_000);
    vi.useRealTimers();
    expect(runs).toBe(2);
  });
});

describe("the world", () => {
  const begin = (): { world: World; told: number[]; turn: () => void } => {
    const calls: (() => void)[] = [];
    const world = new World((call) => calls.push(call));
    const told: number[] = [];
    world.listen(() => told.push(world.version));
    return { world, told, turn: () => calls.splice(0).forEach((call) => call()) };
  };

  it("tells of many changes once", () => {
    const { world, told, turn } = begin();
    world.sink("slices").replace([]);
    world.sink("services").replace(Array.from({ length: 1000 }, (_, at) => service(`s${at}`)));
    for (let at = 0; at < 1000; at += 1) world.sink("slices").apply("ADDED", { ...slice(`s${at}`, [endpoint("10.0.0.1")]), metadata: { ...slice(`s${at}`, []).metadata, name: `x${at}` } } as Obj);
    expect(told).toEqual([]);
    turn();
    expect(told).toEqual([1]);
    expect(world.serviceKeys()).toHaveLength(1000);
    world.setStates(Object.fromEntries(world.serviceKeys().map((key) => [key, OK])));
    turn();
    expect(world.summary("default/s7")?.grade).toBe("ready");
  });

  it("summarizes nothing before all was read and diagnosed, and then reports changes", () => {
    const { world, turn } = begin();
    const turns: string[] = [];
    world.onGradeChange((all) => turns.push(...all.map((one) => `${one.key} ${one.from}>${one.to}`)));
    world.sink("services").replace([service("web")]);
    turn();
    world.sink("slices").replace([slice("web", [endpoint("10.0.0.1")])]);
    turn();
    expect(world.summary("default/web")).toBeUndefined();
    world.setStates({ "default/web": OK });
    turn();
    expect(turns).toEqual([]);
    world.sink("services").apply("ADDED", service("late"));
    turn();
    expect(world.summary("default/late")).toBeUndefined();
    world.setStates({ "default/web": { state: "not working", message: "m" }, "default/late": OK });
    turn();
    world.sink("services").apply("DELETED", service("web"));
    turn();
    expect(turns).toEqual(["default/web ready>failing", "default/late null>ready", "default/web failing>null"]);
  });

  it("removes what a new list lacks, and moves a slice to another Service", () => {
    const { world, turn } = begin();
    world.sink("services").replace([service("a"), service("b")]);
    world.sink("slices").replace([slice("a", [endpoint("10.0.0.1")])]);
    world.setStates({ "default/a": OK, "default/b": OK });
    turn();
    const moved = slice("a", [endpoint("10.0.0.1")]);
    moved.metadata.labels = { "kubernetes.io/service-name": "b" };
    world.sink("slices").apply("MODIFIED", moved);
    turn();
    expect([world.summary("default/a")?.total, world.summary("default/b")?.total]).toEqual([0, 1]);
    world.sink("services").replace([service("b")]);
    turn();
    expect(world.serviceKeys()).toEqual(["default/b"]);
    expect(world.summary("default/a")).toBeUndefined();
  });

  it("has unknown states while the server does not answer, and asks for a diagnosis when objects change", () => {
    const { world, turn } = begin();
    let asked = 0;
    world.onObjects(() => (asked += 1));
    world.sink("services").replace([service("a")]);
    world.sink("slices").replace([]);
    world.setStates(null);
    turn();
    expect([world.summary("default/a")?.grade, asked]).toEqual(["unknown", 1]);
    world.setStates({ "default/a": { state: "not working", message: "m" } });
    turn();
    expect([world.summary("default/a")?.grade, asked]).toEqual(["failing", 1]);
    world.sink("events").replace([]);
    turn();
    expect(asked).toBe(1);
    world.sink("pods").replace([]);
    turn();
    expect(asked).toBe(2);
  });
});

describe("Events", () => {
  const event = (name: string, lastTimestamp: string | null, creationTimestamp: string): KubeEvent => ({
    metadata: { name, creationTimestamp }, involvedObject: {}, lastTimestamp,
  });

  it("come newest first, by whichever time they have", () => {
    const all = [event("a", "2026-01-01T00:00:00Z", ""), event("b", null, "2026-01-03T00:00:00Z"), event("c", "2026-01-02T00:00:00Z", "")];
    expect(newestFirst(all).map((one) => one.metadata.name)).toEqual(["b", "c", "a"]);
  });

  it("were so long ago", () => {
    const now = Date.parse("2026-01-02T00:00:00Z");
    expect(["2026-01-01T23:59:30Z", "2026-01-01T23:00:01Z", "2026-01-01T00:00:00Z", "2026-01-03T00:00:00Z", ""].map((time) => ago(time, now)))
      .toEqual(["30s", "59m", "1d", "0s", ""]);
  });
});
