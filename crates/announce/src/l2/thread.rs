//! Thread that receives frames and sends those of the [`Responder`].
//!
//! In: claims, shared without a lock. Out: frames and notices. It blocks only on its sockets and loads the claims for every
//! frame, so that their expiry is met whatever the rest of the process does.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use arc_swap::ArcSwap;
use kernel::packets::{Packets, Received, Waker};
use tokio::sync::mpsc::UnboundedSender;

use super::frame::solicited_node;
use super::owner::Claims;
use super::responder::{Action, Notice, Responder};
use crate::metrics::Metrics;

/// Interval at which the interfaces are listed.
const INTERFACE_POLL_INTERVAL: Duration = Duration::from_secs(5);

/// Handle of the thread. Dropping it stops the thread and waits for it: afterwards no frame is sent.
pub(super) struct ResponderThread {
    shared: Arc<Shared>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    claims: ArcSwap<Claims>,
    ended: AtomicBool,
}

/// State of the thread.
struct Thread {
    packets: Box<dyn Packets>,
    responder: Responder,
    shared: Arc<Shared>,
    notices: UnboundedSender<Notice>,
    metrics: Metrics,
    /// Joined multicast groups, by interface.
    joined: BTreeSet<(u32, Ipv6Addr)>,
    /// When the interfaces are listed next.
    next_poll: Duration,
}

impl ResponderThread {
    /// Starts the thread.
    pub(super) fn start(
        packets: Box<dyn Packets>,
        claims: Claims,
        notices: UnboundedSender<Notice>,
        metrics: Metrics,
    ) -> io::Result<Self> {
        let waker = packets.waker();
        let shared = Arc::new(Shared { claims: ArcSwap::from_pointee(claims), ended: AtomicBool::new(false) });
        let thread = Thread {
            packets,
            responder: Responder::default(),
            shared: shared.clone(),
            notices,
            metrics,
            joined: BTreeSet::new(),
            next_poll: Duration::ZERO,
        };
        let thread = Builder::new().name("announce".to_owned()).spawn(move || thread.run())?;
        Ok(Self { shared, waker, thread: Some(thread) })
    }

    /// Sets the claims. A new expiry alone need not wake the thread.
    pub(super) fn set_claims(&self, claims: Claims, wake: bool) {
        self.shared.claims.store(Arc::new(claims));
        if wake {
            self.waker.wake();
        }
    }
}

impl Drop for ResponderThread {
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
            let mut actions = Vec::new();
            let now = self.packets.now();
            let claims = self.shared.claims.load_full();
            if now >= self.next_poll {
                self.next_poll = now + INTERFACE_POLL_INTERVAL;
                match self.packets.interfaces() {
                    Ok(interfaces) => self.responder.set_interfaces(interfaces, &mut actions),
                    Err(error) => tracing::warn!(%error, "cannot list network interfaces"),
                }
            }
            self.join(&claims);
            let next = self.responder.poll(&claims, now, &mut actions);
            self.metrics.announced.set(i64::try_from(self.responder.announced()).unwrap_or(i64::MAX));
            self.action(actions);
            let timeout = next.unwrap_or(self.next_poll).min(self.next_poll).saturating_sub(now);
            match self.packets.receive(Some(timeout)) {
                Ok(Received::Frame(interface, frame)) => self.on_frame(interface, &frame),
                Ok(Received::Woken | Received::Timeout) => {}
                Err(error) => {
                    tracing::error!(%error, "cannot receive frames; announcing stops");
                    return;
                }
            }
        }
    }

    fn on_frame(&mut self, interface: u32, frame: &[u8]) {
        let mut actions = Vec::new();
        let claims = self.shared.claims.load();
        self.responder.on_frame(&claims, interface, frame, self.packets.now(), &mut actions);
        self.action(actions);
    }

    fn action(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Send(interface, frame) => {
                    if let Err(error) = self.packets.send(interface, &frame) {
                        tracing::debug!(interface, %error, "cannot send frame");
                    }
                }
                // The receiver may be gone at shutdown.
                Action::Notify(notice) => {
                    let _ = self.notices.send(notice);
                }
            }
        }
    }

    /// Joins the multicast groups of IPv6 neighbour solicitations.
    fn join(&mut self, claims: &Claims) {
        let mut wanted = BTreeSet::new();
        for interface in self.responder.interfaces().iter().filter(|interface| interface.v6) {
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
            // The interface may be gone.
            let _ = self.packets.leave(*interface, *group);
        }
        for (interface, group) in wanted.difference(&self.joined) {
            if let Err(error) = self.packets.join(*interface, *group) {
                tracing::warn!(interface, %group, %error, "cannot join multicast group; neighbour solicitations may be missed");
            }
        }
        self.joined = wanted;
    }
}
