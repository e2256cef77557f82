//! Units of systemd. There is no systemd on the machines of these tests: a program that answers as `systemctl show` does stands for it, from
//! files that say how each unit is. What the units run is real.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::json;
use tempfile::TempDir;
use testbed::net::Protocol::Tcp;
use testbed::net::{Cluster, eventually};

use super::machine::{Machine, is_ready};

/// Prints the requested properties, of the units that were named or of all, with an empty line between two, as systemctl does.
const SYSTEMCTL: &str = r#"#!/bin/sh
[ "$1" = show ] && [ "$3" = -- ] || { echo "Unknown command verb $1." >&2; exit 1; }
wanted=$(echo "${2#--property=}" | tr , '|')
shift 3
cd "$(dirname "$0")/units" || exit 1
first=yes
for unit in $(if [ "$1" = '*.service' ]; then ls; else echo "$@"; fi); do
    [ $first = yes ] || echo
    first=no
    grep -E "^($wanted)=" "$unit"
done
"#;

/// The stand-in.
struct Systemd(TempDir);

impl Systemd {
    fn new() -> Self {
        let folder = testbed::folder();
        std::fs::create_dir(folder.path().join("units")).expect("made");
        let program = folder.path().join("systemctl");
        std::fs::write(&program, SYSTEMCTL).expect("written");
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("runnable");
        Self(folder)
    }

    fn program(&self) -> PathBuf {
        self.0.path().join("systemctl")
    }

    /// Sets the state of a unit; the file is replaced atomically.
    fn set(&self, unit: &str, active: &str, code: i32, file: &Path) {
        let text = format!(
            "Type=simple\nId={unit}\nActiveState={active}\nResult={}\nExecMainStatus={code}\nInvocationID=0123456789abcdef\n\
             FragmentPath={}\nDropInPaths=\nSubState=x\n",
            if code == 0 { "success" } else { "exit-code" },
            file.display()
        );
        let draft = self.0.path().join("draft");
        std::fs::write(&draft, text).expect("written");
        std::fs::rename(draft, self.0.path().join("units").join(unit)).expect("moved");
    }

    fn file(&self, unit: &str, section: &str) -> PathBuf {
        let path = self.0.path().join(unit);
        std::fs::write(&path, format!("[Unit]\nDescription=A test\n[Service]\nExecStart=/bin/x\n{section}"))
            .expect("written");
        path
    }
}

#[test]
fn a_unit_with_a_port_is_an_endpoint_while_it_is_active_and_well() {
    let systemd = Systemd::new();
    let web = systemd.file("web.service", "[X-Waypost]\nPort=3000\nPortName=front\nLabels=app=shop\nPeriod=1\n");
    let plain = systemd.file("plain.service", "");
    systemd.set("web.service", "active", 0, &web);
    systemd.set("plain.service", "active", 0, &plain);
    let program = systemd.program().display().to_string();
    let cluster = Cluster::new();
    cluster.node("n1").echo_on(&[Tcp], 3000);
    let mut machine = Machine::on(cluster, &["--systemd", "--systemctl", &program]);
    let address = machine.service("shop", &json!("front"));
    let pod = machine.until_ready("web", true);
    assert_eq!(pod["metadata"]["annotations"]["waypost.dev/adopted"], "systemd");
    assert_eq!(pod["metadata"]["annotations"]["waypost.dev/source"], "web.service");
    assert_eq!(pod["status"]["containerStatuses"][0]["containerID"], "systemd://0123456789abcdef");
    eventually("the Service leads to it", || machine.node.ask(Tcp, &address, 80).is_ok());
    let all = machine.api(|session| session.names("/api/v1/namespaces/default/pods"));
    assert_eq!(all, ["web"], "a unit that says nothing is none of our business");

    machine.node.silence(3000);
    machine.until_ready("web", false);
    machine.node.echo_on(&[Tcp], 3000);
    machine.until_ready("web", true);

    systemd.set("web.service", "failed", 3, &web);
    let failed = machine
        .until("web", "failed", |pod| pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3);
    assert!(!is_ready(&failed), "though its port still answers");
    systemd.set("web.service", "active", 0, &web);
    machine.until_ready("web", true);
    systemd.set("web.service", "inactive", 0, &web);
    machine.until_gone("web");
    eventually("the Service leads nowhere", || !machine.endpoints("shop").iter().any(|(_, ready)| *ready));

    // Only those that are named, when some are.
    systemd.set("web.service", "active", 0, &web);
    machine.until_ready("web", true);
    let other = systemd.file("other.service", "[X-Waypost]\nPort=3000\nPeriod=1\n");
    systemd.set("other.service", "active", 0, &other);
    machine.until_ready("other", true);
    machine.kill();
    machine.restart_with(&["--systemd=other.service", "--systemctl", &program]);
    machine.until_gone("web");
    machine.until_ready("other", true);
    machine.kill();
    machine.restart_with(&[]);
    machine.until_gone("other");
}
