//! Connections in memory. Clones share them.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::io::Errno;

use super::{Conntrack, ConntrackError, Flow, UDP};
use crate::Family;

/// A kernel that remembers connections.
#[derive(Clone, Default)]
pub struct Fake(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    flows: BTreeSet<Flow>,
    lists: usize,
    failure: Option<Errno>,
}

impl Fake {
    /// A connection comes to be.
    pub fn insert(&self, flow: Flow) {
        self.0.lock().flows.insert(flow);
    }

    /// All connections, of any protocol.
    #[must_use]
    pub fn flows(&self) -> Vec<Flow> {
        self.0.lock().flows.iter().copied().collect()
    }

    /// How often somebody asked for connections.
    #[must_use]
    pub fn lists(&self) -> usize {
        self.0.lock().lists
    }

    /// Lets the next request fail.
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
    fn a_connection_is_forgotten_once() {
        let end = |last: u8, port| (std::net::IpAddr::from([10, 0, 0, last]), port);
        let original = Direction::new(end(1, 4000), end(96, 53));
        let reply = Direction::new(end(2, 53), end(1, 4000));
        let flow = Flow { family: Family::Ip, protocol: UDP, zone: 0, original, reply, translated: true };
        let mut fake = Fake::default();
        fake.insert(flow);
        fake.insert(Flow { protocol: 6, ..flow });
        assert_eq!(fake.udp_flows(Family::Ip).expect("listed"), [flow]);
        assert_eq!(fake.udp_flows(Family::Ip6).expect("listed"), []);
        assert_eq!(fake.delete(&[flow, flow]).expect("deleted"), 1);
        assert_eq!((fake.flows().len(), fake.lists()), (1, 2));
        fake.fail_next(Errno::INTR);
        assert!(fake.udp_flows(Family::Ip).expect_err("told to fail").is_retryable());
    }
}
