//! The work queue: keys are deduplicated, and a key is processed by one run at a time.
//!
//! Pure: the time is a parameter. A key that is added while it runs is processed again afterwards; a failed one is retried with exponential backoff
//! and jitter.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The backoff after the first failure; doubled after each further one.
const MIN_BACKOFF: Duration = Duration::from_millis(5);
/// The longest backoff.
const MAX_BACKOFF: Duration = Duration::from_secs(60);

/// A key of a controller.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct Task {
    /// The index of the controller in the table.
    pub(crate) controller: usize,
    /// Its key.
    pub(crate) key: Arc<str>,
}

/// A task that is due.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Due {
    /// The task.
    pub(crate) task: Task,
    /// When it became due.
    pub(crate) since: Instant,
    /// The earliest trigger.
    pub(crate) trigger: Option<Box<str>>,
}

/// All queued and running tasks.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    items: HashMap<Task, Item>,
    ready: VecDeque<Task>,
    later: BTreeMap<(Instant, u64), Task>,
    sequence: u64,
}

#[derive(Debug)]
struct Item {
    state: State,
    failures: u32,
    trigger: Option<Box<str>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// In `ready`, since this time.
    Ready(Instant),
    /// In `later`, with this key.
    Later(Instant, u64),
    /// Running; with the time of the next run, if it was added meanwhile.
    Running(Option<Instant>),
}

impl Queue {
    /// Adds a task; an earlier due time is kept. True when it was not queued before.
    pub(crate) fn add(&mut self, task: Task, now: Instant, delay: Duration, trigger: Option<Box<str>>) -> bool {
        let due = now + delay;
        let Some(item) = self.items.get_mut(&task) else {
            let state = self.schedule(&task, now, due);
            self.items.insert(task, Item { state, failures: 0, trigger });
            return true;
        };
        item.trigger = earliest(item.trigger.take(), trigger);
        match item.state {
            State::Ready(_) => {}
            State::Running(requeue_after) => {
                item.state = State::Running(Some(requeue_after.map_or(due, |before| before.min(due))));
            }
            State::Later(at, _) if at <= due => {}
            State::Later(at, number) => {
                self.later.remove(&(at, number));
                let state = self.schedule(&task, now, due);
                if let Some(item) = self.items.get_mut(&task) {
                    item.state = state;
                }
            }
        }
        false
    }

    fn schedule(&mut self, task: &Task, now: Instant, due: Instant) -> State {
        if due <= now {
            self.ready.push_back(task.clone());
            return State::Ready(due);
        }
        self.sequence += 1;
        self.later.insert((due, self.sequence), task.clone());
        State::Later(due, self.sequence)
    }

    /// Takes the next due task, which is then running.
    pub(crate) fn take(&mut self, now: Instant) -> Option<Due> {
        while let Some(first) = self.later.first_entry().filter(|first| first.key().0 <= now) {
            let at = first.key().0;
            let task = first.remove();
            if let Some(item) = self.items.get_mut(&task) {
                item.state = State::Ready(at);
            }
            self.ready.push_back(task);
        }
        let task = self.ready.pop_front()?;
        let item = self.items.get_mut(&task)?;
        let since = match item.state {
            State::Ready(since) => since,
            State::Later(..) | State::Running(_) => now,
        };
        item.state = State::Running(None);
        Some(Due { task, since, trigger: item.trigger.take() })
    }

    /// Completes a run. `requeue_after` schedules the next run. True when the task is queued again.
    pub(crate) fn succeeded(&mut self, task: &Task, now: Instant, requeue_after: Option<Duration>) -> bool {
        let Some(item) = self.items.remove(task) else { return false };
        let requested = match item.state {
            State::Running(requested) => requested,
            State::Ready(_) | State::Later(..) => None,
        };
        let wanted = requeue_after.map(|delay| now + delay);
        let Some(due) = requested.into_iter().chain(wanted).min() else { return false };
        self.add(task.clone(), now, due.saturating_duration_since(now), item.trigger)
    }

    /// Requeues a failed task with backoff; `jitter` is between 0 and 1. The trigger is kept for the next run. Returns the backoff.
    pub(crate) fn failed(&mut self, due: Due, now: Instant, jitter: f64) -> Duration {
        let failures = self.items.remove(&due.task).map_or(0, |item| item.failures);
        let backoff = MIN_BACKOFF.saturating_mul(1 << failures.min(16)).min(MAX_BACKOFF).mul_f64(0.75 + jitter / 2.0);
        let state = self.schedule(&due.task, now, now + backoff);
        self.items.insert(due.task, Item { state, failures: failures + 1, trigger: due.trigger });
        backoff
    }

    /// When the next delayed task is due.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.later.first_key_value().map(|((at, _), _)| *at)
    }

    /// Whether a task is due now.
    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }
}

fn earliest(a: Option<Box<str>>, b: Option<Box<str>>) -> Option<Box<str>> {
    // Timestamps have one format, so they sort as text.
    a.into_iter().chain(b).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(key: &str) -> Task {
        Task { controller: 0, key: key.into() }
    }

    fn keys(queue: &mut Queue, now: Instant) -> Vec<String> {
        std::iter::from_fn(|| queue.take(now)).map(|due| due.task.key.to_string()).collect()
    }

    #[test]
    fn keys_are_deduplicated_and_fifo() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        for key in ["a", "b", "a", "c", "b"] {
            queue.add(task(key), now, Duration::ZERO, None);
        }
        assert!(queue.has_ready());
        assert_eq!(keys(&mut queue, now), ["a", "b", "c"]);
        assert!(queue.take(now).is_none());
    }

    #[test]
    fn a_key_added_while_it_runs_is_processed_again_afterwards() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        queue.add(task("a"), now, Duration::ZERO, None);
        let due = queue.take(now).expect("due");
        queue.add(task("a"), now, Duration::ZERO, Some("2024-01-01T00:00:00Z".into()));
        assert!(queue.take(now).is_none(), "it is running");
        queue.succeeded(&due.task, now, None);
        let requeue_after = queue.take(now).expect("it was woken while it ran");
        assert_eq!(requeue_after.trigger.as_deref(), Some("2024-01-01T00:00:00Z"));
        queue.succeeded(&requeue_after.task, now, None);
        assert!(queue.take(now).is_none() && queue.items.is_empty());
    }

    #[test]
    fn the_earliest_due_time_and_trigger_win() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        let second = Duration::from_secs(1);
        queue.add(task("a"), now, second * 5, Some("2024-01-02T00:00:00Z".into()));
        queue.add(task("a"), now, second, Some("2024-01-01T00:00:00Z".into()));
        queue.add(task("a"), now, second * 9, None);
        assert_eq!(queue.next_due(), Some(now + second));
        assert!(queue.take(now).is_none());
        let due = queue.take(now + second).expect("due after a second");
        assert_eq!(due.trigger.as_deref(), Some("2024-01-01T00:00:00Z"));
        assert_eq!(due.since, now + second);
        queue.succeeded(&due.task, now + second, Some(second));
        assert_eq!(queue.next_due(), Some(now + second * 2));
    }

    #[test]
    fn failures_back_off_and_success_resets_the_backoff() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        queue.add(task("a"), now, Duration::ZERO, Some("x".into()));
        let mut at = now;
        let mut waits = Vec::new();
        for _ in 0..20 {
            let due = queue.take(at).expect("due");
            assert_eq!(due.trigger.as_deref(), Some("x"), "the trigger is not lost");
            let backoff = queue.failed(due, at, 0.5);
            waits.push(backoff);
            assert!(queue.take(at + backoff / 2).is_none());
            at += backoff;
        }
        assert_eq!(waits[..3], [5, 10, 20].map(Duration::from_millis));
        assert!(waits.is_sorted() && waits[19] == MAX_BACKOFF);
        let due = queue.take(at).expect("due");
        queue.succeeded(&due.task, at, None);
        queue.add(task("a"), at, Duration::ZERO, None);
        let due = queue.take(at).expect("due");
        assert_eq!(queue.failed(due, at, 0.5), MIN_BACKOFF);
    }
}
