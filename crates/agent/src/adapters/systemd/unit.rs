//! Maps the output of `systemctl show` and the files of a unit to a Pod. Pure.
//!
//! ```ini
//! [X-Waypost]
//! Port=3000            required; 3000/udp for other protocols
//! PortName=http        [default: http for an HTTP health check, else the protocol]
//! Labels=app=web,tier=front          [default: app=NAME]
//! Namespace=shop       [default: default]
//! Name=web             [default: the name of the unit]
//! Health=http:/healthz [default: tcp]
//! Period=2             seconds between two probes
//! ```

use std::collections::BTreeMap;
use std::path::PathBuf;

use api::adopted::{Draft, Port, SYSTEMD, pod_labels, pod_name, probe};
use api::names;

use super::super::Discovered;
use super::super::observed::{Observed, RunState};

const SECTION: &str = "[X-Waypost]";
/// The default probe period, in seconds.
const PERIOD: u64 = 2;

/// An invalid setting of the section.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum UnitError {
    #[error("Port={0} is not a port: use a number, such as 3000 or 53/udp")]
    Port(String),
    #[error("Port={0}: the protocol is tcp, udp or sctp")]
    Protocol(String),
    #[error("PortName={0}: {1}")]
    PortName(String, String),
    #[error("Period is a number of seconds")]
    Period,
    #[error("Health={0}")]
    Health(String),
    #[error("its name is not a valid Pod name: set Name=")]
    Name,
    #[error("Labels={0}: use the form app=web,tier=front")]
    Labels(String),
}

/// The properties of a unit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct UnitStatus {
    pub(super) id: String,
    active: String,
    result: String,
    code: i32,
    invocation: String,
    /// The unit file, then its drop-ins.
    pub(super) files: Vec<PathBuf>,
}

/// Parses the output of `systemctl show`: lines `Name=value`, units separated by an empty line.
pub(super) fn parse_show(text: &str) -> Vec<UnitStatus> {
    let mut out = Vec::new();
    for block in text.split("\n\n") {
        let mut unit = UnitStatus::default();
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

/// The settings of the section; later files override earlier ones.
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

/// Reads a unit; nothing when it has no section or is stopped.
///
/// # Errors
/// When a setting is invalid.
pub(super) fn read(unit: &UnitStatus, files: &[String]) -> Result<Option<Discovered>, UnitError> {
    let settings = section(files);
    let setting = |key: &str| settings.get(key).copied().filter(|value| !value.is_empty());
    let Some(port) = setting("Port") else { return Ok(None) };
    let state = match unit.active.as_str() {
        "active" | "reloading" => RunState::Running(None),
        "activating" | "deactivating" => RunState::Waiting,
        "failed" => RunState::Failed(unit.code, unit.result.clone()),
        _ => return Ok(None),
    };
    let (number, protocol) = port.split_once('/').unwrap_or((port, "tcp"));
    let protocol = protocol.to_ascii_uppercase();
    let number = number.parse().ok().filter(|number: &u16| *number > 0);
    let number = number.ok_or_else(|| UnitError::Port(port.to_owned()))?;
    if !["TCP", "UDP", "SCTP"].contains(&protocol.as_str()) {
        return Err(UnitError::Protocol(port.to_owned()));
    }
    let health = setting("Health").unwrap_or_default();
    let usual = if health.starts_with("http") { "http".to_owned() } else { protocol.to_lowercase() };
    let port = Port { name: setting("PortName").map_or(usual, str::to_owned), number, protocol };
    if let Some(wrong) = names::port_name(&port.name).first() {
        return Err(UnitError::PortName(port.name.clone(), wrong.clone()));
    }
    let period = setting("Period").map_or(Ok(PERIOD), |text| text.trim_end_matches('s').parse());
    let period = period.map_err(|_| UnitError::Period)?;
    let probe = probe(health, &port, period).map_err(UnitError::Health)?;
    let stem = unit.id.strip_suffix(".service").unwrap_or(&unit.id);
    let name = pod_name(setting("Name").unwrap_or(stem)).ok_or(UnitError::Name)?;
    let labels = match setting("Labels") {
        None => [("app".to_owned(), name.clone())].into(),
        Some(text) => {
            let pairs: Vec<(&str, &str)> = text.split(',').filter_map(|pair| pair.trim().split_once('=')).collect();
            let labels = pod_labels(pairs.iter().copied());
            if pairs.len() != labels.len() || pairs.len() != text.split(',').count() {
                return Err(UnitError::Labels(text.to_owned()));
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
    let observed = Observed { state, addresses: Vec::new(), healthy: None, id: unit.invocation.clone() };
    Ok(Some(Discovered { draft, observed }))
}

#[cfg(test)]
mod tests {
    use api::value::ValueExt as _;

    use super::*;

    const SHOW_OUTPUT: &str = "Id=web.service\nActiveState=active\nResult=success\nExecMainStatus=0\nInvocationID=abc\n\
        FragmentPath=/etc/systemd/system/web.service\nDropInPaths=/etc/a.conf /etc/b.conf\n\n\
        Id=old.service\nActiveState=failed\nResult=exit-code\nExecMainStatus=3\nInvocationID=\nFragmentPath=\nDropInPaths=\n";
    const UNIT: &str = "[Service]\nExecStart=/bin/x\nPort=1\n\n[X-Waypost]\n# words\nPort = 3000\nHealth=http:/up\nLabels=app=shop, tier=front\n\
        Namespace=prod\n[Install]\nWantedBy=multi-user.target\n";

    fn unit(active: &str) -> UnitStatus {
        UnitStatus { id: "my@web.service".to_owned(), active: active.to_owned(), code: 3, ..UnitStatus::default() }
    }

    #[test]
    fn show_output_is_parsed() {
        let all = parse_show(SHOW_OUTPUT);
        assert_eq!(all.len(), 2);
        let files = ["/etc/systemd/system/web.service", "/etc/a.conf", "/etc/b.conf"].map(PathBuf::from);
        assert_eq!(
            (all[0].id.as_str(), all[0].active.as_str(), &all[0].files[..]),
            ("web.service", "active", &files[..])
        );
        assert_eq!((all[1].code, all[1].files.len()), (3, 0));
    }

    #[test]
    fn a_unit_with_a_port_is_mapped_to_a_pod() {
        let found =
            read(&unit("active"), &[UNIT.to_owned(), "[X-Waypost]\nNamespace=test\n".to_owned()]).unwrap().unwrap();
        let draft = &found.draft;
        assert_eq!((draft.namespace.as_str(), draft.name.as_str()), ("test", "my-web"), "drop-ins override");
        assert_eq!(draft.ports, [Port { name: "http".to_owned(), number: 3000, protocol: "TCP".to_owned() }]);
        assert_eq!(draft.labels.get("tier").map(String::as_str), Some("front"));
        assert_eq!((draft.probe.text("httpGet.path"), draft.probe.int("periodSeconds")), ("/up", 2));
        assert_eq!(found.observed.state, RunState::Running(None));
    }

    #[test]
    fn active_states_are_mapped() {
        let state = |active| read(&unit(active), &[UNIT.to_owned()]).unwrap().map(|found| found.observed.state);
        assert_eq!(state("failed"), Some(RunState::Failed(3, String::new())));
        assert_eq!((state("activating"), state("inactive")), (Some(RunState::Waiting), None));
    }

    #[test]
    fn a_unit_without_the_section_is_ignored_and_an_invalid_one_is_an_error() {
        assert_eq!(read(&unit("active"), &["[Service]\nPort=3000\n".to_owned()]), Ok(None));
        for (line, part) in [
            ("Port=http", "is not a port"),
            ("Port=1/icmp", "the protocol is"),
            ("Port=1\nHealth=ping", "is not understood"),
            ("Port=1\nLabels=app", "use the form"),
            ("Port=1\nPortName=UP", "alpha-numeric"),
        ] {
            let why = read(&unit("active"), &[format!("[X-Waypost]\n{line}\n")]).unwrap_err().to_string();
            assert!(why.contains(part), "{line}: {why}");
        }
    }
}
