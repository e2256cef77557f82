//! The same against FRR: another reading of the RFCs. Its `bgpd` runs alone, without the part that writes to the kernel.

use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;
use testbed::net::{Outside, Process, eventually};

use super::scene::{SECRETS, Scene, V4, V6};

/// Where Debian has it.
const BGPD: &str = "/usr/lib/frr/bgpd";

struct Frr<'a> {
    // It ends before its directory is removed.
    _bgpd: Process,
    host: &'a Outside,
    home: TempDir,
}

impl<'a> Frr<'a> {
    fn start(scene: &'a Scene) -> Self {
        let (host, home) = (&scene.router.host, testbed::folder());
        let configuration = format!(
            "log stdout\nrouter bgp 64513\n bgp router-id {}\n no bgp ebgp-requires-policy\n bgp graceful-restart\n \
             neighbor {peer} remote-as 64512\n neighbor {peer} passive\n neighbor {peer} password sesame\n \
             address-family ipv6 unicast\n  neighbor {peer} activate\n exit-address-family\n",
            host.v4(),
            peer = scene.nodes[0].v4()
        );
        let path = home.path();
        std::fs::write(path.join("bgpd.conf"), configuration).expect("a file");
        assert!(std::path::Path::new(BGPD).exists(), "{BGPD} is needed for this test (Debian package frr)");
        let mut command = Command::new(BGPD);
        command.arg("-f").arg(path.join("bgpd.conf")).arg("-i").arg(path.join("bgpd.pid"));
        command.arg("--vty_socket").arg(path).args(["-P", "0", "-Z", "-n", "-S", "-l", &host.v4().to_string()]);
        Self { _bgpd: host.spawn(command), host, home }
    }

    /// The output of `vtysh`; none while it does not respond.
    fn show(&self, what: &str) -> Option<Value> {
        let mut command = Command::new("vtysh");
        command.arg("--vty_socket").arg(self.home.path()).args(["-d", "bgpd", "-c", &format!("show bgp {what} json")]);
        serde_json::from_str(&self.host.run(command).out).ok()
    }

    /// The only route to an address.
    fn route(&self, address: &str) -> Option<Value> {
        let what = if address.contains(':') { "ipv6 unicast" } else { "ipv4 unicast" };
        let length = if address.contains(':') { 128 } else { 32 };
        self.show(&format!("{what} {address}/{length}"))?["paths"].get(0).cloned()
    }
}

#[test]
fn frr_hears_of_routes_keeps_them_through_a_restart_and_forgets_them() {
    let scene = Scene::new(&["n1"]);
    let frr = Frr::start(&scene);
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "rack"}, "stringData": {"password": "sesame"}});
    scene.make(SECRETS, &secret);
    scene.peer(&json!({"password": {"secretRef": {"namespace": "kube-system", "name": "rack"}}}));
    scene.web(|web| web, &[]);
    let node = &scene.nodes[0];
    for (address, hop) in [(V4, node.v4().to_string()), (V6, node.v6().to_string())] {
        eventually("FRR has the route", || frr.route(address).is_some());
        let route = frr.route(address).expect("a route");
        assert_eq!(route["aspath"]["string"], "64512", "{route}");
        assert_eq!(route["nexthops"][0]["ip"], json!(hop), "{route}");
        assert!(route["community"]["string"].as_str().is_some_and(|text| text.contains("64512:100")), "{route}");
    }

    scene.served.kill_proxy(node);
    let stale = || frr.route(V4).is_some_and(|route| route["stale"] == true);
    eventually("FRR keeps it as a stale one", stale);
    scene.serve(node);
    eventually("it is fresh again", || frr.route(V4).is_some_and(|route| route["stale"] != true));

    scene.served.remove(&testbed::net::objects::service("web").json());
    for address in [V4, V6] {
        eventually("it is gone", || frr.route(address).is_none());
    }
}
