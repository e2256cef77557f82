//! The systemd units: systemd accepts them, and their exposure score is the one in docs/security.md.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

fn packaging() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging")
}

/// A directory with this unit, alone or with the drop-in for machines without Pods, whose program is there.
fn unit(name: &str, without_pods: bool) -> TempDir {
    let folder = testbed::folder();
    let text = std::fs::read_to_string(packaging().join(name)).expect("a unit");
    let program = testbed::binary();
    let text = text.replace("/usr/bin/waypost", program.to_str().expect("a name"));
    let text: String =
        text.lines().filter(|line| !line.starts_with("Documentation=")).map(|line| format!("{line}\n")).collect();
    std::fs::write(folder.path().join(name), text).expect("written");
    if without_pods {
        let drop_ins = folder.path().join(format!("{name}.d"));
        std::fs::create_dir(&drop_ins).expect("a directory");
        std::fs::copy(packaging().join("without-pods.conf"), drop_ins.join("without-pods.conf")).expect("copied");
    }
    folder
}

fn analyze(folder: &TempDir, words: &[&str], name: &str) -> testbed::Run {
    let mut command = Command::new("systemd-analyze");
    // Its own units for what ours refer to, such as network-online.target.
    let path = format!("{}:/usr/lib/systemd/system:/lib/systemd/system", folder.path().display());
    command.args(words).arg(folder.path().join(name)).env("SYSTEMD_UNIT_PATH", path).env("LANG", "C.UTF-8");
    testbed::run(&mut command, "")
}

/// The unit, whether with the drop-in, and the most that systemd may find it exposed, in tenths.
const UNITS: [(&str, bool, u32); 5] = [
    ("waypost-server.service", false, 11),
    ("waypost.service", true, 39),
    ("waypost-node.service", true, 39),
    ("waypost.service", false, 95),
    ("waypost-node.service", false, 95),
];

#[test]
fn b03_systemd_understands_the_units() {
    for (name, without_pods, _) in UNITS {
        let run = analyze(&unit(name, without_pods), &["verify", "--man=no"], name);
        let about_us: Vec<&str> = run.err.lines().filter(|line| line.contains("waypost")).collect();
        assert!(about_us.is_empty(), "{name}: {about_us:?}");
        assert!(run.ok, "{name}: {}", run.err);
    }
}

#[test]
fn b03_units_are_no_more_exposed_than_the_documents_say() {
    let documents = std::fs::read_to_string(packaging().join("../docs/security.md")).expect("a document");
    for (name, without_pods, limit) in UNITS {
        let run = analyze(&unit(name, without_pods), &["security", "--offline=true"], name);
        let said = run.success();
        let last = said.lines().last().expect("a result");
        let level = last.rsplit(": ").next().and_then(|rest| rest.split(' ').next()).expect("a level");
        let (whole, tenths) = level.split_once('.').expect("a decimal");
        let level: u32 = whole.parse::<u32>().expect("a number") * 10 + tenths.parse::<u32>().expect("a number");
        assert!(level <= limit, "{last}");
        let shown = format!("{}.{}", limit / 10, limit % 10);
        let how = if without_pods { " with `without-pods.conf`" } else { "" };
        let line = format!("| `{name}`{how} | {shown} |");
        assert!(documents.contains(&line), "docs/security.md lacks {line}");
    }
}

#[test]
fn b03_the_capabilities_of_the_drop_in_are_enough() {
    let text = std::fs::read_to_string(packaging().join("without-pods.conf")).expect("the drop-in");
    let sets = text.lines().filter_map(|line| line.strip_prefix("CapabilityBoundingSet="));
    let names: Vec<String> = sets
        .flat_map(str::split_whitespace)
        .map(|name| format!("+{}", name.replace("CAP_", "").to_lowercase()))
        .collect();
    assert!(names.len() > 3, "{names:?}");
    let bounding = format!("-all,{}", names.join(","));
    let cluster = testbed::net::Cluster::new();
    let node = cluster.node("n1");
    let home = testbed::folder();
    let up = || {
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set", &bounding, "--no-new-privs"]).arg(testbed::binary());
        command.args(["up", "--node-name", "n1", "--workloads=false", "--data-dir"]).arg(home.path().join("data"));
        node.spawn(command)
    };
    // The second start finds what the first has given away.
    for _ in 0..2 {
        let mut process = up();
        process.wait_for_line(" ready ", super::TIMEOUT);
        let children = format!("/proc/{0}/task/{0}/children", process.pid());
        let server = std::fs::read_to_string(children).expect("children").trim().parse().expect("one process");
        super::assert_powerless(server);
        assert!(node.ruleset().contains("waypost"), "rules are written");
        assert!(process.terminate().success(), "{}", process.log());
    }
}
