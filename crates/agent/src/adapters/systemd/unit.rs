//! A unit as `systemctl show` and its files tell of it, read as a Pod: pure functions.
//!
//! ```ini
//! [X-Waypost]
//! Port=3000            the only one that must be there; 3000/udp for other protocols
//! PortName=http        [default: http when its health is a page, else the protocol]
//! Labels=app=web,tier=front          [default: app=NAME]
//! Namespace=shop       [default: default]
//! Name=web             [default: that of the unit]
//! Health=http:/healthz [default: tcp]
//! Period=2             seconds between two questions
//! ```

use std::collections::BTreeMap;
use std::path::PathBuf;

use api::adopted::{Draft, Port, SYSTEMD, pod_labels, pod_name, probe};
use api::names;

use super::super::Found;
use super::super::standing::{Life, Standing};

const SECTION: &str = "[X-Waypost]";
/// Seconds between two questions.
const PERIOD: u64 = 2;

/// What `systemctl show` says of a unit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Shown {
    pub(super) id: String,
    active: String,
    result: String,
    code: i32,
    invocation: String,
    /// Its files: its own, then those that change it.
    pub(super) files: Vec<PathBuf>,
}

/// Reads what `systemctl show` prints: lines `Name=value`, an empty line between two units.
pub(super) fn shown(text: &str) -> Vec<Shown> {
    let mut out = Vec::new();
    for block in text.split("\n\n") {
        let mut unit = Shown::default();
        let mut changes = Vec::new();
        for (key, value) in block.lines().filter_map(|line| line.split_once('=')) {
            match key {
                "Id" => value.clone_into(&mut unit.id),
                "ActiveState" => value.clone_into(&mut unit.active),
                "Result" => value.clone_into(&mut unit.result),
                "ExecMainStatus" => unit.code = value.parse().unwrap_or(0),
                "InvocationID" => value.clone_into(&mut unit.invocation),
                "FragmentPath" if !value.is_empty() => unit.files.push(value.into()),
                "DropInPaths" => changes.extend(value.split_ascii_whitespace().map(PathBuf::from)),
                _ => {}
            }
        }
        unit.files.append(&mut changes);
        if !unit.id.is_empty() {
            out.push(unit);
        }
    }
    out
}

/// The settings of our section. What is said later counts.
fn section(files: &[String]) -> BTreeMap<&str, &str> {
    let mut out = BTreeMap::new();
    for file in files {
        let mut ours = false;
        for line in file.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';'])) {
            if line.starts_with('[') {
                ours = line == SECTION;
            } else if let Some((key, value)) = line.split_once('=').filter(|_| ours) {
                out.insert(key.trim(), value.trim());
            }
        }
    }
    out
}

/// Reads a unit; nothing when it has no section of ours, or does not run.
///
/// # Errors
/// What is wrong with its section.
pub(super) fn read(unit: &Shown, files: &[String]) -> Result<Option<Found>, String> {
    let settings = section(files);
    let setting = |key: &str| settings.get(key).copied().filter(|value| !value.is_empty());
    let Some(port) = setting("Port") else { return Ok(None) };
    let life = match unit.active.as_str() {
        "active" | "reloading" => Life::Running(None),
        "activating" | "deactivating" => Life::Waiting,
        "failed" => Life::Failed(unit.code, unit.result.clone()),
        _ => return Ok(None),
    };
    let (number, protocol) = port.split_once('/').unwrap_or((port, "tcp"));
    let protocol = protocol.to_ascii_uppercase();
    let number = number.parse().ok().filter(|number: &u16| *number > 0);
    let number = number.ok_or_else(|| format!("Port={port} is not a port: say a number, such as 3000 or 53/udp"))?;
    if !["TCP", "UDP", "SCTP"].contains(&protocol.as_str()) {
        return Err(format!("Port={port}: the protocol is tcp, udp or sctp"));
    }
    let health = setting("Health").unwrap_or_default();
    let usual = if health.starts_with("http") { "http".to_owned() } else { protocol.to_lowercase() };
    let port = Port { name: setting("PortName").map_or(usual, str::to_owned), number, protocol };
    if let Some(wrong) = names::port_name(&port.name).first() {
        return Err(format!("PortName={}: {wrong}", port.name));
    }
    let period = setting("Period").map_or(Ok(PERIOD), |text| text.trim_end_matches('s').parse());
    let period = period.map_err(|_| "Period is a number of seconds".to_owned())?;
    let probe = probe(health, &port, period).map_err(|why| format!("Health={why}"))?;
    let stem = unit.id.strip_suffix(".service").unwrap_or(&unit.id);
    let name = pod_name(setting("Name").unwrap_or(stem)).ok_or("its name cannot be that of a Pod: say Name=")?;
    let labels = match setting("Labels") {
        None => [("app".to_owned(), name.clone())].into(),
        Some(text) => {
            let pairs: Vec<(&str, &str)> = text.split(',').filter_map(|pair| pair.trim().split_once('=')).collect();
            let labels = pod_labels(pairs.iter().copied());
            if pairs.len() != labels.len() || pairs.len() != text.split(',').count() {
                return Err(format!("Labels={text}: say them as app=web,tier=front"));
            }
            labels
        }
    };
    let draft = Draft {
        how: SYSTEMD,
        source: unit.id.clone(),
        namespace: setting("Namespace").unwrap_or("default").to_owned(),
        name,
        labels,
        image: SYSTEMD.to_owned(),
        host_network: true,
        ports: vec![port],
        probe,
    };
    let standing = Standing { life, addresses: Vec::new(), healthy: None, id: unit.invocation.clone() };
    Ok(Some(Found { draft, standing }))
}

#[cfg(test)]
mod tests {
    use api::value::ValueExt as _;

    use super::*;

    const SHOWN: &str = "Id=web.service\nActiveState=active\nResult=success\nExecMainStatus=0\nInvocationID=abc\n\
        FragmentPath=/etc/systemd/system/web.service\nDropInPaths=/etc/a.conf /etc/b.conf\n\n\
        Id=old.service\nActiveState=failed\nResult=exit-code\nExecMainStatus=3\nInvocationID=\nFragmentPath=\nDropInPaths=\n";
    const UNIT: &str = "[Service]\nExecStart=/bin/x\nPort=1\n\n[X-Waypost]\n# words\nPort = 3000\nHealth=http:/up\nLabels=app=shop, tier=front\n\
        Namespace=prod\n[Install]\nWantedBy=multi-user.target\n";

    fn unit(active: &str) -> Shown {
        Shown { id: "my@web.service".to_owned(), active: active.to_owned(), code: 3, ..Shown::default() }
    }

    #[test]
    fn what_is_shown_is_read() {
        let all = shown(SHOWN);
        assert_eq!(all.len(), 2);
        let files = ["/etc/systemd/system/web.service", "/etc/a.conf", "/etc/b.conf"].map(PathBuf::from);
        assert_eq!(
            (all[0].id.as_str(), all[0].active.as_str(), &all[0].files[..]),
            ("web.service", "active", &files[..])
        );
        assert_eq!((all[1].code, all[1].files.len()), (3, 0));
    }

    #[test]
    fn a_unit_with_a_port_is_a_pod() {
        let found =
            read(&unit("active"), &[UNIT.to_owned(), "[X-Waypost]\nNamespace=test\n".to_owned()]).unwrap().unwrap();
        let draft = &found.draft;
        assert_eq!((draft.namespace.as_str(), draft.name.as_str()), ("test", "my-web"), "what changes it counts");
        assert_eq!(draft.ports, [Port { name: "http".to_owned(), number: 3000, protocol: "TCP".to_owned() }]);
        assert_eq!(draft.labels.get("tier").map(String::as_str), Some("front"));
        assert_eq!((draft.probe.text("httpGet.path"), draft.probe.int("periodSeconds")), ("/up", 2));
        assert_eq!(found.standing.life, Life::Running(None));
    }

    #[test]
    fn a_unit_lives_as_systemd_says() {
        let life = |active| read(&unit(active), &[UNIT.to_owned()]).unwrap().map(|found| found.standing.life);
        assert_eq!(life("failed"), Some(Life::Failed(3, String::new())));
        assert_eq!((life("activating"), life("inactive")), (Some(Life::Waiting), None));
    }

    #[test]
    fn a_unit_without_a_section_is_none_of_our_business_and_a_wrong_one_is_said() {
        assert_eq!(read(&unit("active"), &["[Service]\nPort=3000\n".to_owned()]), Ok(None));
        for (line, part) in [
            ("Port=http", "is not a port"),
            ("Port=1/icmp", "the protocol is"),
            ("Port=1\nHealth=ping", "is not understood"),
            ("Port=1\nLabels=app", "say them as"),
            ("Port=1\nPortName=UP", "alpha-numeric"),
        ] {
            let why = read(&unit("active"), &[format!("[X-Waypost]\n{line}\n")]).unwrap_err();
            assert!(why.contains(part), "{line}: {why}");
        }
    }
}
