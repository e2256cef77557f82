//! Ports whose protocol the Pods do not declare: a UDP port of a Service that leads to Pods whose containers declare its number
//! for TCP alone.
//!
//! What a container declares is only what its author says of it, so this is no proof. But who declares a number for one
//! protocol hardly ever serves another on it.

use crate::cluster::{Cluster, Pod};
use crate::finding::{Finding, Level, code};
use crate::labels::Selector;
use crate::model::{Service, Target};
use crate::pod_state::Detail;
use crate::words::list;

/// How many Pods are read. Those of one Service are usually made from one template.
const READ: usize = 3;

/// The first port whose protocol no container declares, while all of the Pods that are read declare its number.
pub(crate) fn find<C: Cluster>(cluster: &C, service: &Service, selector: &Selector) -> Option<Finding> {
    let numbered = |(index, port)| match crate::Port::target(port) {
        Target::Number(number) => Some((index, port, number)),
        Target::Name(_) => None,
    };
    let suspects: Vec<(usize, &crate::Port, u16)> =
        service.ports().iter().enumerate().filter(|(_, port)| &*port.protocol != "TCP").filter_map(numbered).collect();
    if suspects.is_empty() {
        return None;
    }
    let pods = cluster.matching(service.namespace(), selector);
    let details: Vec<Detail> =
        pods.iter().filter(|pod| !pod.standing().finished).take(READ).map(|pod| pod.detail()).collect();
    for (index, port, number) in suspects {
        let declare_other = |detail: &Detail| {
            let mut same = detail.ports().into_iter().filter(|one| one.number == number).peekable();
            same.peek().is_some() && same.all(|one| one.protocol != port.protocol)
        };
        if details.is_empty() || !details.iter().all(declare_other) {
            continue;
        }
        let declared = details.iter().flat_map(Detail::ports);
        let mut others: Vec<&str> =
            declared.clone().filter(|one| one.number == number).map(|one| &*one.protocol).collect();
        others.sort_unstable();
        others.dedup();
        let protocol = &port.protocol;
        let message = format!(
            "port {}: the Service sends {protocol} to port {number} of its pods, whose containers declare {number} for {} only",
            port.called(),
            list(&others, READ),
        );
        let fix = declared
            .filter(|one| one.protocol == port.protocol)
            .min_by_key(|one| one.number.abs_diff(number))
            .map_or_else(|| service.edit(), |one| service.retarget(index, &one.target()));
        return Some(Finding::new(code::PROTOCOL_NOT_DECLARED, message, fix).at(Level::Degraded));
    }
    None
}
