//! The policy that a Service requests by its annotations.
//!
//! In: a Service. Out: what it requests, and problems with values that are ignored.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::view::Service;
use api::view::annotations::{LEADER_LEASE, TRAFFIC_POLICY, ZONE_WEIGHTS};

use super::Policy;

/// The largest weight of a zone.
const MAX_WEIGHT: u16 = 100;
/// Zones with a weight.
const MAX_ZONES: usize = 64;
/// The longest name of an object.
const MAX_NAME: usize = 253;

/// What a Service requests.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Requested {
    /// The policy.
    pub(crate) policy: Policy,
    /// `namespace/name` of the Lease of a leader; none for other policies, or where it has no valid name.
    pub(crate) lease: Option<Arc<str>>,
    zones: BTreeMap<Box<str>, u16>,
}

impl Requested {
    /// What a Service requests. What cannot be understood is a problem, and as if it were not there.
    pub(crate) fn of(service: &Service, problems: &mut Vec<String>) -> Self {
        let annotation = |key: &str| service.metadata.annotations.get(key).map(str::trim);
        let Some(text) = annotation(TRAFFIC_POLICY) else { return Self::default() };
        let Some(policy) = Policy::named(text) else {
            let names = Policy::ALL.map(Policy::name).join(", ");
            problems.push(format!(
                "its annotation {TRAFFIC_POLICY} has the unknown value `{}`, known are {names}; endpoints are selected at random",
                shortened(text)
            ));
            return Self::default();
        };
        let mut requested = Self { policy, ..Self::default() };
        match policy {
            Policy::Leader => match annotation(LEADER_LEASE).filter(|name| is_name(name)) {
                Some(name) => requested.lease = Some(format!("{}/{name}", service.metadata.namespace).into()),
                None => problems.push(format!(
                    "its traffic policy `leader` needs the annotation {LEADER_LEASE} with the name of a Lease; without a leader \
                     connections are refused"
                )),
            },
            Policy::Weighted => requested.zones = zones(annotation(ZONE_WEIGHTS).unwrap_or_default(), problems),
            Policy::Random | Policy::RoundRobin | Policy::LeastConnections | Policy::Maglev => {}
        }
        requested
    }

    /// The weight of endpoints of a zone: 1 to 100; 1 where none is given.
    pub(super) fn zone_weight(&self, zone: Option<&str>) -> u16 {
        zone.and_then(|zone| self.zones.get(zone)).copied().unwrap_or(1)
    }
}

/// Parses `a=3,b=1`.
fn zones(text: &str, problems: &mut Vec<String>) -> BTreeMap<Box<str>, u16> {
    let mut zones = BTreeMap::new();
    for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
        let parsed = entry.split_once('=').and_then(|(zone, weight)| {
            let weight: u16 = weight.trim().parse().ok()?;
            Some((zone.trim(), weight)).filter(|(zone, _)| !zone.is_empty() && (1..=MAX_WEIGHT).contains(&weight))
        });
        match parsed {
            Some((zone, weight)) if zones.len() < MAX_ZONES => drop(zones.insert(zone.into(), weight)),
            _ => {
                problems.push(format!(
                    "its annotation {ZONE_WEIGHTS} is ignored from `{}` on: it has at most {MAX_ZONES} entries ZONE=WEIGHT with \
                     weights from 1 to {MAX_WEIGHT}",
                    shortened(entry)
                ));
                break;
            }
        }
    }
    if zones.is_empty() {
        problems.push(format!(
            "its traffic policy `weighted` needs the annotation {ZONE_WEIGHTS}, such as `a=3,b=1`; all endpoints have equal weights"
        ));
    }
    zones
}

/// Whether a text can be the name of an object.
fn is_name(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    (1..=MAX_NAME).contains(&text.len()) && text.bytes().all(fits)
}

/// The beginning of a value, for messages.
fn shortened(text: &str) -> String {
    text.chars().take(40).collect()
}
