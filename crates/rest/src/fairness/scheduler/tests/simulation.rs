//! Simulated load: what flows get from a scheduler over time, and how long they wait for it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use super::super::super::shuffle::Hand;
use super::*;

const MS: Duration = Duration::from_millis(1);
/// The level that is loaded.
const LEVEL: Level = Level::WorkloadLow;

/// A source of requests of one flow.
#[derive(Clone, Copy)]
struct Flow {
    width: u64,
    /// How long each request takes.
    takes: Duration,
    /// How many it keeps waiting or executing, sending a new one as one finishes; zero if the test sends them.
    open: usize,
}

struct Job {
    flow: usize,
    arrived: Duration,
    started: Option<Duration>,
}

struct Simulation {
    scheduler: Scheduler<usize>,
    now: Duration,
    flows: Vec<Flow>,
    hashes: Vec<u64>,
    jobs: Vec<Job>,
    running: BTreeMap<usize, Running>,
    ends: BinaryHeap<Reverse<(Duration, usize)>>,
    /// Seat-time that each flow has got from finished requests.
    service: Vec<Duration>,
    /// Requests of each flow that are not finished.
    open: Vec<usize>,
}

/// Hashes of flows that share no queue.
fn hashes() -> impl Iterator<Item = u64> {
    let mut taken = BTreeSet::new();
    let mut random = 1u64;
    std::iter::repeat_with(move || {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        random ^ (random >> 33)
    })
    .filter(move |hash| {
        let hand = Hand::deal(*hash, 128, 6);
        let is_apart = hand.queues().all(|queue| !taken.contains(&queue));
        taken.extend(hand.queues().filter(|_| is_apart));
        is_apart
    })
}

impl Simulation {
    fn new(total: u64, flows: &[Flow]) -> Self {
        let (scheduler, count) = (Scheduler::new(total), flows.len());
        Self {
            scheduler,
            now: Duration::ZERO,
            flows: flows.to_vec(),
            hashes: hashes().take(count).collect(),
            jobs: Vec::new(),
            running: BTreeMap::new(),
            ends: BinaryHeap::new(),
            service: vec![Duration::ZERO; count],
            open: vec![0; count],
        }
    }

    /// Sends a request.
    fn send(&mut self, flow: usize) -> usize {
        let number = self.jobs.len();
        self.jobs.push(Job { flow, arrived: self.now, started: None });
        self.open[flow] += 1;
        let request = request(LEVEL, self.hashes[flow], self.flows[flow].width);
        match self.scheduler.arrive(self.now, request, || number) {
            Arrival::Started(running) => self.start(number, running),
            Arrival::Queued(_) => {}
            Arrival::Rejected(_) => panic!("the simulated queues are long enough"),
        }
        number
    }

    fn start(&mut self, job: usize, running: Running) {
        self.jobs[job].started = Some(self.now);
        let end = self.now + self.flows[self.jobs[job].flow].takes;
        self.ends.push(Reverse((end, job)));
        self.running.insert(job, running);
    }

    /// Runs until a time.
    fn run(&mut self, until: Duration) {
        self.top_up();
        while let Some(Reverse((end, job))) = self.ends.peek().copied()
            && end <= until
        {
            self.ends.pop();
            self.now = end;
            let running = self.running.remove(&job).expect("it is running");
            let flow = self.jobs[job].flow;
            self.service[flow] += self.flows[flow].takes * u32::try_from(running.width()).unwrap();
            self.open[flow] -= 1;
            for (next, running) in self.scheduler.finish(self.now, running) {
                self.start(next, running);
            }
            self.top_up();
        }
        self.now = until;
    }

    fn top_up(&mut self) {
        for flow in 0..self.flows.len() {
            while self.open[flow] < self.flows[flow].open {
                self.send(flow);
            }
        }
    }

    /// The seat-time that each flow gets in a period, in seconds.
    fn measure(&mut self, period: Duration) -> Vec<f64> {
        let before = self.service.clone();
        self.run(self.now + period);
        self.service.iter().zip(before).map(|(after, before)| (*after - before).as_secs_f64()).collect()
    }

    fn waited(&self, job: usize) -> Duration {
        self.jobs[job].started.map_or(Duration::MAX, |started| started - self.jobs[job].arrived)
    }
}

fn flow(takes: Duration, open: usize) -> Flow {
    Flow { width: 1, takes, open }
}

fn assert_equal_within(parts: &[f64], percent: f64) {
    let mean = parts.iter().sum::<f64>() / parts.len() as f64;
    let worst = parts.iter().map(|part| (part - mean).abs() / mean * 100.0).fold(0.0, f64::max);
    assert!(worst <= percent, "{parts:?} differ by {worst:.1} % from {mean:.1}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn one_request_waits_for_at_most_one_of_every_queue_in_use(
        total in 1u64..60,
        greedy in prop::collection::vec((1u64..5, 1u32..300, 1usize..280), 1..8),
        light in 1usize..10,
        pause in 1u32..1000,
    ) {
        let greedy_flow = |(width, takes, open): &(u64, u32, usize)| Flow { width: *width, ..flow(*takes * MS, *open) };
        let mut flows: Vec<Flow> = greedy.iter().map(greedy_flow).collect();
        let slowest = flows.iter().map(|flow| flow.takes).max().unwrap();
        let queues: usize = light + flows.iter().map(|flow| flow.open.min(6)).sum::<usize>();
        flows.resize(greedy.len() + light, flow(MS, 0));
        let mut simulation = Simulation::new(total, &flows);
        simulation.run(2000 * MS + pause * MS);
        let requests = simulation.running.len();
        let jobs: Vec<usize> = (greedy.len()..flows.len()).map(|flow| simulation.send(flow)).collect();
        simulation.run(simulation.now + 100 * slowest);
        let longest = jobs.iter().map(|job| simulation.waited(*job)).max().unwrap();
        let bound = slowest.mul_f64(queues as f64 / requests as f64 + 1.0);
        prop_assert!(longest <= bound, "{:?} instead of {:?} with {} at once", longest, bound, requests);
    }
}

#[test]
fn the_number_of_waiting_requests_gives_no_advantage() {
    let open = [20, 250, 60, 250];
    let mut simulation = Simulation::new(20, &open.map(|open| flow(5 * MS, open)));
    simulation.run(1000 * MS);
    assert_equal_within(&simulation.measure(20_000 * MS), 5.0);
}

#[test]
fn long_requests_give_no_advantage() {
    let takes = [MS, 10 * MS, 100 * MS, 2000 * MS];
    let mut simulation = Simulation::new(20, &takes.map(|takes| flow(takes, 250)));
    simulation.run(10_000 * MS);
    assert_equal_within(&simulation.measure(300_000 * MS), 5.0);
}

#[test]
fn wide_requests_give_no_advantage() {
    let flows = [Flow { width: 3, ..flow(5 * MS, 250) }, flow(5 * MS, 250)];
    let mut simulation = Simulation::new(100, &flows);
    simulation.run(1000 * MS);
    assert_equal_within(&simulation.measure(20_000 * MS), 5.0);
}

#[test]
fn bursts_give_no_advantage() {
    let mut simulation = Simulation::new(20, &[flow(50 * MS, 250), flow(50 * MS, 0)]);
    simulation.run(5000 * MS);
    let before = simulation.service.clone();
    // The second flow sends a burst, and the next one when it has got all of it.
    for _ in 0..40 {
        let burst: Vec<usize> = (0..30).map(|_| simulation.send(1)).collect();
        while simulation.open[1] > 0 {
            simulation.run(simulation.now + 10 * MS);
        }
        assert!(burst.iter().all(|job| simulation.waited(*job) < 1000 * MS), "it is not starved either");
    }
    let [steady, bursts] = [0, 1].map(|flow| (simulation.service[flow] - before[flow]).as_secs_f64());
    assert!(bursts <= steady * 1.1, "{bursts} of {}", steady + bursts);
}

#[test]
fn seats_without_competition_are_not_charged_to_a_flow() {
    let mut simulation = Simulation::new(20, &[flow(200 * MS, 250), flow(200 * MS, 0)]);
    simulation.run(60_000 * MS);
    simulation.flows[1].open = 250;
    simulation.run(simulation.now + 1000 * MS);
    assert_equal_within(&simulation.measure(2000 * MS), 10.0);
}
