//! The link as a client sees it: sends ARP and NDP requests for an address, and records every response. Frames are written and
//! parsed here independently, so that the implementation under test is not used to check itself.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kernel::packets::linux::Linux;
use kernel::packets::{Mac, Packets as _, Received};
use parking_lot::{Mutex, MutexGuard};
use testbed::net::{Host, eventually};

/// How long an answer may take.
const TIMEOUT: Duration = Duration::from_millis(50);

/// The address of a machine on the wire.
pub(super) fn mac_of(host: &Host) -> Mac {
    let interfaces = host.in_namespace(|| Linux::open(Vec::new()).expect("sockets").interfaces()).expect("interfaces");
    interfaces.iter().find(|interface| &*interface.name == "eth0").expect("eth0").mac
}

/// The wire of a client.
pub(super) struct Wire {
    packets: Linux,
    index: u32,
    mac: Mac,
    v4: Ipv4Addr,
    v6: Ipv6Addr,
}

impl Wire {
    pub(super) fn of(host: &Host) -> Self {
        let mut packets =
            host.in_namespace(|| Linux::open(Vec::new())).expect("sockets for frames; these tests need root");
        let interfaces = packets.interfaces().expect("interfaces");
        let eth0 = interfaces.iter().find(|interface| &*interface.name == "eth0").expect("eth0");
        let (index, mac) = (eth0.index, eth0.mac);
        Self { packets, index, mac, v4: host.v4(), v6: host.v6() }
    }

    fn question(&self, ip: IpAddr) -> Vec<u8> {
        match ip {
            IpAddr::V4(ip) => {
                let head = [0, 1, 8, 0, 6, 4, 0, 1];
                let own = [&self.mac.0[..], &self.v4.octets()].concat();
                [&[0xff; 6][..], &self.mac.0, &[8, 6], &head, &own, &[0; 6], &ip.octets()].concat()
            }
            IpAddr::V6(ip) => {
                let [.., a, b, c] = ip.octets();
                let group = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | u16::from(a), u16::from_be_bytes([b, c]));
                let mut message = [&[135, 0, 0, 0, 0, 0, 0, 0][..], &ip.octets(), &[1, 1], &self.mac.0].concat();
                let pseudo = [&self.v6.octets()[..], &group.octets(), &[0, 0, 0, 32, 0, 0, 0, 58], &message].concat();
                let sum: u32 = pseudo.chunks(2).map(|two| u32::from(u16::from_be_bytes([two[0], two[1]]))).sum();
                let folded = u16::try_from((sum & 0xffff) + (sum >> 16)).expect("few words");
                message[2..4].copy_from_slice(&(!folded).to_be_bytes());
                let to = [0x33, 0x33, 0xff, a, b, c];
                let head = [0x60, 0, 0, 0, 0, 32, 58, 255];
                let ends = [self.v6.octets(), group.octets()].concat();
                [&to[..], &self.mac.0, &[0x86, 0xdd], &head, &ends, &message].concat()
            }
        }
    }

    fn ask(&mut self, ip: IpAddr) {
        let question = self.question(ip);
        self.packets.send(self.index, &question).expect("asked");
    }

    /// The announcements of an address within some time: its owner, and whether they were broadcast or sent to us alone.
    fn listen(&mut self, ip: IpAddr, until: Instant) -> Vec<(Mac, bool)> {
        let mut found = Vec::new();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.packets.receive(Some(left)).expect("heard") {
                Received::Frame(_, frame) => found.extend(says(&frame, ip)),
                Received::Woken | Received::Timeout if left.is_zero() => return found,
                Received::Woken | Received::Timeout => {}
            }
        }
    }

    /// Sends one request: all owners that respond for an address.
    pub(super) fn who_has(&mut self, ip: IpAddr) -> Vec<Mac> {
        self.ask(ip);
        let mut found: Vec<Mac> = self.listen(ip, Instant::now() + TIMEOUT).into_iter().map(|(mac, _)| mac).collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    /// The unsolicited announcements of an address to all, in some time.
    pub(super) fn told_to_all(&mut self, ip: IpAddr, within: Duration) -> Vec<Mac> {
        let heard = self.listen(ip, Instant::now() + within);
        heard.into_iter().filter(|(_, to_all)| *to_all).map(|(mac, _)| mac).collect()
    }
}

/// The owner of an address according to this frame; and whether it was broadcast.
fn says(frame: &[u8], ip: IpAddr) -> Option<(Mac, bool)> {
    let mac = |at: usize| Some(Mac(frame.get(at..at + 6)?.try_into().ok()?));
    let to_all = mac(0)?.is_group();
    match (frame.get(12..14)?, ip) {
        ([8, 6], IpAddr::V4(ip)) => {
            let has = frame.get(28..32)? == ip.octets();
            has.then_some((mac(22)?, to_all))
        }
        ([0x86, 0xdd], IpAddr::V6(ip)) => {
            let advertised = *frame.get(20)? == 58 && *frame.get(54)? == 136 && frame.get(62..78)? == ip.octets();
            // The target link-layer address option is what neighbours use.
            (advertised && frame.get(78..80)? == [2, 1]).then_some((mac(80)?, to_all))
        }
        _ => None,
    }
}

/// Requests the owner of an address continuously.
pub(super) struct Watcher {
    stop: Arc<AtomicBool>,
    seen: Arc<Mutex<Vec<(Instant, Mac)>>>,
    /// Held while a request is sent and its responses are awaited.
    asking: Arc<Mutex<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watcher {
    /// Starts sending requests; returns after the first response, with its sender.
    pub(super) fn start(host: &Host, ip: IpAddr) -> (Self, Mac) {
        let (mut wire, stop, seen) =
            (Wire::of(host), Arc::new(AtomicBool::new(false)), Arc::<Mutex<Vec<_>>>::default());
        let asking = Arc::<Mutex<()>>::default();
        let thread = std::thread::spawn({
            let (stop, seen, asking) = (stop.clone(), seen.clone(), asking.clone());
            move || {
                while !stop.load(Ordering::Acquire) {
                    let mut asking = asking.lock();
                    let begun = Instant::now();
                    wire.ask(ip);
                    let heard = wire.listen(ip, begun + Duration::from_millis(3));
                    seen.lock().extend(heard.into_iter().map(|(mac, _)| (begun, mac)));
                    MutexGuard::bump(&mut asking);
                }
            }
        });
        let watcher = Self { stop, seen, asking, thread: Some(thread) };
        eventually("somebody answers", || watcher.has_heard(|_| true));
        let first = watcher.seen.lock()[0].1;
        (watcher, first)
    }

    /// Does something while no request is sent.
    pub(super) fn pause<T>(&self, work: impl FnOnce() -> T) -> T {
        let _asking = self.asking.lock();
        work()
    }

    /// Whether such a machine has answered.
    pub(super) fn has_heard(&self, who: impl Fn(Mac) -> bool) -> bool {
        self.seen.lock().iter().any(|(_, mac)| who(*mac))
    }

    /// The owners that responded, in sequence: since when, until when, and who. Never two at a time.
    #[track_caller]
    pub(super) fn end(mut self) -> Vec<(Instant, Instant, Mac)> {
        self.stop.store(true, Ordering::Release);
        self.thread.take().expect("it runs").join().expect("it watched");
        let mut runs: Vec<(Instant, Instant, Mac)> = Vec::new();
        for (at, mac) in self.seen.lock().drain(..) {
            match runs.last_mut() {
                Some((_, until, last)) if *last == mac => *until = at,
                _ => runs.push((at, at, mac)),
            }
        }
        for (place, (_, _, mac)) in runs.iter().enumerate() {
            let again = runs.iter().skip(place + 1).position(|(_, _, later)| later == mac);
            // Two that answer at once would be seen in turn, again and again.
            let soon = again.map(|next| runs[place + 1 + next].0.duration_since(runs[place].1));
            assert!(soon.is_none_or(|soon| soon > Duration::from_secs(1)), "two answered in turn: {runs:?}");
        }
        runs
    }
}
