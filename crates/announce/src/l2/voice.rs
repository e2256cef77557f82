//! The thread that is on the wires: it hears frames and sends those that the [`Speaker`] says.
//!
//! In: claims, shared without a lock. Out: frames, and what people should know. It waits for nobody but the wires; claims are looked up
//! anew for every frame, so that their end is met whatever the rest of the program is doing.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use arc_swap::ArcSwap;
use kernel::packets::{Heard, Packets, Waker};
use tokio::sync::mpsc::UnboundedSender;

use super::frame::solicited_node;
use super::owner::Claims;
use super::speaker::{Act, Speaker, Told};
use crate::metrics::Figures;

/// How often it is looked which wires there are.
const LOOK: Duration = Duration::from_secs(5);

/// A thread that speaks. Dropping it ends it, and waits until it has ended: after that nothing more is said.
pub(super) struct Voice {
    shared: Arc<Shared>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    claims: ArcSwap<Claims>,
    ended: AtomicBool,
}

/// What the thread has.
struct Thread {
    packets: Box<dyn Packets>,
    speaker: Speaker,
    shared: Arc<Shared>,
    told: UnboundedSender<Told>,
    figures: Figures,
    /// Groups that are heard, on which wire.
    joined: BTreeSet<(u32, Ipv6Addr)>,
    /// When wires are to be looked at again.
    look: Duration,
}

impl Voice {
    /// Begins to speak.
    pub(super) fn start(
        packets: Box<dyn Packets>,
        claims: Claims,
        told: UnboundedSender<Told>,
        figures: Figures,
    ) -> io::Result<Self> {
        let waker = packets.waker();
        let shared = Arc::new(Shared { claims: ArcSwap::from_pointee(claims), ended: AtomicBool::new(false) });
        let thread = Thread {
            packets,
            speaker: Speaker::default(),
            shared: shared.clone(),
            told,
            figures,
            joined: BTreeSet::new(),
            look: Duration::ZERO,
        };
        let thread = Builder::new().name("announce".to_owned()).spawn(move || thread.run())?;
        Ok(Self { shared, waker, thread: Some(thread) })
    }

    /// These are the claims now. When only their end has moved nobody needs to be woken.
    pub(super) fn claim(&self, claims: Claims, news: bool) {
        self.shared.claims.store(Arc::new(claims));
        if news {
            self.waker.wake();
        }
    }
}

impl Drop for Voice {
    fn drop(&mut self) {
        self.shared.claims.store(Arc::default());
        self.shared.ended.store(true, Ordering::Release);
        self.waker.wake();
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Thread {
    fn run(mut self) {
        while !self.shared.ended.load(Ordering::Acquire) {
            let mut acts = Vec::new();
            let now = self.packets.now();
            let claims = self.shared.claims.load_full();
            if now >= self.look {
                self.look = now + LOOK;
                match self.packets.interfaces() {
                    Ok(interfaces) => self.speaker.connect(interfaces, &mut acts),
                    Err(error) => tracing::warn!(%error, "the wires of this machine cannot be read"),
                }
            }
            self.join(&claims);
            let next = self.speaker.turn(&claims, now, &mut acts);
            self.figures.announced.set(i64::try_from(self.speaker.announced()).unwrap_or(i64::MAX));
            self.act(acts);
            let patience = next.unwrap_or(self.look).min(self.look).saturating_sub(now);
            match self.packets.receive(Some(patience)) {
                Ok(Heard::Frame(interface, frame)) => self.hear(interface, &frame),
                Ok(Heard::Woken | Heard::Nothing) => {}
                Err(error) => {
                    tracing::error!(%error, "frames of neighbours are no longer heard");
                    return;
                }
            }
        }
    }

    fn hear(&mut self, interface: u32, frame: &[u8]) {
        let mut acts = Vec::new();
        let claims = self.shared.claims.load();
        self.speaker.hear(&claims, interface, frame, self.packets.now(), &mut acts);
        self.act(acts);
    }

    fn act(&mut self, acts: Vec<Act>) {
        for act in acts {
            match act {
                Act::Send(interface, frame) => {
                    if let Err(error) = self.packets.send(interface, &frame) {
                        tracing::debug!(interface, %error, "a frame was not sent");
                    }
                }
                // Nobody listens at the end.
                Act::Tell(told) => {
                    let _ = self.told.send(told);
                }
            }
        }
    }

    /// Hears questions for addresses of IPv6, which are sent to groups.
    fn join(&mut self, claims: &Claims) {
        let mut wanted = BTreeSet::new();
        for interface in self.speaker.interfaces().iter().filter(|interface| interface.v6) {
            for ip in claims.addresses.keys() {
                if let IpAddr::V6(v6) = ip {
                    wanted.insert((interface.index, solicited_node(*v6)));
                }
            }
        }
        if wanted == self.joined {
            return;
        }
        for (interface, group) in self.joined.difference(&wanted) {
            // The wire may be gone, and the group with it.
            let _ = self.packets.leave(*interface, *group);
        }
        for (interface, group) in wanted.difference(&self.joined) {
            if let Err(error) = self.packets.join(*interface, *group) {
                tracing::warn!(interface, %group, %error, "questions for an address of IPv6 may not be heard");
            }
        }
        self.joined = wanted;
    }
}
