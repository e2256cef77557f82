import { describe, expect, it } from "vitest";
import { type Line, counts, filtered, gradeOf, linesOf, shareText, words } from "../src/model/gateways";
import { accept } from "../src/net/connection";
import type { Gateway, Overview, Rule } from "../src/net/gateways";
import { objectHref, parse } from "../src/ui/router";

const rule = (route: string, host: string, condition: string, more: Partial<Rule> = {}): Rule => ({
  host, condition, listeners: ["http"], route: { kind: "HTTPRoute", key: route }, rule: 0, says: "", backends: [{ service: "shop/web", port: 80, weight: 1 }], ...more,
});

const gateway = (key: string, rows: Rule[], more: Partial<Gateway> = {}): Gateway => ({
  kind: "Gateway", key, class: "waypost", state: "ok", addresses: ["192.0.2.1"], rows,
  listeners: [{ name: "http", protocol: "HTTP", port: 80, host: "*", routes: rows.length, state: "ok" }], ...more,
});

const overview: Overview = {
  gateways: [
    gateway("infra/edge", [rule("shop/cart", "shop.example.com", "path = /cart"), rule("shop/front", "shop.example.com", "path prefix /"), rule("shop/cart", "*", "path prefix /")]),
    gateway("infra/inner", [rule("bank/api", "bank.example.com", "path prefix /api", { backends: [] })], { state: "not working", code: "GatewayNotProgrammed", message: "no address" }),
  ],
  routes: {
    "HTTPRoute shop/cart": { state: "not working", code: "BackendMissing", message: "rule 0: Service shop/wbe does not exist" },
    "HTTPRoute shop/front": { state: "ok" },
  },
  apart: [{ kind: "HTTPRoute", key: "shop/lost", hosts: ["lost.example.com"], state: "not working", code: "ParentMissing", message: "m" }],
  more: 0,
  missing: [],
};

const all = linesOf(overview);
const names = (lines: readonly Line[]): string[] =>
  lines.map((line) => (line.type === "rule" ? `${line.rule.host}${line.rule.condition}` : line.type === "gateway" ? line.gateway.key : line.type === "listener" ? line.listener.name : line.apart.key));
const find = (text: string, more: Partial<Parameters<typeof filtered>[1]> = {}): string[] => names(filtered(all, { text, namespace: "", grade: null, ...more }));

describe("the lines of the Gateways view", () => {
  it("are Gateways, listeners and rules in the order of the server, each with its own key", () => {
    expect(names(all)).toEqual([
      "infra/edge", "http", "shop.example.compath = /cart", "shop.example.compath prefix /", "*path prefix /", "infra/inner", "http", "bank.example.compath prefix /api", "shop/lost",
    ]);
    expect(new Set(all.map(({ key }) => key)).size).toBe(all.length);
  });

  it("have the judgement of their route, and are unknown without one", () => {
    const grades = all.filter(({ type }) => type === "rule").map((line) => line.type === "rule" && gradeOf(line.judgement));
    expect(grades).toEqual(["failing", "ready", "failing", "unknown"]);
    expect(words({ state: "not working", code: "X", message: "why" })).toBe("not working: why");
    expect(words({ state: "not ours" })).toBe("of another controller");
  });

  it("are counted once for each object", () => {
    const found = counts(all);
    expect([found.get("failing"), found.get("ready"), found.get("unknown")]).toEqual([3, 4, 1]);
  });
});

describe("the filter", () => {
  it("finds hosts, paths, names and Services, with the Gateway above", () => {
    expect(find("/cart")).toEqual(["infra/edge", "shop.example.compath = /cart", "*path prefix /"]);
    expect(find("bank.example")).toEqual(["infra/inner", "bank.example.compath prefix /api"]);
    expect(find("web:80 prefix front")).toEqual(["infra/edge", "shop.example.compath prefix /"]);
    expect(find("lost")).toEqual(["shop/lost"]);
    expect(find("nothing")).toEqual([]);
  });

  it("shows a Gateway that fits with everything below it", () => {
    expect(find("inner")).toEqual(["infra/inner", "http", "bank.example.compath prefix /api"]);
    expect(find("192.0.2.1")).toHaveLength(8);
  });

  it("can be limited to a namespace and a state", () => {
    expect(find("", { namespace: "shop" })).toEqual(["infra/edge", "shop.example.compath = /cart", "shop.example.compath prefix /", "*path prefix /", "shop/lost"]);
    expect(find("", { grade: "failing" })).toEqual(["infra/edge", "shop.example.compath = /cart", "*path prefix /", "infra/inner", "shop/lost"]);
    expect(find("", { grade: "ready", namespace: "infra" })).toEqual(["infra/edge", "http", "infra/inner", "http"]);
  });
});

describe("shares", () => {
  it("are percentages where there are several backends", () => {
    const of = (...weights: number[]): string[] => weights.map((weight) => shareText({ weight }, weights.map((one) => ({ weight: one }))));
    expect(of(1)).toEqual([""]);
    expect(of(3, 1)).toEqual(["75 %", "25 %"]);
    expect(of(1, 1, 1)[0]).toBe("33.3 %");
    expect(of(0)).toEqual(["0 %"]);
  });
});

describe("places", () => {
  it("of objects are in the address", () => {
    const href = objectHref({ kind: "HTTPRoute", key: "shop/a.b" });
    expect(parse(href)).toEqual({ view: "object", kind: "HTTPRoute", namespace: "shop", name: "a.b" });
    expect(parse("#/gateways")).toEqual({ view: "gateways" });
    expect(parse("#/object/HTTPRoute/shop")).toEqual({ view: "overview" });
  });
});

describe("watches", () => {
  it("of layer 7 read metadata only", () => {
    expect(accept("services", "/api/v1/services")).toBe("application/json");
    expect(accept("httproutes", "/apis/x/httproutes")).toContain("as=PartialObjectMetadataList;");
    expect(accept("httproutes", "/apis/x/httproutes?watch=1&a=b")).toContain("as=PartialObjectMetadata;");
  });
});
