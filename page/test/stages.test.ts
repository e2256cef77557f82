import { describe, expect, it } from "vitest";
import { type Facts, type Stage, firstFailed, stages } from "../src/model/stages";
import type { Diagnosis } from "../src/net/findings";
import { type Measurement, type NodeReport, type Report, flows, read, report, rules } from "../src/net/reports";
import type { Node } from "../src/net/types";
import { service } from "./objects";

const node = (name: string): Node => ({ metadata: { name } });
const good = (name: string): NodeReport => read(name, "default/web", {
  mode: "nftables", synced: true, syncedAt: "2026-11-16T07:00:00Z",
  services: { "default/web": { programmed: true, why: "", ports: [
    { name: "http", protocol: "TCP", port: 80, frontends: ["10.96.0.5:80"], backends: [{ address: "10.244.0.2:8080", local: true, connections: 3, bytes: null }] },
  ] } },
  tried: { name: { verdict: "proved", text: "web.default.svc.cluster.local. is 10.96.0.5" }, reachable: { verdict: "proved", text: "10.96.0.5:80 connects; 1 endpoint connects" } },
}) as NodeReport;
const measuring = (name: string, what: "name" | "reachable", one: Partial<Measurement>): Report => {
  const fine = good(name);
  return { ...fine, measured: { ...fine.measured!, [what]: { status: "unmeasured", text: "", next: "", ...one } } };
};

const stage = (message: string): Diagnosis["address"] => ({ ok: true, message });
const diagnosis: Diagnosis = { state: "ok", address: stage("cluster IP 10.96.0.5"), pods: stage("selector app=web"), endpoints: stage("every port has a ready endpoint"), findings: [] };
const finding = { code: "NoPodMatches", level: "not working", message: "selector app=wbe matches 0 of 1 pod", evidence: [], fix: "kubectl set selector" };
const healthy: Facts = { service: service("web"), diagnosis, nodes: [node("n1")], reports: [good("n1")] };
const find = (facts: Partial<Facts>, id: Stage["id"]): Stage => stages({ ...healthy, ...facts }).find((one) => one.id === id)!;

describe("the stages", () => {
  it("are ok where that was diagnosed or measured", () => {
    expect(stages(healthy).map((one) => one.status)).toEqual(["ok", "ok", "ok", "ok", "ok", "ok"]);
    expect(firstFailed(stages(healthy))).toBeUndefined();
    expect(find({}, "reachable").text).toBe("From node n1: 10.96.0.5:80 connects; 1 endpoint connects.");
  });

  it("have the code, the sentence and the command of the server's findings", () => {
    const broken = { ...diagnosis, pods: finding, endpoints: finding, findings: [finding] };
    expect(find({ diagnosis: broken }, "selector")).toEqual({
      id: "selector", title: "Pods", status: "failed", code: "NoPodMatches", text: finding.message, commands: [finding.fix],
    });
    expect(firstFailed(stages({ ...healthy, diagnosis: broken }))?.id).toBe("selector");
  });

  it("are not measured without an answer or without the right to read", () => {
    expect(find({ diagnosis: null }, "address").status).toBe("unmeasured");
    const denied = { ...diagnosis, pods: { unknown: true, message: "you may not list pods in this namespace" } };
    expect(find({ diagnosis: denied }, "selector")).toMatchObject({ status: "unmeasured", text: "you may not list pods in this namespace" });
  });

  it("fail where one node fails, with its text and its command", () => {
    const bad = measuring("n2", "reachable", { status: "failed", text: "no answer from 10.244.0.2:9999: refused", next: "kubectl patch service web" });
    const found = find({ nodes: [node("n1"), node("n2")], reports: [good("n1"), bad] }, "reachable");
    expect(found).toEqual({ id: "reachable", title: "Reachable", status: "failed", text: "From node n2: no answer from 10.244.0.2:9999: refused.", commands: ["kubectl patch service web"] });
    expect(find({ reports: [measuring("n1", "name", { status: "failed", text: "no" })] }, "name").commands).toEqual(["waypost dig web.default"]);
  });

  it("are not ok where a node did not measure", () => {
    const two = [node("n1"), node("n2")];
    expect(find({ reports: [{ ...good("n1"), measured: null }] }, "reachable")).toMatchObject({ status: "unmeasured", text: "Node n1: it does not measure Services." });
    expect(find({ nodes: two, reports: [good("n1"), { node: "n2", unavailable: "it does not answer" }] }, "name")).toMatchObject({ status: "unmeasured", text: "Ok from 1 of 2 nodes. Node n2: it does not answer." });
    const how = find({ reports: [measuring("n1", "reachable", { text: "its ports are not TCP", next: "use a client" })] }, "reachable");
    expect(how).toMatchObject({ status: "unmeasured", text: "From node n1: its ports are not TCP. To measure it: use a client." });
    const odd = read("n1", "default/web", { mode: "nftables", services: {}, tried: { name: { verdict: "splendid" }, reachable: {} } });
    expect([find({ reports: [odd] }, "name").status, find({ reports: [odd] }, "reachable").status]).toEqual(["unmeasured", "unmeasured"]);
  });

  it("leave out nodes that forward nothing", () => {
    const two = [node("n1"), node("n2")];
    const spared = measuring("n2", "reachable", { status: "unneeded", text: "the policy is Local" });
    expect(find({ nodes: two, reports: [good("n1"), spared] }, "reachable").status).toBe("ok");
    expect(find({ nodes: two, reports: [good("n1"), good("n2")] }, "reachable").text).toBe("From 2 of 2 nodes. Node n1: 10.96.0.5:80 connects; 1 endpoint connects.");
    expect(find({ reports: [measuring("n1", "reachable", { status: "unneeded", text: "there is no ready endpoint" })] }, "reachable")).toMatchObject({ status: "unmeasured", text: "From node n1: there is no ready endpoint." });
  });

  it("do not guess what nodes do not report", () => {
    expect(find({ reports: null }, "programmed").status).toBe("unmeasured");
    expect(find({ nodes: [], reports: [] }, "programmed").status).toBe("unmeasured");
    expect(find({ reports: [{ node: "n1", unavailable: "it does not report" }] }, "programmed")).toMatchObject({ status: "unmeasured" });
    const half = find({ nodes: [node("n1"), node("n2")], reports: [good("n1"), { node: "n2", unavailable: "it does not answer" }] }, "programmed");
    expect(half).toMatchObject({ status: "unmeasured" });
    expect(half.text).toContain("1 of 2 nodes");
  });

  it("fail when one node reports a failure", () => {
    const bad: Report = { ...good("n2"), service: { programmed: false, why: "an element is missing", ports: [] } };
    const found = find({ nodes: [node("n1"), node("n2")], reports: [good("n1"), bad] }, "programmed");
    expect(found).toMatchObject({ status: "failed", text: "Programmed on 1 of 2 nodes. Node n2: an element is missing." });
    expect(find({ reports: [{ ...good("n1"), synced: false }] }, "programmed").status).toBe("failed");
    expect(find({ reports: [{ ...good("n1"), service: null }] }, "programmed").status).toBe("failed");
  });

  it("need less for an ExternalName and a headless Service", () => {
    const alias = service("web", { type: "ExternalName", externalName: "example.com", clusterIPs: [] });
    expect(stages({ ...healthy, service: alias }).map((one) => one.status)).toEqual(["ok", "ok", "ok", "unneeded", "ok", "unneeded"]);
    expect(find({ service: service("web", { clusterIP: "None", clusterIPs: ["None"] }) }, "programmed").status).toBe("unneeded");
  });
});

describe("reports of nodes", () => {
  const answer = (body: unknown, status = 200) => (): Promise<Response> => Promise.resolve(new Response(typeof body === "string" ? body : JSON.stringify(body), { status }));

  it("become rows of connections; null stays not measured", () => {
    expect(flows([good("n1"), { node: "n2", unavailable: "x" }])).toEqual([
      { node: "n1", port: "80/TCP", backend: "10.244.0.2:8080", local: true, planned: true, connections: 3, bytes: null },
    ]);
  });

  it("are unavailable where they cannot be read", async () => {
    expect(await report("n1", "default/web", answer({}, 403))).toEqual({ node: "n1", unavailable: "you may not read reports of nodes (nodes/proxy)" });
    expect(await report("n1", "default/web", answer({}, 503))).toMatchObject({ unavailable: "it does not report" });
    expect(await report("n1", "default/web", answer({ odd: true }))).toMatchObject({ unavailable: "its report is malformed" });
    expect(await report("n1", "default/web", answer("<html>"))).toMatchObject({ unavailable: "it does not answer" });
    expect(await rules("n1", "default/web", () => Promise.reject(new Error("no")))).toEqual({ unavailable: "it does not answer" });
    expect(await rules("n1", "default/web", answer("table ip waypost {}"))).toEqual({ text: "table ip waypost {}" });
  });

  it("are read at the documented path", async () => {
    const asked: string[] = [];
    await report("n/1", "default/web", (path) => (asked.push(path), Promise.resolve(new Response("", { status: 404 }))));
    expect(asked).toEqual(["/api/v1/nodes/n%2F1/proxy/waypost/report?service=default%2Fweb&try=true"]);
  });
});
