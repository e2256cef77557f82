//! Objects that a proxy reads from any server: planned, never a panic, and the same plan whichever way round they come.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plan::{Options, Planner, Update};

fuzz_target!(|data: &[u8]| {
    let mut updates: Vec<Update> = data.split(|byte| *byte == 0).filter_map(read).collect();
    let options = Options { node_name: "n1".to_owned(), ..Options::default() };
    let mut forth = Planner::new(options.clone());
    forth.update_all(updates.iter().cloned());
    // The later of two objects of one name wins, so only one of each kind is turned round.
    let mut seen = Vec::new();
    updates.retain(|update| {
        let kind = std::mem::discriminant(update);
        let new = !seen.contains(&kind);
        seen.push(kind);
        new
    });
    let mut once = Planner::new(options.clone());
    once.update_all(updates.iter().cloned());
    let mut back = Planner::new(options);
    back.update_all(updates.into_iter().rev());
    assert_eq!(once.plan(), back.plan());
});

fn read(text: &[u8]) -> Option<Update> {
    let (kind, text) = text.split_first()?;
    match kind % 4 {
        0 => serde_json::from_slice(text).ok().map(|service| Update::Service(Box::new(service))),
        1 => serde_json::from_slice(text).ok().map(Update::Slice),
        2 => serde_json::from_slice(text).ok().map(|node| Update::Node(Some(Box::new(node)))),
        _ => serde_json::from_slice(text).ok().map(Update::Cidr),
    }
}
