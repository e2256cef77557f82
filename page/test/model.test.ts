import { describe, expect, it } from "vitest";
import { rows } from "../src/model/endpoints";
import { ago, newestFirst } from "../src/model/events";
import { sight } from "../src/model/judge";
import { World } from "../src/model/world";
import type { KubeEvent, Obj } from "../src/net/types";
import { endpoint, pod, service, slice } from "./objects";

describe("a Service at a glance", () => {
  const graded = (...args: Parameters<typeof sight>): string => sight(...args).grade;

  it("is what its endpoints are", () => {
    expect(graded(service("web"), [])).toBe("failing");
    expect(graded(service("web"), [slice("web", [endpoint("10.0.0.1", false)])])).toBe("failing");
    expect(graded(service("web"), [slice("web", [endpoint("10.0.0.1"), endpoint("10.0.0.2", false)])])).toBe("partly");
    expect(graded(service("web"), [slice("web", [endpoint("10.0.0.1")])])).toBe("ready");
    expect(graded(service("web"), [slice("web", [{ addresses: ["10.0.0.1"] }])])).toBe("ready");
    expect(graded(service("web", { type: "ExternalName", externalName: "example.com" }), [])).toBe("alias");
    expect(graded(service("web", { type: "LoadBalancer" }), [slice("web", [endpoint("10.0.0.1")])])).toBe("waiting");
  });

  it("needs every port served", () => {
    const two = service("web", { ports: [{ name: "a", port: 80 }, { name: "b", port: 81 }] });
    const one = slice("web", [endpoint("10.0.0.1")], [{ name: "a", port: 8080, protocol: "TCP" }]);
    expect(sight(two, [one])).toMatchObject({ grade: "partly", words: "nobody serves port b" });
    expect(graded(service("web"), [slice("web", [endpoint("10.0.0.1")], [])])).toBe("failing");
  });
});

describe("who is in and who is out", () => {
  it("says why", () => {
    const ending = endpoint("10.0.0.3", false, { conditions: { ready: false, serving: true, terminating: true } });
    const pods = [pod("pod-2", { app: "web" }, false), pod("late", { app: "web" }), pod("other", { app: "x" })];
    pods[1]!.status = { phase: "Pending" };
    delete pods[1]!.spec!.nodeName;
    const found = rows(service("web"), [slice("web", [endpoint("10.0.0.1"), endpoint("10.0.0.2", false), ending])], pods);
    const said = Object.fromEntries(found.map((row) => [row.pod, `${row.in ? "in" : "out"}: ${row.why}`]));
    expect(said).toEqual({
      "pod-1": "in: ready",
      "pod-2": "out: not ready: probe failed",
      "pod-3": "out: it is ending",
      late: "out: no node was found for it yet",
    });
    expect(rows(service("web"), [slice("web", [ending])], [])[0]).toMatchObject({ in: true });
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
    expect(world.sight("default/s7")?.grade).toBe("ready");
  });

  it("judges nothing before all of it was read, and then says what turned", () => {
    const { world, turn } = begin();
    const turns: string[] = [];
    world.onTurn((all) => turns.push(...all.map((one) => `${one.key} ${one.from}>${one.to}`)));
    world.sink("services").replace([service("web")]);
    turn();
    expect(world.sight("default/web")).toBeUndefined();
    world.sink("slices").replace([slice("web", [endpoint("10.0.0.1")])]);
    turn();
    expect(turns).toEqual([]);
    world.sink("slices").apply("MODIFIED", slice("web", [endpoint("10.0.0.1", false)]));
    turn();
    world.sink("services").apply("DELETED", service("web"));
    turn();
    expect(turns).toEqual(["default/web ready>failing", "default/web failing>null"]);
  });

  it("forgets what a new list does not have, and follows a slice to another Service", () => {
    const { world, turn } = begin();
    world.sink("services").replace([service("a"), service("b")]);
    world.sink("slices").replace([slice("a", [endpoint("10.0.0.1")])]);
    turn();
    const moved = slice("a", [endpoint("10.0.0.1")]);
    moved.metadata.labels = { "kubernetes.io/service-name": "b" };
    world.sink("slices").apply("MODIFIED", moved);
    turn();
    expect([world.sight("default/a")?.grade, world.sight("default/b")?.grade]).toEqual(["failing", "ready"]);
    world.sink("services").replace([service("b")]);
    turn();
    expect(world.serviceKeys()).toEqual(["default/b"]);
    expect(world.sight("default/a")).toBeUndefined();
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
