//! A small world for owners: an API with versions, networks that delay, lose and part, machines that stand still, restart and have clocks
//! of their own. Time goes in steps of a millisecond.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use super::{Claims, Owner};
use crate::lease::{Key, Lease};
use crate::leases::{Answer, Ask, Refusal, Versioned};

/// What happens to a machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    /// It stands still for so many milliseconds, and its clock goes on.
    Pause(u64),
    /// It starts again, without having given anything back.
    Restart,
    /// It gives everything back, and starts again.
    Leave,
    /// It cannot reach the API for so many milliseconds.
    Part(u64),
    /// Its watch stands still for so many milliseconds.
    Blind(u64),
    /// It may not announce, or may again.
    Candidate(bool),
    /// It ends for ever.
    Die,
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
    parted_until: u64,
    blind_until: u64,
    wake: Option<Duration>,
    leaving: bool,
    pub(super) dead: bool,
}

/// A message on its way: when it arrives, and what it is.
enum Message {
    Request { from: usize, start: u64, id: u64, key: Key, ask: Ask },
    Reply { to: usize, start: u64, id: u64, answer: Answer },
    Shown { to: usize, leases: BTreeMap<Box<str>, Lease> },
}

pub(super) struct World {
    pub(super) now: u64,
    pub(super) machines: Vec<Machine>,
    leases: BTreeMap<Key, (Lease, u64)>,
    versions: u64,
    under_way: BTreeMap<(u64, u64), Message>,
    sequence: u64,
    random: fastrand::Rng,
    /// The longest way of a message, in milliseconds; and of how many one is lost, if any.
    pub(super) delay: u64,
    pub(super) loss: Option<u32>,
    candidates: BTreeSet<usize>,
    addresses: Vec<IpAddr>,
    /// Whether anybody wants them to be answered for.
    wanted: bool,
    /// When the watch of a machine was last told of something: it hears things in their order.
    told: BTreeMap<usize, u64>,
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
            under_way: BTreeMap::new(),
            sequence: 0,
            delay: 20,
            loss: None,
            candidates: (0..machines).collect(),
            addresses: (0..addresses).map(|n| IpAddr::from([192, 0, 2, u8::try_from(n).expect("few")])).collect(),
            wanted: true,
            told: BTreeMap::new(),
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
                parted_until: 0,
                blind_until: 0,
                wake: Some(Duration::ZERO),
                leaving: false,
                dead: false,
            });
        }
        world.tell_wishes();
        world
    }

    pub(super) fn addresses(&self) -> &[IpAddr] {
        &self.addresses
    }

    /// Nobody wants any address any more.
    pub(super) fn want_nothing(&mut self) {
        self.wanted = false;
        self.tell_wishes();
    }

    /// The Leases that somebody has.
    pub(super) fn kept(&self) -> Vec<String> {
        self.leases.iter().filter(|(_, (lease, _))| !lease.holder.is_empty()).map(|(key, _)| key.name()).collect()
    }

    fn tell_wishes(&mut self) {
        let nodes: BTreeSet<Box<str>> =
            self.candidates.iter().map(|number| self.machines[*number].name.as_str().into()).collect();
        let addresses = self.addresses.iter().filter(|_| self.wanted);
        let wanted: BTreeMap<_, _> = addresses.map(|ip| (*ip, nodes.clone())).collect();
        for machine in &mut self.machines {
            machine.owner.want(wanted.clone());
            machine.wake = Some(Duration::ZERO);
        }
    }

    pub(super) fn fate(&mut self, number: usize, fate: Fate) {
        let now = self.now;
        let machine = &mut self.machines[number];
        match fate {
            Fate::Pause(long) => machine.paused_until = now + long,
            Fate::Part(long) => machine.parted_until = now + long,
            Fate::Blind(long) => machine.blind_until = now + long,
            Fate::Restart => self.restart(number),
            Fate::Leave => {
                machine.owner.stop();
                machine.leaving = true;
                machine.wake = Some(Duration::ZERO);
            }
            Fate::Candidate(may) => {
                if may {
                    self.candidates.insert(number)
                } else {
                    self.candidates.remove(&number)
                };
                self.tell_wishes();
            }
            Fate::Die => {
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
        self.tell_wishes();
        self.show(number);
    }

    /// Who answers for an address at this moment.
    pub(super) fn answering(&self, ip: IpAddr) -> Vec<&str> {
        let answers = |machine: &&Machine| {
            let clock = machine.clock(self.now);
            let awake = !machine.dead && machine.paused_until <= self.now;
            awake && clock < machine.published.until && machine.published.addresses.contains_key(&ip)
        };
        self.machines.iter().filter(answers).map(|machine| machine.name.as_str()).collect()
    }

    /// A millisecond passes.
    pub(super) fn step(&mut self) {
        self.now += 1;
        while let Some((&(at, sequence), _)) = self.under_way.first_key_value() {
            if at > self.now {
                break;
            }
            if let Some(message) = self.under_way.remove(&(at, sequence)) {
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
            let turn = machine.owner.turn(clock);
            machine.wake = turn.wake;
            machine.published = machine.owner.claims();
            if machine.leaving && machine.owner.is_done() {
                self.restart(number);
            }
            self.send(number, turn.asks);
        }
    }

    /// A controller removes Leases that nobody has renewed for long: of nodes, and of addresses whose nodes have none.
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
            let _ = self.serve(&key, Ask::Delete(version.to_string().into()));
        }
    }

    fn way(&mut self) -> u64 {
        self.random.u64(0..=self.delay)
    }

    fn post(&mut self, after: u64, message: Message) {
        self.sequence += 1;
        self.under_way.insert((self.now + 1 + after, self.sequence), message);
    }

    fn is_lost(&mut self, machine: usize) -> bool {
        let parted = self.machines[machine].parted_until > self.now;
        let lost = self.loss.is_some_and(|one_of| self.random.u32(0..one_of) == 0);
        parted || lost
    }

    fn send(&mut self, from: usize, asks: Vec<(u64, Key, Ask)>) {
        let start = self.machines[from].starts;
        for (id, key, ask) in asks {
            if !self.is_lost(from) {
                // A few take very long, longer than anybody waits.
                let slow = if self.loss.is_some() && self.random.u32(0..30) == 0 { 1500 } else { 0 };
                let after = self.way() + slow;
                self.post(after, Message::Request { from, start, id, key, ask });
            }
        }
    }

    fn arrive(&mut self, message: Message) {
        match message {
            Message::Request { from, start, id, key, ask } => {
                let answer = self.serve(&key, ask);
                if !self.is_lost(from) {
                    let after = self.way();
                    self.post(after, Message::Reply { to: from, start, id, answer });
                }
            }
            // It comes when the machine goes on.
            Message::Reply { to, .. } | Message::Shown { to, .. } if self.machines[to].paused_until > self.now => {
                let after = self.machines[to].paused_until - self.now;
                self.post(after, message);
            }
            Message::Reply { to, start, id, answer } => {
                let machine = &mut self.machines[to];
                if machine.dead || machine.starts != start {
                    return;
                }
                let clock = machine.clock(self.now);
                let asks = machine.owner.answer(id, answer, clock);
                machine.published = machine.owner.claims();
                machine.wake = Some(Duration::ZERO);
                self.send(to, asks);
            }
            Message::Shown { to, leases } => {
                let machine = &mut self.machines[to];
                let clock = machine.clock(self.now);
                machine.owner.see(&leases, clock);
                machine.published = machine.owner.claims();
                machine.wake = Some(Duration::ZERO);
            }
        }
    }

    /// The API does what it was asked.
    fn serve(&mut self, key: &Key, ask: Ask) -> Answer {
        let known = self.leases.get(key).cloned();
        let is = |version: &str| known.as_ref().is_some_and(|(_, known)| known.to_string() == *version);
        let lease = match ask {
            Ask::Get => {
                let now_is = known.map(|(lease, version)| Versioned { lease, version: version.to_string().into() });
                return Ok(now_is);
            }
            Ask::Create(lease) if known.is_none() => Some(lease),
            Ask::Replace(lease, version) if is(&version) => Some(lease),
            Ask::Delete(version) if is(&version) => None,
            _ => return Err(Refusal::TooLate),
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

    /// The watch of a machine hears how things are, in order.
    fn show(&mut self, to: usize) {
        let leases = self.leases.iter().map(|(key, (lease, _))| (key.name().into(), lease.clone())).collect();
        let machine = &self.machines[to];
        let held_up = machine.blind_until.max(machine.parted_until).saturating_sub(self.now);
        let at = (self.now + held_up + self.way()).max(self.told.get(&to).copied().unwrap_or(0));
        self.told.insert(to, at);
        self.post(at - self.now, Message::Shown { to, leases });
    }
}

impl Machine {
    fn clock(&self, now: u64) -> Duration {
        self.offset + Duration::from_micros(now * self.rate)
    }
}
