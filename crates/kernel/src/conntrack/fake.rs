//! Conntrack in memory. Clones share it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::io::Errno;

use super::{Conntrack, ConntrackError, Counted, Flow, UDP};
use crate::Family;

/// A conntrack table in memory.
#[derive(Clone, Default)]
pub struct Fake(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    flows: BTreeSet<Flow>,
    /// Bytes, where counted, and whether the connection is closed.
    passed: BTreeMap<Flow, (Option<u64>, bool)>,
    lists: usize,
    failure: Option<Errno>,
}

impl Fake {
    /// Adds an entry.
    pub fn insert(&self, flow: Flow) {
        self.0.lock().flows.insert(flow);
    }

    /// Sets the counter and whether the connection is closed.
    pub fn pass(&self, flow: Flow, bytes: Option<u64>, ended: bool) {
        self.0.lock().passed.insert(flow, (bytes, ended));
    }

    /// All entries.
    #[must_use]
    pub fn flows(&self) -> Vec<Flow> {
        self.0.lock().flows.iter().copied().collect()
    }

    /// Number of list requests.
    #[must_use]
    pub fn lists(&self) -> usize {
        self.0.lock().lists
    }

    /// Makes the next request fail.
    pub fn fail_next(&self, errno: Errno) {
        self.0.lock().failure = Some(errno);
    }
}

impl Inner {
    fn ask(&mut self, doing: &'static str) -> Result<(), ConntrackError> {
        self.failure.take().map_or(Ok(()), |errno| Err(ConntrackError { errno, doing }))
    }
}

impl Conntrack for Fake {
    fn udp_flows(&mut self, family: Family) -> Result<Vec<Flow>, ConntrackError> {
        let mut inner = self.0.lock();
        inner.lists += 1;
        inner.ask("listing connections")?;
        Ok(inner.flows.iter().filter(|flow| flow.family == family && flow.protocol == UDP).copied().collect())
    }

    fn translated_flows(&mut self, family: Family) -> Result<Vec<Counted>, ConntrackError> {
        let mut inner = self.0.lock();
        inner.ask("listing connections")?;
        let led =
            inner.flows.iter().filter(|flow| flow.family == family && flow.reply.source != flow.original.destination);
        let counted = led.map(|flow| {
            let (bytes, ended) = inner.passed.get(flow).copied().unwrap_or_default();
            Counted { flow: *flow, bytes, ended }
        });
        Ok(counted.collect())
    }

    fn delete(&mut self, flows: &[Flow]) -> Result<usize, ConntrackError> {
        let mut inner = self.0.lock();
        inner.ask("deleting a connection")?;
        Ok(flows.iter().filter(|flow| inner.flows.remove(flow)).count())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conntrack::Direction;

    #[test]
    fn an_entry_is_deleted_once() {
        let end = |last: u8, port| (std::net::IpAddr::from([10, 0, 0, last]), port);
        let original = Direction::new(end(1, 4000), end(96, 53));
        let reply = Direction::new(end(2, 53), end(1, 4000));
        let flow = Flow { family: Family::Ip, protocol: UDP, zone: 0, original, reply, translated: true };
        let mut fake = Fake::default();
        fake.insert(flow);
        fake.insert(Flow { protocol: 6, ..flow });
        assert_eq!(fake.udp_flows(Family::Ip).expect("listed"), [flow]);
        assert_eq!(fake.udp_flows(Family::Ip6).expect("listed"), []);
        let untranslated = Flow { zone: 1, reply: Direction::new(end(96, 53), end(1, 4000)), ..flow };
        fake.insert(untranslated);
        fake.pass(flow, Some(7), false);
        let led = fake.translated_flows(Family::Ip).expect("listed");
        let want = Counted { flow: Flow { protocol: 6, ..flow }, bytes: None, ended: false };
        assert_eq!(led, [want, Counted { flow, bytes: Some(7), ended: false }], "of all protocols, led elsewhere");
        assert_eq!(fake.delete(&[untranslated]).expect("deleted"), 1);
        assert_eq!(fake.delete(&[flow, flow]).expect("deleted"), 1);
        assert_eq!((fake.flows().len(), fake.lists()), (1, 2));
        fake.fail_next(Errno::INTR);
        assert!(fake.udp_flows(Family::Ip).expect_err("told to fail").is_retryable());
    }
}
