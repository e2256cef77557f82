//! HTTPS listeners of one port whose hostnames overlap: a client may reuse a connection to one of them for the other.

use std::collections::HashMap;
use std::sync::Arc;

/// Which of these listeners (port, hostname) overlap with another of them. Hostnames of one port are distinct.
pub(crate) fn judge(listeners: &[(u16, Option<Arc<str>>)]) -> Vec<bool> {
    let mut by_port: HashMap<u16, Vec<usize>> = HashMap::new();
    for (place, (port, _)) in listeners.iter().enumerate() {
        by_port.entry(*port).or_default().push(place);
    }
    let mut overlaps = vec![false; listeners.len()];
    for places in by_port.values() {
        let by_host: HashMap<&str, usize> =
            places.iter().filter_map(|place| Some((listeners[*place].1.as_deref()?, *place))).collect();
        if by_host.len() < places.len() && places.len() > 1 {
            places.iter().for_each(|place| overlaps[*place] = true);
            continue;
        }
        for (host, place) in &by_host {
            for wider in wildcards(host).filter_map(|wildcard| by_host.get(&*wildcard)) {
                overlaps[*wider] = true;
                overlaps[*place] = true;
            }
        }
    }
    overlaps
}

/// The wildcards that cover a hostname, itself not among them.
fn wildcards(host: &str) -> impl Iterator<Item = String> {
    let labels = host.strip_prefix("*.").unwrap_or(host);
    let is_wildcard = labels.len() < host.len();
    let own = is_wildcard.then_some(labels);
    let dots = labels.match_indices('.').map(|(dot, _)| &labels[dot + 1..]);
    dots.filter(move |suffix| Some(*suffix) != own).map(|suffix| format!("*.{suffix}"))
}
