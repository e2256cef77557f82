//! Deterministic simulation of elections: an API with versions; networks that delay, lose and partition; machines that are
//! paused, restart, and have clocks of different rates. Time advances in steps of a millisecond.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use super::{Claims, Owner};
use crate::lease::{Key, Lease};
use crate::leases::{LeaseError, LeaseResult, Operation, Versioned};

/// A fault of a machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fault {
    /// It is paused for so many milliseconds; its clock continues.
    Pause(u64),
    /// It restarts without releasing anything.
    Restart,
    /// It releases everything and restarts.
    Leave,
    /// It is partitioned from the API for so many milliseconds.
    Partition(u64),
    /// Its watch stalls for so many milliseconds.
    StallWatch(u64),
    /// It stops being a candidate, or becomes one again.
    Candidate(bool),
    /// It crashes and does not return.
    Crash,
}

/// A machine.
pub(super) struct Machine {
    pub(super) name: String,
    owner: Owner,
    /// How fast its clock goes, in thousandths of the true rate.
    rate: u64,
    offset: Duration,
    published: Claims,
    starts: u64,
    pub(super) paused_until: u64,
    partitioned_until: u64,
    stalled_until: u64,
    wake: Option<Duration>,
    leaving: bool,
    pub(super) dead: bool,
}

/// A message in flight.
enum Message {
    Request { from: usize, start: u64, id: u64, key: Key, operation: Operation },
    Reply { to: usize, start: u64, id: u64, answer: LeaseResult },
    Watch { to: usize, leases: BTreeMap<Box<str>, Lease> },
}

pub(super) struct World {
    pub(super) now: u64,
    pub(super) machines: Vec<Machine>,
    leases: BTreeMap<Key, (Lease, u64)>,
    versions: u64,
    in_flight: BTreeMap<(u64, u64), Message>,
    sequence: u64,
    random: fastrand::Rng,
    /// Maximum delay of a message, in milliseconds; one of `loss` messages is lost.
    pub(super) delay: u64,
    pub(super) loss: Option<u32>,
    candidates: BTreeSet<usize>,
    addresses: Vec<IpAddr>,
    /// Whether they are to be announced.
    wanted: bool,
    /// When the watch of a machine delivers its last event: events arrive in order.
    delivered: BTreeMap<usize, u64>,
    /// After how many milliseconds without a change Leases of nodes are removed, if they are.
    pub(super) sweep: Option<u64>,
    /// When each Lease was last written.
    written: BTreeMap<Key, u64>,
}

impl World {
    pub(super) fn new(seed: u64, machines: usize, addresses: usize) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut world = Self {
            now: 0,
            machines: Vec::new(),
            leases: BTreeMap::new(),
            versions: 0,
            in_flight: BTreeMap::new(),
            sequence: 0,
            delay: 20,
            loss: None,
            candidates: (0..machines).collect(),
            addresses: (0..addresses).map(|n| IpAddr::from([192, 0, 2, u8::try_from(n).expect("few")])).collect(),
            wanted: true,
            delivered: BTreeMap::new(),
            sweep: None,
            written: BTreeMap::new(),
            random: random.fork(),
        };
        for number in 0..machines {
            let name = format!("n{number}");
            world.machines.push(Machine {
                owner: Owner::new(&name, &format!("p{number}.0")),
                name,
                rate: random.u64(960..=1040),
                offset: Duration::from_millis(random.u64(0..1_000_000)),
                published: Claims::default(),
                starts: 0,
                paused_until: 0,
                partitioned_until: 0,
                stalled_until: 0,
                wake: Some(Duration::ZERO),
                leaving: false,
                dead: false,
            });
        }
        world.update_wanted();
        world
    }

    pub(super) fn addresses(&self) -> &[IpAddr] {
        &self.addresses
    }

    /// Announces nothing any more.
    pub(super) fn want_nothing(&mut self) {
        self.wanted = false;
        self.update_wanted();
    }

    /// Leases with a holder.
    pub(super) fn kept(&self) -> Vec<String> {
        self.leases.iter().filter(|(_, (lease, _))| !lease.holder.is_empty()).map(|(key, _)| key.name()).collect()
    }

    fn update_wanted(&mut self) {
        let nodes: BTreeSet<Box<str>> =
            self.candidates.iter().map(|number| self.machines[*number].name.as_str().into()).collect();
        let addresses = self.addresses.iter().filter(|_| self.wanted);
        let wanted: BTreeMap<_, _> = addresses.map(|ip| (*ip, nodes.clone())).collect();
        for machine in &mut self.machines {
            machine.owner.set_wanted(wanted.clone());
            machine.wake = Some(Duration::ZERO);
        }
    }

    pub(super) fn inject(&mut self, number: usize, fault: Fault) {
        let now = self.now;
        let machine = &mut self.machines[number];
        match fault {
            Fault::Pause(long) => machine.paused_until = now + long,
            Fault::Partition(long) => machine.partitioned_until = now + long,
            Fault::StallWatch(long) => machine.stalled_until = now + long,
            Fault::Restart => self.restart(number),
            Fault::Leave => {
                machine.owner.stop();
                machine.leaving = true;
                machine.wake = Some(Duration::ZERO);
            }
            Fault::Candidate(may) => {
                if may {
                    self.candidates.insert(number)
                } else {
                    self.candidates.remove(&number)
                };
                self.update_wanted();
            }
            Fault::Crash => {
                machine.dead = true;
                machine.published = Claims::default();
            }
        }
    }

    fn restart(&mut self, number: usize) {
        let machine = &mut self.machines[number];
        machine.starts += 1;
        machine.owner = Owner::new(&machine.name, &format!("p{number}.{}", machine.starts));
        machine.published = Claims::default();
        machine.leaving = false;
        self.update_wanted();
        self.show(number);
    }

    /// Machines that answer for an address now.
    pub(super) fn answering(&self, ip: IpAddr) -> Vec<&str> {
        let answers = |machine: &&Machine| {
            let clock = machine.clock(self.now);
            let awake = !machine.dead && machine.paused_until <= self.now;
            awake && clock < machine.published.until && machine.published.addresses.contains_key(&ip)
        };
        self.machines.iter().filter(answers).map(|machine| machine.name.as_str()).collect()
    }

    /// Advances by a millisecond.
    pub(super) fn step(&mut self) {
        self.now += 1;
        while let Some((&(at, sequence), _)) = self.in_flight.first_key_value() {
            if at > self.now {
                break;
            }
            if let Some(message) = self.in_flight.remove(&(at, sequence)) {
                self.arrive(message);
            }
        }
        self.clean_up();
        for number in 0..self.machines.len() {
            let machine = &mut self.machines[number];
            let clock = machine.clock(self.now);
            let due = machine.wake.is_some_and(|wake| wake <= clock);
            if machine.dead || machine.paused_until > self.now || !due {
                continue;
            }
            let work = machine.owner.poll(clock);
            machine.wake = work.wake;
            machine.published = machine.owner.claims();
            if machine.leaving && machine.owner.is_done() {
                self.restart(number);
            }
            self.send(number, work.requests);
        }
    }

    /// The controller that removes stale Leases: of nodes, and of addresses whose node has none.
    fn clean_up(&mut self) {
        let Some(long) = self.sweep else { return };
        let is_old = |key: &Key| self.written.get(key).is_some_and(|at| at + long <= self.now);
        let is_left = |(key, (lease, _)): &(&Key, &(Lease, u64))| match key {
            Key::Node(_) => true,
            Key::Address(_) => !self.leases.contains_key(&Key::Node(lease.holder.clone())),
        };
        let old = self.leases.iter().filter(|(key, _)| is_old(key)).filter(is_left);
        let old: Vec<(Key, u64)> = old.map(|(key, (_, version))| (key.clone(), *version)).collect();
        for (key, version) in old {
            let _ = self.serve(&key, Operation::Delete(version.to_string().into()));
        }
    }

    fn delay(&mut self) -> u64 {
        self.random.u64(0..=self.delay)
    }

    fn post(&mut self, after: u64, message: Message) {
        self.sequence += 1;
        self.in_flight.insert((self.now + 1 + after, self.sequence), message);
    }

    fn is_lost(&mut self, machine: usize) -> bool {
        let partitioned = self.machines[machine].partitioned_until > self.now;
        let lost = self.loss.is_some_and(|one_of| self.random.u32(0..one_of) == 0);
        partitioned || lost
    }

    fn send(&mut self, from: usize, requests: Vec<(u64, Key, Operation)>) {
        let start = self.machines[from].starts;
        for (id, key, operation) in requests {
            if !self.is_lost(from) {
                // A few take longer than the request timeout.
                let slow = if self.loss.is_some() && self.random.u32(0..30) == 0 { 1500 } else { 0 };
                let after = self.delay() + slow;
                self.post(after, Message::Request { from, start, id, key, operation });
            }
        }
    }

    fn arrive(&mut self, message: Message) {
        match message {
            Message::Request { from, start, id, key, operation } => {
                let answer = self.serve(&key, operation);
                if !self.is_lost(from) {
                    let after = self.delay();
                    self.post(after, Message::Reply { to: from, start, id, answer });
                }
            }
            // Delivered when the machine resumes.
            Message::Reply { to, .. } | Message::Watch { to, .. } if self.machines[to].paused_until > self.now => {
                let after = self.machines[to].paused_until - self.now;
                self.post(after, message);
            }
            Message::Reply { to, start, id, answer } => {
                let machine = &mut self.machines[to];
                if machine.dead || machine.starts != start {
                    return;
                }
                let clock = machine.clock(self.now);
                let requests = machine.owner.on_response(id, answer, clock);
                machine.published = machine.owner.claims();
                machine.wake = Some(Duration::ZERO);
                self.send(to, requests);
            }
            Message::Watch { to, leases } => {
                let machine = &mut self.machines[to];
                let clock = machine.clock(self.now);
                machine.owner.update_leases(&leases, clock);
                machine.published = machine.owner.claims();
                machine.wake = Some(Duration::ZERO);
            }
        }
    }

    /// Executes an operation on the API.
    fn serve(&mut self, key: &Key, operation: Operation) -> LeaseResult {
        let known = self.leases.get(key).cloned();
        let is = |version: &str| known.as_ref().is_some_and(|(_, known)| known.to_string() == *version);
        let lease = match operation {
            Operation::Get => {
                let current = known.map(|(lease, version)| Versioned { lease, version: version.to_string().into() });
                return Ok(current);
            }
            Operation::Create(lease) if known.is_none() => Some(lease),
            Operation::Replace(lease, version) if is(&version) => Some(lease),
            Operation::Delete(version) if is(&version) => None,
            _ => return Err(LeaseError::Conflict),
        };
        self.versions += 1;
        let version = self.versions;
        self.written.insert(key.clone(), self.now);
        match &lease {
            Some(lease) => self.leases.insert(key.clone(), (lease.clone(), version)),
            None => self.leases.remove(key),
        };
        for number in 0..self.machines.len() {
            self.show(number);
        }
        Ok(lease.map(|lease| Versioned { lease, version: version.to_string().into() }))
    }

    /// Sends the state to the watch of a machine, in order.
    fn show(&mut self, to: usize) {
        let leases = self.leases.iter().map(|(key, (lease, _))| (key.name().into(), lease.clone())).collect();
        let machine = &self.machines[to];
        let held_up = machine.stalled_until.max(machine.partitioned_until).saturating_sub(self.now);
        let at = (self.now + held_up + self.delay()).max(self.delivered.get(&to).copied().unwrap_or(0));
        self.delivered.insert(to, at);
        self.post(at - self.now, Message::Watch { to, leases });
    }
}

impl Machine {
    fn clock(&self, now: u64) -> Duration {
        self.offset + Duration::from_micros(now * self.rate)
    }
}
