//! The page shows the state of the cluster live: the list, the checks of a Service, the maps, the Events; in light and in dark.

use serde_json::json;
use testbed::session::SERVICES;

use super::{PODS, expose, row_is, run_pod, server, set_ready, visitor};

#[test]
fn the_list_shows_services_and_their_changes_without_a_reload() {
    let server = server();
    let mut session = server.session();
    run_pod(&mut session, "web-1", "web", "10.244.0.11", true);
    expose(&mut session, "web", "web");
    let browser = visitor(&server);
    browser.until(&row_is("web", "ready"));
    browser.run("window.mark = 'the same page'");
    let dots = "document.querySelectorAll('[data-key=\"default/web\"] .dot-ready').length";
    assert_eq!(browser.eval(&format!("return {dots}")), 1);

    run_pod(&mut session, "web-2", "web", "10.244.0.12", true);
    browser.until(&format!("{dots} === 2"));
    set_ready(&mut session, "web-2", "10.244.0.12", false);
    browser.until(&row_is("web", "partly"));
    set_ready(&mut session, "web-1", "10.244.0.11", false);
    browser.until(&row_is("web", "failing"));
    browser.until("document.querySelector('#voice').innerText.includes('default/web')");
    expose(&mut session, "late", "web");
    browser.until(&row_is("late", "failing"));
    assert_eq!(session.delete(&format!("{SERVICES}/web")).code, 200);
    browser.until("document.querySelector('[data-key=\"default/web\"]') === null");
    assert_eq!(browser.eval("return window.mark"), "the same page");
    assert_eq!(browser.complaints(), [""; 0]);
}

#[test]
fn b13_a_service_view_shows_the_finding_of_the_server_and_its_command() {
    let server = server();
    let mut session = server.session();
    run_pod(&mut session, "shop-1", "shop", "10.244.0.21", true);
    expose(&mut session, "web", "shopp");
    let browser = visitor(&server);
    let stage =
        |id: &str, status: &str| format!("document.querySelector('[data-stage={id}]')?.dataset.status === '{status}'");
    browser.open(&format!("https://{}/page/#/service/default/web", server.address));
    browser.until(&stage("selector", "failed"));
    for (id, status) in
        [("address", "ok"), ("programmed", "unmeasured"), ("name", "unmeasured"), ("reachable", "unmeasured")]
    {
        assert_eq!(browser.eval(&format!("return {}", stage(id, status))), true, "{id}: {}", browser.text("main"));
    }
    browser.until("document.querySelector('#verdict').innerText.includes('app=shop')");
    let command = "kubectl set selector service web -n default app=shop";
    assert!(browser.text("#verdict").contains("NoPodMatches"), "{}", browser.text("#verdict"));
    assert!(browser.text("#verdict").contains(command), "{}", browser.text("#verdict"));

    // The command repairs the Service, and the page shows that.
    let _ = server.kubectl(command.strip_prefix("kubectl ").expect("a command")).success();
    browser.until(&stage("selector", "ok"));
    browser.until(&stage("endpoints", "ok"));
    browser.until("document.querySelector('#verdict') === null");
    assert!(browser.text("main").contains("10.244.0.21"), "the endpoint is in the table");
    set_ready(&mut session, "shop-1", "10.244.0.21", false);
    browser.until(&stage("endpoints", "failed"));
    browser.until("document.querySelector('table').innerText.includes('as the test says')");
    assert_eq!(session.delete(&format!("{PODS}/shop-1?gracePeriodSeconds=0")).code, 200);
    browser.until(&stage("selector", "failed"));
    assert_eq!(browser.complaints(), [""; 0]);
}

#[test]
fn reports_of_nodes_are_shown_and_missing_ones_are_not_measured() {
    let server = server();
    let mut session = server.session();
    run_pod(&mut session, "web-1", "web", "10.244.0.51", true);
    expose(&mut session, "web", "web");
    let address = json!({"status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.1"}]}});
    let _ = session.merge("/api/v1/nodes/n1/status", &address).success();
    let browser = visitor(&server);
    // No agent runs on that Node: the test responds for it, as the contract of reports specifies.
    let backend = json!({"address": "10.244.0.51:8080", "local": true, "connections": 4321, "bytes": null});
    let port = json!({"name": "", "protocol": "TCP", "port": 80, "frontends": ["10.96.0.9:80"], "backends": [backend]});
    let report = json!({
        "node": "n1", "mode": "nftables", "synced": true, "syncedAt": null,
        "services": {"default/web": {"programmed": true, "why": "", "ports": [port]}},
    });
    browser.run(&format!(
        "window.report = {report}; const real = window.fetch; window.fetch = (path, options) => {{ \
           if (path.includes('/nodes/n1/proxy/waypost/report')) return Promise.resolve(Response.json(window.report)); \
           if (path.includes('/nodes/n1/proxy/waypost/rules')) return Promise.resolve(new Response('a rule of ' + path)); \
           return real(path, options); }}"
    ));
    browser.open(&format!("https://{}/page/#/service/default/web", server.address));
    browser.until("document.querySelector('[data-stage=programmed]')?.dataset.status === 'ok'");
    assert!(browser.text("[data-stage=programmed]").contains("1 of 1 node"), "{}", browser.text("main"));
    browser.until("document.querySelector('main').innerText.includes('4,321')");
    assert!(browser.text("main").contains("not measured"), "bytes that nobody counted are not zero");
    browser.click("[aria-expanded=false]");
    browser.until("document.querySelector('pre')?.innerText.includes('a rule of')");
    assert!(browser.text("pre").contains("service=default%2Fweb"), "{}", browser.text("pre"));

    browser.run("window.report.services['default/web'] = {programmed: false, why: 'an element is missing', ports: []}");
    browser.until("document.querySelector('#verdict')?.innerText.includes('an element is missing')");
    assert!(browser.text("#verdict").contains("waypost doctor web -n default"), "{}", browser.text("#verdict"));
    browser.run("delete window.report.mode");
    browser.until("document.querySelector('[data-stage=programmed]').dataset.status === 'unmeasured'");
}

#[test]
fn maps_show_who_owns_an_address_a_port_and_a_pool() {
    let server = server();
    let mut session = server.session();
    run_pod(&mut session, "web-1", "web", "10.244.0.31", true);
    let spec = json!({"type": "NodePort", "clusterIP": "10.96.0.77", "selector": {"app": "web"}, "ports": [{"port": 80, "nodePort": 30_077}]});
    session.create("web", spec);
    let browser = visitor(&server);
    browser.open(&format!("https://{}/page/#/maps", server.address));
    let cell = |label: &str| {
        format!("[...document.querySelectorAll('.square')].find((one) => one.ariaLabel.includes('{label}'))")
    };
    browser.until(&format!("{} && true", cell("10.244.0.31: Pod default/web-1")));
    browser.until(&format!("{} && true", cell("30064 to 30079: 1 of 16 taken: default/web")));
    browser.until(&format!("({}).click() ?? true", cell("10.96.0.0 to 10.96.0.255")));
    browser.until(&format!("({}).click() ?? true", cell("10.96.0.77: default/web")));
    browser.until("location.hash === '#/service/default/web'");
    assert_eq!(browser.complaints(), [""; 0]);
}

#[test]
fn events_come_as_they_happen() {
    let server = server();
    let mut session = server.session();
    expose(&mut session, "web", "web");
    let browser = visitor(&server);
    browser.open(&format!("https://{}/page/#/events", server.address));
    let event = json!({
        "metadata": {"name": "web.1"}, "type": "Warning", "reason": "Tested", "message": "a word <b>from</b> a test",
        "involvedObject": {"kind": "Service", "namespace": "default", "name": "web"},
        "lastTimestamp": "2026-01-01T00:00:00Z", "source": {"component": "test"},
    });
    let _ = session.post("/api/v1/namespaces/default/events", &event).success();
    browser.until("document.querySelector('.events-table')?.innerText.includes('a word <b>from</b> a test')");
    assert!(browser.text(".events-table").contains("warning"), "not by colour alone");
    browser.until("document.querySelector('.events-table a')?.click() ?? true");
    browser.until("document.querySelector('main')?.innerText.includes('Tested')");
}

#[test]
fn light_and_dark_differ_and_can_be_chosen() {
    let server = server();
    let browser = visitor(&server);
    let ground = || {
        browser.eval("return getComputedStyle(document.body).backgroundColor").as_str().unwrap_or_default().to_owned()
    };
    browser.prefer("light");
    let light = ground();
    browser.prefer("dark");
    let dark = ground();
    assert_ne!(light, dark);
    browser.click("#theme");
    browser.until("document.documentElement.dataset.theme === 'light'");
    assert_eq!(ground(), light, "what was chosen wins over what the system prefers");
    browser.click("#theme");
    browser.until("document.documentElement.dataset.theme === 'dark'");
    browser.prefer("light");
    assert_eq!(ground(), dark);
    browser.reload();
    browser.until("document.querySelector('#pulse')?.dataset.state === 'live'");
    assert_eq!(ground(), dark, "it is remembered");
}
