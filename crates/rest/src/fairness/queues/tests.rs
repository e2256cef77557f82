//! One level's queues: order, charges, and no credit for idle time.

use super::*;

const MS: Duration = Duration::from_millis(1);

impl<W> QueueSet<W> {
    /// Checks what holds at any time.
    pub(crate) fn check(&self) {
        let first = |(index, queue): (usize, &Queue<W>)| queue.first().map(|(start, number)| (start, number, index));
        assert_eq!(self.ready, self.queues.iter().enumerate().filter_map(first).collect(), "in order");
        assert!(self.ready.first().is_none_or(|(start, ..)| *start >= self.virtual_time), "none is late");
        for queue in &self.queues {
            assert_eq!(queue.waiting_seats, queue.waiting.values().map(|waiting| waiting.width).sum::<u64>());
            assert!(queue.waiting.len() <= self.length_limit && queue.estimate >= 0);
        }
    }
}

fn queues() -> QueueSet<&'static str> {
    QueueSet::new(Queuing { queues: 4, hand_size: 2, length_limit: 3 })
}

fn append(queues: &mut QueueSet<&'static str>, queue: usize, names: &[&'static str]) {
    for name in names {
        assert!(queues.append(queue, 1, || name).is_some(), "{name}");
    }
}

/// Starts everything that waits, each finishing before the next one starts.
fn order(queues: &mut QueueSet<&'static str>, took: impl Fn(&str) -> Duration) -> String {
    let mut order = Vec::new();
    while let Some(next) = queues.start_next() {
        order.push(next.waiter);
        queues.finish(next.queue, next.width, next.charged, took(next.waiter));
    }
    order.join(" ")
}

#[test]
fn queues_take_turns_however_many_requests_wait_in_each() {
    let mut queues = queues();
    append(&mut queues, 0, &["a1", "a2", "a3"]);
    append(&mut queues, 1, &["b1"]);
    append(&mut queues, 2, &["c1", "c2"]);
    assert_eq!(order(&mut queues, |_| MS), "a1 b1 c1 a2 c2 a3");
    assert!(!queues.has_waiting());
}

#[test]
fn a_queue_whose_requests_take_longer_gets_fewer_of_them() {
    let mut queues = queues();
    append(&mut queues, 0, &["slow1", "slow2", "slow3"]);
    append(&mut queues, 1, &["b1", "b2", "b3"]);
    let took = |name: &str| if name.starts_with("slow") { 3 * MS } else { MS };
    assert_eq!(order(&mut queues, took), "slow1 b1 b2 b3 slow2 slow3");
}

#[test]
fn a_wide_request_costs_as_much_as_several() {
    let mut queues = queues();
    for name in ["wide1", "wide2", "wide3"] {
        assert!(queues.append(0, 3, || name).is_some());
    }
    append(&mut queues, 1, &["b1", "b2", "b3"]);
    assert_eq!(order(&mut queues, |_| MS), "wide1 b1 b2 b3 wide2 wide3");
}

#[test]
fn requests_that_are_executed_are_charged_before_they_finish() {
    let mut queues = queues();
    let first = queues.start(0, 1);
    let second = queues.start(0, 1);
    append(&mut queues, 0, &["a3"]);
    append(&mut queues, 1, &["b1"]);
    assert_eq!(queues.start_next().map(|next| next.waiter), Some("b1"), "the other queue has none yet");
    queues.finish(0, 1, first, MS);
    queues.finish(0, 1, second, MS);
    assert_eq!(queues.start_next().map(|next| next.waiter), Some("a3"));
}

#[test]
fn a_queue_saves_up_no_credit_while_it_does_not_want_service() {
    let mut queues = queues();
    // Queue 1 has one long request and no other, while queue 0 gets a lot of service.
    let long = queues.start(1, 1);
    for _ in 0..100 {
        let charged = queues.start(0, 1);
        queues.finish(0, 1, charged, 3 * MS);
    }
    append(&mut queues, 0, &["a1", "a2", "a3"]);
    append(&mut queues, 1, &["b1", "b2", "b3"]);
    let begun: Vec<_> = (0..4).filter_map(|_| queues.start_next()).map(|next| next.waiter).collect();
    assert_eq!(begun, ["a1", "b1", "a2", "b2"], "they take turns from here on");
    queues.finish(1, 1, long, 1000 * MS);
    assert_eq!(queues.start_next().map(|next| next.waiter), Some("a3"), "the long one is paid for at its end");
}

#[test]
fn service_without_competition_is_not_charged() {
    let mut queues = queues();
    for _ in 0..100 {
        let charged = queues.start(0, 1);
        queues.finish(0, 1, charged, 1000 * MS);
    }
    append(&mut queues, 1, &["b1", "b2", "b3"]);
    append(&mut queues, 0, &["a1", "a2", "a3"]);
    assert_eq!(order(&mut queues, |_| MS), "b1 a1 b2 a2 b3 a3");
}

#[test]
fn a_flow_uses_the_queue_of_its_hand_in_which_it_starts_first() {
    let mut queues = QueueSet::new(Queuing { queues: 4, hand_size: 4, length_limit: 2 });
    let chosen: Vec<usize> = (0..8)
        .map(|_| {
            let queue = queues.choose(0);
            assert!(queues.append(queue, 1, || ()).is_some());
            queue
        })
        .collect();
    assert_eq!(chosen, [0, 1, 2, 3, 0, 1, 2, 3]);
    assert_eq!(queues.append(queues.choose(0), 1, || ()), None, "all are full");
    let next = queues.start_next().unwrap();
    assert_eq!(next.queue, 0);
    assert_eq!(queues.choose(0), 0, "the one that is not full, although it is charged already");
}

#[test]
fn a_request_that_gives_up_leaves_no_trace() {
    let mut queues = queues();
    append(&mut queues, 0, &["a1", "a2", "a3"]);
    assert_eq!(queues.append(0, 1, || unreachable!("it is not asked for a waiter")), None);
    assert!(queues.remove(0, 0) && !queues.remove(0, 0) && !queues.remove(1, 1));
    append(&mut queues, 0, &["a4"]);
    assert!(queues.remove(0, 2));
    assert_eq!(order(&mut queues, |_| MS), "a2 a4");
    assert!(queues.ready.is_empty());
    queues.check();
}
