// Looks at every view with axe-core, in both themes and at two widths, and keeps pictures of them in `shots/`.
// Fails when there is a violation. Needs a built binary ($WAYPOST_BIN or target/debug/waypost), chromium and chromedriver.
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join, resolve } from "node:path";
import { ANSWER_FOR_NODES, Browser, Server } from "./stage.mjs";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const shots = resolve(import.meta.dirname, "../shots");
const SIZES = [{ width: 360, height: 760 }, { width: 1280, height: 860 }];
const LIVE = "document.querySelector('#pulse')?.dataset.state === 'live'";
const VIEWS = [
  ["overview", "#/", "document.querySelectorAll('.row').length > 5"],
  ["service-well", "#/service/default/web", "document.querySelector('[data-stage=reachable][data-status=ok]')"],
  ["service-refused", "#/service/default/web-outside", "document.querySelector('[data-stage=reachable][data-status=failed]')"],
  ["service-failing", "#/service/default/checkout", "document.querySelector('#verdict')"],
  ["gateways", "#/gateways", "document.querySelectorAll('.line-rule').length > 4"],
  ["gateway", "#/object/Gateway/default/public", "document.querySelector('.tree')"],
  ["route", "#/object/HTTPRoute/default/shop", "document.querySelector('.tree')"],
  ["route-failing", "#/object/HTTPRoute/default/vault", "document.querySelector('#verdict')"],
  ["service-routes", "#/service/default/cart", "document.querySelector('#routes')"],
  ["maps", "#/maps", "document.querySelectorAll('.square').length > 500"],
  ["events", "#/events", "document.querySelectorAll('.events-table .virtual [role=row]').length > 1"],
];

const [server, browser] = [new Server(), new Browser()];
let violations = 0;

async function check(name) {
  for (const size of SIZES) {
    for (const theme of ["light", "dark"]) {
      await browser.look({ ...size, theme });
      await browser.evalAsync("const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(() => done(true)));");
      const place = `${name}-${size.width}-${theme}`;
      writeFileSync(join(shots, `${place}.png`), Buffer.from(await browser.shot(), "base64"));
      await browser.eval(`${axe}; return true;`);
      const found = await browser.evalAsync("axe.run(document, { resultTypes: ['violations'] }).then((all) => arguments[0](all.violations), (error) => arguments[0]([{ id: String(error), nodes: [] }]));");
      for (const { id, help, nodes } of found) {
        violations += 1;
        console.error(`${place}: ${id}: ${help ?? ""}`);
        for (const node of nodes.slice(0, 3)) console.error(`    ${node.html.slice(0, 160)}\n    ${node.failureSummary.replaceAll("\n", " ")}`);
      }
      const wide = await browser.eval("return document.documentElement.scrollWidth - document.documentElement.clientWidth");
      if (wide > 0) {
        violations += 1;
        console.error(`${place}: ${wide} pixels wider than the window`);
      }
      if (found.length === 0) console.log(`${place}: no violations`);
    }
  }
}

try {
  mkdirSync(shots, { recursive: true });
  await server.start();
  await server.furnish(Number(process.argv[2] ?? 0));
  await browser.start();
  await browser.open(`https://${server.address}/page/`);
  await browser.until("document.querySelector('main.login code')");
  await check("login");
  await browser.open(await server.link());
  await browser.until(LIVE);
  await browser.eval(ANSWER_FOR_NODES);
  for (const [name, hash, ready] of VIEWS) {
    await browser.open(`https://${server.address}/page/${hash}`);
    await browser.until(`${LIVE} && ${ready}`);
    await check(name);
  }
  server.end();
  await browser.open(`https://${server.address}/page/#/`).catch(() => undefined);
  await browser.until("document.querySelector('#lost')");
  await check("lost");
  await server.start(server.address);
  await browser.until("document.querySelector('main.login [role=alert]')");
  await check("ended");
} finally {
  await browser.end();
  server.remove();
}
console.log(violations === 0 ? "no violations" : `${violations} violations`);
process.exit(violations === 0 ? 0 : 1);
