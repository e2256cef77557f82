//! Seats across levels, against the guarantees of the module: invariants after every step, and simulated load.

mod simulation;

use proptest::prelude::*;

use super::*;

fn request(level: Level, flow: u64, width: u64) -> Request {
    Request { level, flow, width }
}

/// Starts requests of width 1 until one does not start.
fn fill(scheduler: &mut Scheduler<u64>, level: Level) -> Vec<Running> {
    let mut running = Vec::new();
    loop {
        match scheduler.arrive(Duration::ZERO, request(level, 0, 1), || 0) {
            Arrival::Started(started) => running.push(started),
            Arrival::Queued(ticket) => {
                assert!(scheduler.cancel(ticket));
                return running;
            }
            Arrival::Rejected(_) => return running,
        }
    }
}

impl<W> Scheduler<W> {
    /// The number of seats.
    fn seats(&self) -> u64 {
        self.pool + self.levels.iter().map(|state| state.limits.guaranteed).sum::<u64>()
    }

    fn in_use(&self, level: Level) -> u64 {
        self.levels[level as usize].in_use
    }

    fn has_waiting(&self, level: Level) -> bool {
        self.levels[level as usize].queues.as_ref().is_some_and(QueueSet::has_waiting)
    }
}

#[test]
fn one_level_may_use_all_seats_but_those_guaranteed_to_others() {
    let mut scheduler = Scheduler::<u64>::new(400);
    assert_eq!(scheduler.seats(), 400);
    let low = fill(&mut scheduler, Level::WorkloadLow);
    let guaranteed = |level: Level| level.limits(400).guaranteed;
    let others: u64 = Level::ALL.into_iter().filter(|level| *level != Level::WorkloadLow).map(guaranteed).sum();
    assert_eq!(low.len() as u64, 400 - others);
    for level in Level::ALL.into_iter().filter(|level| *level != Level::WorkloadLow) {
        assert_eq!(fill(&mut scheduler, level).len() as u64, guaranteed(level), "{level:?} has its own at once");
    }
}

#[test]
fn a_level_takes_back_what_it_lent_as_requests_finish() {
    let mut scheduler = Scheduler::<u64>::new(400);
    let mut low = fill(&mut scheduler, Level::WorkloadLow);
    let mut running = fill(&mut scheduler, Level::System);
    for number in 0..40 {
        let arrival = scheduler.arrive(Duration::ZERO, request(Level::WorkloadLow, number, 1), || number);
        assert!(matches!(arrival, Arrival::Queued(_)));
        let arrival = scheduler.arrive(Duration::ZERO, request(Level::System, number, 1), || 1000 + number);
        assert!(matches!(arrival, Arrival::Queued(_)));
    }
    let (lent, nominal) = (running.len() as u64, Level::System.limits(400).nominal);
    for _ in lent..nominal {
        let started = scheduler.finish(Duration::ZERO, low.pop().unwrap());
        let [(waiter, next)] = <[_; 1]>::try_from(started).unwrap();
        assert!(waiter >= 1000, "the level that lent its seats is first");
        running.push(next);
    }
    assert_eq!(scheduler.in_use(Level::System), nominal);
    // From here on both borrow, in proportion to their shares.
    let mut borrowed = 0;
    while let Some(started) = scheduler.finish(Duration::ZERO, low.pop().unwrap()).pop() {
        borrowed += 1;
        if started.0 < 1000 {
            low.push(started.1);
            break;
        }
    }
    let part = |level: Level| scheduler.in_use(level) as f64 / level.limits(400).nominal as f64;
    let (system, workloads) = (part(Level::System), part(Level::WorkloadLow));
    assert!(borrowed > 1 && system > 1.0 && (system - workloads).abs() < 0.03, "{borrowed} {system} {workloads}");
}

#[test]
fn a_level_without_queues_rejects_at_once() {
    let mut scheduler = Scheduler::<u64>::new(10);
    let held = fill(&mut scheduler, Level::CatchAll);
    let arrival = scheduler.arrive(Duration::ZERO, request(Level::CatchAll, 0, 1), || unreachable!());
    assert_eq!(arrival, Arrival::Rejected(Rejection::ConcurrencyLimit));
    for running in held {
        assert!(scheduler.finish(Duration::ZERO, running).is_empty());
    }
}

#[test]
fn a_flow_that_fills_its_queues_is_rejected_and_others_are_not() {
    let mut scheduler = Scheduler::<u64>::new(10);
    let _held = fill(&mut scheduler, Level::GlobalDefault);
    let mut waiting = 0;
    while let Arrival::Queued(_) = scheduler.arrive(Duration::ZERO, request(Level::GlobalDefault, 7, 1), || 0) {
        waiting += 1;
    }
    assert_eq!(waiting, 6 * 50, "the queues of its hand");
    let other = scheduler.arrive(Duration::ZERO, request(Level::GlobalDefault, u64::MAX / 3, 1), || 0);
    assert!(matches!(other, Arrival::Queued(_)));
}

#[test]
fn a_wide_request_is_not_passed_by_narrow_ones() {
    let mut scheduler = Scheduler::<u64>::new(400);
    let mut held = fill(&mut scheduler, Level::GlobalDefault);
    let wide = scheduler.arrive(Duration::ZERO, request(Level::GlobalDefault, 1, 5), || 1);
    assert!(matches!(wide, Arrival::Queued(_)));
    for number in 0..50 {
        let _ = scheduler.arrive(Duration::ZERO, request(Level::GlobalDefault, 1 << 40, 1), || 100 + number);
    }
    let started = scheduler.finish(Duration::ZERO, held.pop().unwrap());
    assert_eq!(started.iter().map(|(waiter, _)| *waiter).collect::<Vec<_>>(), [1], "one free seat is enough to start");
    // The four seats that it took in advance are not given away again.
    for _ in 0..4 {
        assert!(scheduler.finish(Duration::ZERO, held.pop().unwrap()).is_empty());
    }
    assert_eq!(scheduler.finish(Duration::ZERO, held.pop().unwrap()).len(), 1);
}

/// A step of a random history.
#[derive(Clone, Debug)]
enum Step {
    Arrive { level: Level, flow: u64, width: u64 },
    Finish(prop::sample::Index),
    Cancel(prop::sample::Index),
    Pass(u16),
}

fn any_step() -> impl Strategy<Value = Step> {
    let level = prop::sample::select(Level::ALL.to_vec());
    prop_oneof![
        6 => (level, 0u64..5, 0u64..12).prop_map(|(level, flow, width)| Step::Arrive { level, flow: flow << 41, width }),
        4 => any::<prop::sample::Index>().prop_map(Step::Finish),
        2 => any::<prop::sample::Index>().prop_map(Step::Cancel),
        1 => any::<u16>().prop_map(Step::Pass),
    ]
}

/// What the caller of a scheduler knows.
#[derive(Default)]
struct Caller {
    now: Duration,
    running: Vec<Running>,
    waiting: Vec<(u64, Ticket)>,
    arrived: u64,
    started: u64,
    cancelled: u64,
    rejected: u64,
}

impl Caller {
    fn step(&mut self, scheduler: &mut Scheduler<u64>, step: &Step) {
        match step {
            Step::Pass(millis) => self.now += Duration::from_millis((*millis).into()),
            Step::Arrive { level, flow, width } => {
                self.arrived += 1;
                let number = self.arrived;
                match scheduler.arrive(self.now, request(*level, *flow, *width), || number) {
                    Arrival::Started(running) => {
                        self.started += 1;
                        self.running.push(running);
                    }
                    Arrival::Queued(ticket) => self.waiting.push((number, ticket)),
                    Arrival::Rejected(_) => self.rejected += 1,
                }
            }
            Step::Finish(_) if self.running.is_empty() => {}
            Step::Finish(index) => self.finish(scheduler, index.index(self.running.len())),
            Step::Cancel(_) if self.waiting.is_empty() => {}
            Step::Cancel(index) => {
                let (_, ticket) = self.waiting.remove(index.index(self.waiting.len()));
                assert!(scheduler.cancel(ticket) && !scheduler.cancel(ticket), "it waits, and then no more");
                self.cancelled += 1;
            }
        }
    }

    fn finish(&mut self, scheduler: &mut Scheduler<u64>, place: usize) {
        let running = self.running.swap_remove(place);
        for (number, running) in scheduler.finish(self.now, running) {
            let place = self.waiting.iter().position(|(waiting, _)| *waiting == number);
            let (_, ticket) = self.waiting.remove(place.expect("it waited"));
            assert!(!scheduler.cancel(ticket), "one that has started cannot give up");
            self.started += 1;
            self.running.push(running);
        }
    }

    fn check(&self, scheduler: &Scheduler<u64>) {
        let mut committed = 0;
        scheduler.levels.iter().filter_map(|state| state.queues.as_ref()).for_each(QueueSet::check);
        for level in Level::ALL {
            let own: Vec<&Running> = self.running.iter().filter(|running| running.level == level).collect();
            let limits = scheduler.limits(level);
            let in_use = scheduler.in_use(level);
            assert_eq!(in_use, own.iter().map(|running| running.width).sum::<u64>(), "{level:?}");
            assert!(in_use < limits.most + limits.widest);
            committed += limits.guaranteed.max(own.len() as u64);
            assert!(!(scheduler.has_waiting(level) && scheduler.may_start(level)), "{level:?} waits for nothing");
            let waiting = self.waiting.iter().any(|(_, ticket)| ticket.level == level);
            assert_eq!(scheduler.has_waiting(level), waiting, "{level:?}");
        }
        // More than the promise that no more requests are executed than there are seats: those guaranteed are kept free.
        assert!(committed <= scheduler.seats(), "{committed}");
        assert_eq!(self.arrived, self.started + self.rejected + self.cancelled + self.waiting.len() as u64);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn seats_are_neither_lost_nor_idle_whatever_happens(
        total in 1u64..80,
        steps in prop::collection::vec(any_step(), 1..300),
    ) {
        let mut scheduler = Scheduler::new(total);
        let mut caller = Caller::default();
        for step in &steps {
            caller.step(&mut scheduler, step);
            caller.check(&scheduler);
        }
        // When everything that was started finishes, everything that waits is started, and all seats are free.
        while !caller.running.is_empty() {
            caller.finish(&mut scheduler, 0);
            caller.check(&scheduler);
        }
        prop_assert!(caller.waiting.is_empty());
        prop_assert_eq!(scheduler.borrowed, 0);
        prop_assert!(Level::ALL.into_iter().all(|level| scheduler.in_use(level) == 0));
    }
}
