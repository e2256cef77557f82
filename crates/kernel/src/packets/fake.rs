//! A network segment in memory. Frames are switched: broadcast, to the members of a group, or to one MAC address. A
//! host can be disconnected. Clones of a [`Segment`] are the same segment.

use std::collections::{BTreeSet, VecDeque};
use std::net::Ipv6Addr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;

use super::{Interface, Mac, Packets, PacketsError, Received, Waker};

/// Index of the only interface of every host.
pub const INDEX: u32 = 2;

/// A network segment.
#[derive(Clone, Default)]
pub struct Segment(Arc<(Mutex<Inner>, Condvar)>);

#[derive(Default)]
struct Inner {
    ports: Vec<Port>,
    now: Duration,
    sent: Vec<(Mac, Vec<u8>)>,
}

struct Port {
    mac: Mac,
    groups: BTreeSet<Ipv6Addr>,
    waiting: VecDeque<Received>,
    cut: bool,
}

/// A host on the segment.
pub struct Host {
    segment: Segment,
    port: usize,
}

impl Segment {
    /// Adds a host.
    #[must_use]
    pub fn host(&self, mac: Mac) -> Host {
        let mut inner = self.0.0.lock();
        inner.ports.push(Port { mac, groups: BTreeSet::new(), waiting: VecDeque::new(), cut: false });
        Host { segment: self.clone(), port: inner.ports.len() - 1 }
    }

    /// Sets the clock of all hosts.
    pub fn set_time(&self, now: Duration) {
        self.0.0.lock().now = now;
    }

    /// Frames sent since the last call, with their senders.
    #[must_use]
    pub fn sent(&self) -> Vec<(Mac, Vec<u8>)> {
        std::mem::take(&mut self.0.0.lock().sent)
    }

    /// Disconnects or reconnects a host.
    pub fn cut(&self, mac: Mac, cut: bool) {
        self.0.0.lock().ports.iter_mut().filter(|port| port.mac == mac).for_each(|port| port.cut = cut);
    }

    fn deliver(&self, from: usize, frame: &[u8]) -> Result<(), Errno> {
        let mut inner = self.0.0.lock();
        let to = Mac(*frame.first_chunk().ok_or(Errno::INVAL)?);
        if frame.len() < 14 {
            return Err(Errno::INVAL);
        }
        let Some((mac, cut)) = inner.ports.get(from).map(|port| (port.mac, port.cut)) else { return Err(Errno::NODEV) };
        if cut {
            return Err(Errno::NETDOWN);
        }
        inner.sent.push((mac, frame.to_vec()));
        for (place, port) in inner.ports.iter_mut().enumerate() {
            let of_group = |group: &Ipv6Addr| Mac::of_group(*group) == to;
            // Every host is in the all-nodes group.
            let all_nodes = to == Mac([0x33, 0x33, 0, 0, 0, 1]);
            let receives = to == Mac::BROADCAST || to == port.mac || all_nodes || port.groups.iter().any(of_group);
            if place != from && !port.cut && receives {
                port.waiting.push_back(Received::Frame(INDEX, frame.to_vec()));
            }
        }
        drop(inner);
        self.0.1.notify_all();
        Ok(())
    }
}

impl Host {
    fn failed(doing: &'static str) -> impl Fn(Errno) -> PacketsError {
        move |errno| PacketsError { errno, doing }
    }
}

impl Packets for Host {
    fn interfaces(&mut self) -> Result<Vec<Interface>, PacketsError> {
        let inner = self.segment.0.0.lock();
        let mac = inner.ports.get(self.port).map(|port| port.mac).ok_or(Errno::NODEV);
        let mac = mac.map_err(Self::failed("listing interfaces"))?;
        Ok(vec![Interface { index: INDEX, name: "eth0".into(), mac, v4: true, v6: true }])
    }

    fn join(&mut self, interface: u32, group: Ipv6Addr) -> Result<(), PacketsError> {
        let mut inner = self.segment.0.0.lock();
        let port = inner.ports.get_mut(self.port).filter(|_| interface == INDEX && group.is_multicast());
        port.ok_or(Errno::NODEV).map_err(Self::failed("joining a group"))?.groups.insert(group);
        Ok(())
    }

    fn leave(&mut self, interface: u32, group: Ipv6Addr) -> Result<(), PacketsError> {
        let mut inner = self.segment.0.0.lock();
        let port = inner.ports.get_mut(self.port).filter(|_| interface == INDEX);
        port.ok_or(Errno::NODEV).map_err(Self::failed("leaving a group"))?.groups.remove(&group);
        Ok(())
    }

    fn send(&mut self, interface: u32, frame: &[u8]) -> Result<(), PacketsError> {
        let sent = if interface == INDEX { self.segment.deliver(self.port, frame) } else { Err(Errno::NODEV) };
        sent.map_err(Self::failed("sending"))
    }

    fn receive(&mut self, timeout: Option<Duration>) -> Result<Received, PacketsError> {
        let (inner, news) = &*self.segment.0;
        let mut inner = inner.lock();
        loop {
            let port = inner.ports.get_mut(self.port).ok_or(Errno::NODEV).map_err(Self::failed("receiving"))?;
            if let Some(received) = port.waiting.pop_front() {
                return Ok(received);
            }
            match timeout {
                None => news.wait(&mut inner),
                Some(timeout) if timeout.is_zero() || news.wait_for(&mut inner, timeout).timed_out() => {
                    return Ok(Received::Timeout);
                }
                Some(_) => {}
            }
        }
    }

    fn waker(&self) -> Waker {
        let (segment, place) = (self.segment.clone(), self.port);
        Waker::new(move || {
            if let Some(port) = segment.0.0.lock().ports.get_mut(place) {
                port.waiting.push_back(Received::Woken);
            }
            segment.0.1.notify_all();
        })
    }

    fn now(&self) -> Duration {
        self.segment.0.0.lock().now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_switched_by_destination() {
        let segment = Segment::default();
        let macs = [Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2]), Mac([2, 0, 0, 0, 0, 3])];
        let [mut a, mut b, mut c] = macs.map(|mac| segment.host(mac));
        let group: Ipv6Addr = "ff02::1:ff00:7".parse().expect("a group");
        c.join(INDEX, group).expect("joined");
        let frame = |to: Mac| [&to.0[..], &[0; 8]].concat();
        for (to, received_by_b, received_by_c) in [
            (Mac::BROADCAST, true, true),
            (macs[1], true, false),
            (Mac::of_group(group), false, true),
            (Mac([2, 9, 9, 9, 9, 9]), false, false),
        ] {
            a.send(INDEX, &frame(to)).expect("sent");
            for (host, receives) in [(&mut b, received_by_b), (&mut c, received_by_c), (&mut a, false)] {
                let received = host.receive(Some(Duration::ZERO)).expect("received");
                assert_eq!(
                    received,
                    if receives { Received::Frame(INDEX, frame(to)) } else { Received::Timeout },
                    "{to}"
                );
            }
        }
        segment.cut(macs[0], true);
        assert_eq!(a.send(INDEX, &frame(Mac::BROADCAST)).expect_err("cut off").errno, Errno::NETDOWN);
        assert!(a.send(INDEX, &[1]).is_err() && a.send(9, &frame(macs[1])).is_err());
    }
}
