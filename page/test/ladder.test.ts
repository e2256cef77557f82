import { describe, expect, it } from "vitest";
import { type Facts, type Rung, broken, ladder } from "../src/model/ladder";
import { type Report, type Try, flows, read, report, rules } from "../src/net/reports";
import type { Node } from "../src/net/types";
import { endpoint, pod, service, slice } from "./objects";

const node = (name: string): Node => ({ metadata: { name } });
const good = (name: string): Report => read(name, "default/web", {
  mode: "nftables", synced: true, syncedAt: "2026-11-16T07:00:00Z",
  services: { "default/web": { programmed: true, why: "", ports: [
    { name: "http", protocol: "TCP", port: 80, frontends: ["10.96.0.5:80"], backends: [{ address: "10.244.0.2:8080", local: true, connections: 3, bytes: null }] },
  ] } },
  tried: { name: { verdict: "proved", text: "web.default.svc.cluster.local. is 10.96.0.5" }, reachable: { verdict: "proved", text: "10.96.0.5:80 connects; 1 endpoint connects" } },
});
/** The same, but for what was tried. */
const trying = (name: string, what: "name" | "reachable", one: Partial<Try>): Report => {
  const fine = good(name) as Extract<Report, { mode: string }>;
  return { ...fine, tried: { ...fine.tried!, [what]: { verdict: "unmeasured", text: "", next: "", ...one } } };
};

const healthy: Facts = {
  service: service("web"),
  slices: [slice("web", [endpoint("10.0.0.1")])],
  pods: [pod("pod-1", { app: "web" })],
  nodes: [node("n1")],
  reports: [good("n1")],
};
const rung = (facts: Partial<Facts>, id: Rung["id"]): Rung => ladder({ ...healthy, ...facts }).find((one) => one.id === id)!;

describe("the ladder", () => {
  it("proves what was seen and nothing else", () => {
    expect(ladder(healthy).map((one) => one.verdict)).toEqual(["proved", "proved", "proved", "proved", "proved", "proved"]);
    expect(broken(ladder(healthy))).toBeUndefined();
    expect(rung({}, "reachable").text).toBe("From node n1: 10.96.0.5:80 connects; 1 endpoint connects.");
  });

  it("fails where one node fails, in its words and with its command", () => {
    const bad = trying("n2", "reachable", { verdict: "failed", text: "nobody answers at 10.244.0.2:9999: refused", next: "kubectl patch service web" });
    const found = rung({ nodes: [node("n1"), node("n2")], reports: [good("n1"), bad] }, "reachable");
    expect(found).toEqual({ id: "reachable", title: "Reachable", verdict: "failed", text: "From node n2: nobody answers at 10.244.0.2:9999: refused.", commands: ["kubectl patch service web"] });
    expect(rung({ reports: [trying("n1", "name", { verdict: "failed", text: "no" })] }, "name").commands).toEqual(["waypost dig web.default"]);
  });

  it("calls nothing good that a node did not try", () => {
    const two = [node("n1"), node("n2")];
    expect(rung({ reports: [{ ...good("n1"), tried: null } as Report] }, "reachable")).toMatchObject({ verdict: "unmeasured", text: "Node n1: it does not try Services." });
    expect(rung({ nodes: two, reports: [good("n1"), { node: "n2", silent: "it does not answer" }] }, "name")).toMatchObject({ verdict: "unmeasured", text: "Proved from 1 of 2 nodes. Node n2: it does not answer." });
    const how = rung({ reports: [trying("n1", "reachable", { text: "its ports are not TCP", next: "ask with a client" })] }, "reachable");
    expect(how).toMatchObject({ verdict: "unmeasured", text: "From node n1: its ports are not TCP. To measure it: ask with a client." });
    expect(rung({ reports: [trying("n1", "reachable", { verdict: "splendid" as Try["verdict"] })] }, "reachable").verdict).not.toBe("proved");
    const odd = read("n1", "default/web", { mode: "nftables", services: {}, tried: { name: { verdict: "splendid" as Try["verdict"] }, reachable: {} } });
    expect(rung({ reports: [odd] }, "name").verdict).toBe("unmeasured");
  });

  it("leaves out nodes that lead nobody there", () => {
    const two = [node("n1"), node("n2")];
    const spared = trying("n2", "reachable", { verdict: "unneeded", text: "the policy is Local" });
    expect(rung({ nodes: two, reports: [good("n1"), spared] }, "reachable").verdict).toBe("proved");
    expect(rung({ nodes: two, reports: [good("n1"), good("n2")] }, "reachable").text).toBe("From 2 of 2 nodes. Node n1: 10.96.0.5:80 connects; 1 endpoint connects.");
    expect(rung({ reports: [trying("n1", "reachable", { verdict: "unneeded", text: "there is no ready endpoint" })] }, "reachable")).toMatchObject({ verdict: "unmeasured", text: "From node n1: there is no ready endpoint." });
  });

  it("explains a selector that matches nothing, and names the near miss and its command", () => {
    const pods = [pod("a", { app: "web2" }), pod("b", { app: "web2" }), pod("c", { app: "db" })];
    const failed = broken(ladder({ ...healthy, slices: [], pods }))!;
    expect(failed.id).toBe("selector");
    expect(failed.text).toContain("2 Pods would match app=web2");
    expect(failed.commands[0]).toBe("kubectl set selector service/web -n default app=web2");
  });

  it("proposes no selector that is only another one", () => {
    const pods = [pod("a", { app: "front" }), pod("b", { app: "database" })];
    const found = rung({ slices: [], pods }, "selector");
    expect([found.verdict, found.commands]).toEqual(["failed", ["kubectl get pods -n default --show-labels"]]);
    const said = service("web", {}, { status: { conditions: [{ type: "PodsMatched", status: "False", message: "1 pod has app=front" }] } });
    expect(rung({ service: said, slices: [], pods }, "selector").commands[0]).toContain("app=front");
  });

  it("takes the words of the condition where there is one", () => {
    const told = service("web", {}, { status: { conditions: [{ type: "PodsMatched", status: "False", message: "as the server says" }] } });
    expect(rung({ service: told, pods: [] }, "selector").text).toBe("as the server says");
  });

  it("names Pods that are not ready, and why", () => {
    const found = rung({ slices: [slice("web", [endpoint("10.0.0.1", false)])], pods: [pod("pod-1", { app: "web" }, false)] }, "endpoints");
    expect(found).toMatchObject({ verdict: "failed", commands: ["kubectl describe pod pod-1 -n default"] });
    expect(found.text).toContain("pod-1 (probe failed)");
  });

  it("does not guess what nodes do not say", () => {
    expect(rung({ reports: null }, "programmed").verdict).toBe("unmeasured");
    expect(rung({ nodes: [], reports: [] }, "programmed").verdict).toBe("unmeasured");
    expect(rung({ reports: [{ node: "n1", silent: "it does not report" }] }, "programmed")).toMatchObject({ verdict: "unmeasured" });
    const half = rung({ nodes: [node("n1"), node("n2")], reports: [good("n1"), { node: "n2", silent: "it does not answer" }] }, "programmed");
    expect(half).toMatchObject({ verdict: "unmeasured" });
    expect(half.text).toContain("1 of 2 nodes");
  });

  it("fails when a node says no, whatever the others say", () => {
    const bad = { ...good("n2"), service: { programmed: false, why: "an element is missing", ports: [] } } as Report;
    const found = rung({ nodes: [node("n1"), node("n2")], reports: [good("n1"), bad] }, "programmed");
    expect(found).toMatchObject({ verdict: "failed", text: "Programmed on 1 of 2 nodes. Node n2: an element is missing." });
    const stuck = { ...good("n1"), synced: false } as Report;
    expect(rung({ reports: [stuck] }, "programmed").verdict).toBe("failed");
    expect(rung({ reports: [{ ...good("n1"), service: null } as Report] }, "programmed").verdict).toBe("failed");
  });

  it("asks an alias and a headless Service for less", () => {
    const alias = service("web", { type: "ExternalName", externalName: "example.com", clusterIPs: [] });
    expect(ladder({ ...healthy, service: alias, slices: [] }).map((one) => one.verdict)).toEqual(["proved", "unneeded", "unneeded", "unneeded", "proved", "unneeded"]);
    expect(rung({ service: service("web", { type: "ExternalName", externalName: "192.0.2.1" }) }, "address").verdict).toBe("failed");
    expect(rung({ service: service("web", { clusterIP: "None", clusterIPs: ["None"] }) }, "programmed").verdict).toBe("unneeded");
  });
});

describe("what nodes report", () => {
  const answer = (body: unknown, status = 200) => (): Promise<Response> => Promise.resolve(new Response(typeof body === "string" ? body : JSON.stringify(body), { status }));

  it("becomes rows of connections; null stays not measured", () => {
    expect(flows([good("n1"), { node: "n2", silent: "x" }])).toEqual([
      { node: "n1", port: "80/TCP", backend: "10.244.0.2:8080", local: true, planned: true, connections: 3, bytes: null },
    ]);
  });

  it("is silence where it cannot be had or read", async () => {
    expect(await report("n1", "default/web", answer({}, 403))).toEqual({ node: "n1", silent: "you may not ask nodes (nodes/proxy)" });
    expect(await report("n1", "default/web", answer({}, 503))).toMatchObject({ silent: "it does not report" });
    expect(await report("n1", "default/web", answer({ odd: true }))).toMatchObject({ silent: "its report cannot be read" });
    expect(await report("n1", "default/web", answer("<html>"))).toMatchObject({ silent: "it does not answer" });
    expect(await rules("n1", "default/web", () => Promise.reject(new Error("no")))).toEqual({ silent: "it does not answer" });
    expect(await rules("n1", "default/web", answer("table ip waypost {}"))).toEqual({ text: "table ip waypost {}" });
  });

  it("asks where the contract says", async () => {
    const asked: string[] = [];
    await report("n/1", "default/web", (path) => (asked.push(path), Promise.resolve(new Response("", { status: 404 }))));
    expect(asked).toEqual(["/api/v1/nodes/n%2F1/proxy/waypost/report?service=default%2Fweb&try=true"]);
  });
});
