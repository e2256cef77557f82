// A stage for looking at the page: a real server with objects of every shape, and a real browser.
import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { request } from "node:https";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";

const BINARY = process.env.WAYPOST_BIN ?? resolve(import.meta.dirname, "../../target/debug/waypost");

/** Reads lines of a stream until one gives an answer. */
async function first(stream, find) {
  for await (const line of createInterface({ input: stream })) {
    const found = find(line);
    if (found) return found;
  }
  throw new Error("it ended before it was ready");
}

export class Server {
  home = mkdtempSync(join(tmpdir(), "waypost-page-"));

  async start(listen = "127.0.0.1:0") {
    this.child = spawn(BINARY, ["server", "--data-dir", this.home, "--listen", listen, "--service-conditions", "--gateway-class", "--load-balancer-pool", "192.0.2.64/28", "--node-monitor-grace-period", "600s", "--log-json"], { stdio: ["ignore", "ignore", "pipe"] });
    this.address = await first(this.child.stderr, (line) => {
      const { fields } = JSON.parse(line);
      return fields?.message === "ready" ? fields.address : null;
    });
    this.child.stderr.resume();
  }

  end() {
    this.child.kill("SIGKILL");
  }

  remove() {
    this.end();
    rmSync(this.home, { recursive: true, force: true });
  }

  /** Asks as the administrator. */
  ask(method, path, body) {
    const file = (name) => readFileSync(join(this.home, "pki", name));
    const type = method === "PATCH" ? "application/merge-patch+json" : "application/json";
    return new Promise((done, failed) => {
      const asked = request(`https://${this.address}${path}`, { method, ca: file("ca.crt"), cert: file("admin.crt"), key: file("admin.key"), headers: { "Content-Type": type } }, (answer) => {
        let text = "";
        answer.on("data", (piece) => (text += piece));
        answer.on("end", () => {
          const value = JSON.parse(text || "{}");
          if (answer.statusCode >= 300) failed(new Error(`${method} ${path}: ${value.message}`));
          else done(value);
        });
      });
      asked.on("error", failed);
      asked.end(body ? JSON.stringify(body) : undefined);
    });
  }

  async link() {
    const { path } = await this.ask("POST", "/page/links", {});
    return `https://${this.address}${path}`;
  }

  /** Objects of every shape, sick and well. */
  async furnish(services = 0) {
    const ns = "/api/v1/namespaces/default";
    for (const [at, name] of ["n1", "n2"].entries()) {
      await this.ask("POST", "/api/v1/nodes", { metadata: { name }, spec: { podCIDR: `10.244.${at}.0/24`, podCIDRs: [`10.244.${at}.0/24`] }, status: { addresses: [{ type: "InternalIP", address: `192.0.2.1${at}` }], conditions: [{ type: "Ready", status: "True", reason: "KubeletReady" }] } });
    }
    let host = 10;
    const pod = async (name, app, ready) => {
      const ip = `10.244.0.${(host += 1)}`;
      await this.ask("POST", `${ns}/pods`, { metadata: { name, labels: { app } }, spec: { nodeName: "n1", containers: [{ name: "main", image: "shop/web:1.4", ports: [{ containerPort: 8080 }] }] } });
      await this.ask("PATCH", `${ns}/pods/${name}/status`, { status: { phase: "Running", podIP: ip, podIPs: [{ ip }], conditions: [{ type: "Ready", status: ready ? "True" : "False", reason: "ContainersNotReady", message: ready ? "" : "readiness probe failed: GET /healthz: 503" }] } });
    };
    const service = (name, spec) => this.ask("POST", `${ns}/services`, { metadata: { name }, spec: { ports: [{ port: 80, targetPort: 8080 }], ...spec } });
    for (let at = 1; at <= 12; at += 1) await pod(`web-7c9f-${at}`, "web", true);
    for (let at = 1; at <= 3; at += 1) await pod(`cart-5d44-${at}`, "cart", at !== 2);
    await pod("mail-0", "mail", false);
    await service("web", { selector: { app: "web" } });
    await service("web-outside", { type: "NodePort", selector: { app: "web" } });
    await service("cart", { selector: { app: "cart" }, ipFamilyPolicy: "PreferDualStack" });
    await service("mail", { selector: { app: "mail" } });
    await service("checkout", { selector: { app: "crat" } });
    await service("peers", { clusterIP: "None", selector: { app: "web" } });
    await service("shop", { type: "LoadBalancer", selector: { app: "web" } });
    await service("database", { type: "ExternalName", externalName: "db.example.com" });
    for (let at = 0; at < services; at += 1) await service(`svc-${String(at).padStart(4, "0")}`, { selector: { app: at % 3 ? "web" : "none" } });
    const event = (name, type, reason, message, count) => this.ask("POST", `${ns}/events`, { metadata: { name }, type, reason, message, count, lastTimestamp: new Date().toISOString(), involvedObject: { kind: "Service", namespace: "default", name: "checkout" }, source: { component: "stage" } });
    await event("checkout.1", "Warning", "NoPodMatches", "selector app=crat matches 0 of 16 pods in default; 3 pods have app=cart. Change the selector or the labels of the pods.", 4);
    await event("checkout.2", "Normal", "Created", "the Service was created", 1);
    await this.furnishGateways(services);
  }

  /** Gateways with routes of every shape, an Ingress, and as many further routes. */
  async furnishGateways(routes) {
    const at = (kind, namespace = "default") => `/apis/gateway.networking.k8s.io/v1/namespaces/${namespace}/${kind}`;
    const http = (name, port, more = {}) => ({ name, port, protocol: "HTTP", ...more });
    await this.ask("POST", at("gateways"), { metadata: { name: "public" }, spec: { gatewayClassName: "waypost", listeners: [http("http", 80), http("shop", 8080, { hostname: "*.shop.example.com" })] } });
    await this.ask("POST", at("gateways"), { metadata: { name: "inner" }, spec: { gatewayClassName: "waypost", listeners: [{ name: "https", port: 443, protocol: "HTTPS", tls: { certificateRefs: [{ name: "missing" }] } }] } });
    const route = (name, spec) => this.ask("POST", at("httproutes"), { metadata: { name }, spec: { parentRefs: [{ name: "public" }], ...spec } });
    const to = (name, weight = 1) => ({ name, port: 80, weight });
    const path = (value, type = "PathPrefix") => [{ path: { type, value } }];
    await route("shop", { hostnames: ["www.shop.example.com"], rules: [
      { matches: path("/"), backendRefs: [to("web", 9), to("cart", 1)], timeouts: { request: "10s" } },
      { matches: path("/checkout", "Exact"), backendRefs: [to("checkout")] },
      { matches: path("/old"), filters: [{ type: "RequestRedirect", requestRedirect: { hostname: "archive.example.com", statusCode: 301 } }] },
    ] });
    await route("mail", { hostnames: ["mail.example.com"], rules: [{ backendRefs: [to("mail")] }] });
    await route("vault", { rules: [{ matches: path("/vault"), backendRefs: [{ ...to("vault"), namespace: "kube-system" }] }] });
    await route("typo", { parentRefs: [{ name: "pubilc" }], rules: [{ backendRefs: [to("web")] }] });
    await this.ask("POST", "/apis/networking.k8s.io/v1/namespaces/default/ingresses", { metadata: { name: "blog" }, spec: { ingressClassName: "waypost", rules: [{ host: "blog.example.com", http: { paths: [{ path: "/", pathType: "Prefix", backend: { service: { name: "web", port: { number: 80 } } } }] } }] } });
    await this.ask("POST", "/apis/waypost.dev/v1/namespaces/default/trafficpolicies", { metadata: { name: "patience" }, spec: { targetRefs: [{ group: "gateway.networking.k8s.io", kind: "HTTPRoute", name: "shop" }], timeouts: { read: "30s" } } });
    for (let n = 0; n < routes; n += 1) await route(`route-${String(n).padStart(4, "0")}`, { hostnames: [`h${n}.example.com`], rules: [{ matches: path(`/path/${n}`), backendRefs: [to(n % 3 ? "web" : "none")] }] });
  }
}

/** Answers, in the page, for nodes on which nobody runs, as the contract of reports has it. `web-outside` does not answer on one of them. */
export const ANSWER_FOR_NODES = `
  const real = window.fetch;
  const fine = (text) => ({ verdict: "proved", text, next: "" });
  const refused = { verdict: "failed", text: "connection failed: 10.244.0.14:8080 (Pod web-7c9f-4): refused; its containers declare http (8081/TCP), which accepts connections", next: "kubectl patch service web-outside -n default --type=json -p '[{\\"op\\":\\"replace\\",\\"path\\":\\"/spec/ports/0/targetPort\\",\\"value\\":\\"http\\"}]'" };
  window.fetch = (path, options) => {
    const found = /nodes\\/(n\\d)\\/proxy\\/waypost\\/(report|rules)\\?service=([^&]*)/.exec(path);
    if (!found) return real(path, options);
    const [node, what, service] = [found[1], found[2], decodeURIComponent(found[3])];
    if (what === "rules") return Promise.resolve(new Response("# " + service + " on " + node + "\\nelement ip waypost frontends { 10.96.0.9 . tcp . 80 : goto service-random }\\n"));
    const backends = [11, 12, 13].map((at) => ({ address: "10.244.0." + at + ":8080", local: node === "n1", planned: true, connections: 7 * at, bytes: 9000 * at }));
    const port = { name: "", protocol: "TCP", port: 80, frontends: ["10.96.0.9:80"], backends };
    const name = service.split("/")[1] + ".default.svc.cluster.local.";
    const answers = service === "default/web-outside" && node === "n2" ? refused : fine("10.96.0.9:80 connects; 8 endpoints connect; 4 more were not measured");
    return Promise.resolve(Response.json({
      node, mode: "nftables", synced: true, syncedAt: null, services: { [service]: { programmed: true, why: "", ports: [port] } },
      tried: { name: fine(name + " is 10.96.0.9; a Pod of namespace default can use " + service.split("/")[1]), reachable: answers },
    }));
  };
`;

export class Browser {
  async start() {
    this.profile = mkdtempSync(join(tmpdir(), "waypost-browser-"));
    this.driver = spawn("chromedriver", ["--port=0"], { stdio: ["ignore", "pipe", "ignore"] });
    this.port = await first(this.driver.stdout, (line) => /started successfully on port (\d+)/.exec(line)?.[1]);
    this.driver.stdout.resume();
    const args = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", `--user-data-dir=${this.profile}`];
    const made = await this.ask("POST", "/session", { capabilities: { alwaysMatch: { browserName: "chrome", acceptInsecureCerts: true, "goog:chromeOptions": { args }, timeouts: { script: 60_000 } } } });
    this.session = `/session/${made.sessionId}`;
  }

  async end() {
    await this.ask("DELETE", this.session).catch(() => undefined);
    this.driver.kill();
    rmSync(this.profile, { recursive: true, force: true, maxRetries: 5 });
  }

  async ask(method, path, body) {
    const answer = await fetch(`http://127.0.0.1:${this.port}${path}`, { method, ...(method === "POST" ? { body: JSON.stringify(body ?? {}) } : {}) });
    const { value } = await answer.json();
    if (!answer.ok) throw new Error(`${method} ${path}: ${value.message}`);
    return value;
  }

  open(url) {
    return this.ask("POST", `${this.session}/url`, { url });
  }

  cdp(cmd, params) {
    return this.ask("POST", `${this.session}/goog/cdp/execute`, { cmd, params });
  }

  async look({ width, height, theme }) {
    await this.cdp("Emulation.setDeviceMetricsOverride", { width, height, deviceScaleFactor: 1, mobile: width < 600 });
    await this.cdp("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value: theme }] });
  }

  eval(script, ...args) {
    return this.ask("POST", `${this.session}/execute/sync`, { script, args });
  }

  evalAsync(script, ...args) {
    return this.ask("POST", `${this.session}/execute/async`, { script, args });
  }

  async until(expression) {
    const found = await this.evalAsync(`const done = arguments[0]; const begun = Date.now(); const look = () => { let now = false; try { now = ${expression}; } catch {} if (now) done(true); else if (Date.now() - begun > 20000) done(false); else setTimeout(look, 20); }; look();`);
    if (!found) throw new Error(`this did not become true: ${expression}`);
  }

  shot() {
    return this.ask("GET", `${this.session}/screenshot`);
  }
}
