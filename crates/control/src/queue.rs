//! What is to be looked at, and when: each key once, one run per key at a time.
//!
//! Pure: the time flows in with every call. A key that is woken while it runs runs once more afterwards; one that failed
//! waits longer each time, a little differently each time, so that many that failed together do not come back together.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The first wait after a failure; doubled after each further one.
const FIRST_WAIT: Duration = Duration::from_millis(5);
/// The longest wait.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// A key of a controller.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct Task {
    /// Which controller, as its place in the table.
    pub(crate) controller: usize,
    /// Its key.
    pub(crate) key: Arc<str>,
}

/// A task whose time has come.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Due {
    /// The task.
    pub(crate) task: Task,
    /// Since when it has been due.
    pub(crate) since: Instant,
    /// The earliest trigger of those that woke it.
    pub(crate) trigger: Option<Box<str>>,
}

/// Everything that waits or runs.
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
    /// In `ready`, since then.
    Ready(Instant),
    /// In `later` under this place.
    Later(Instant, u64),
    /// Being run; and since when it has been wanted once more.
    Running(Option<Instant>),
}

impl Queue {
    /// Wants a task to run at a time, or earlier if it is already wanted earlier. Answers whether it did not wait before.
    pub(crate) fn add(&mut self, task: Task, now: Instant, delay: Duration, trigger: Option<Box<str>>) -> bool {
        let due = now + delay;
        let Some(item) = self.items.get_mut(&task) else {
            let state = self.place(&task, now, due);
            self.items.insert(task, Item { state, failures: 0, trigger });
            return true;
        };
        item.trigger = earliest(item.trigger.take(), trigger);
        match item.state {
            State::Ready(_) => {}
            State::Running(again) => {
                item.state = State::Running(Some(again.map_or(due, |before| before.min(due))));
            }
            State::Later(at, _) if at <= due => {}
            State::Later(at, number) => {
                self.later.remove(&(at, number));
                let state = self.place(&task, now, due);
                if let Some(item) = self.items.get_mut(&task) {
                    item.state = state;
                }
            }
        }
        false
    }

    fn place(&mut self, task: &Task, now: Instant, due: Instant) -> State {
        if due <= now {
            self.ready.push_back(task.clone());
            return State::Ready(due);
        }
        self.sequence += 1;
        self.later.insert((due, self.sequence), task.clone());
        State::Later(due, self.sequence)
    }

    /// The next task whose time has come; it is running from now on.
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

    /// A run ended well. `again` is when the controller wants to see the key without another reason. Answers whether the
    /// task waits again.
    pub(crate) fn succeeded(&mut self, task: &Task, now: Instant, again: Option<Duration>) -> bool {
        let Some(item) = self.items.remove(task) else { return false };
        let woken = match item.state {
            State::Running(woken) => woken,
            State::Ready(_) | State::Later(..) => None,
        };
        let wanted = again.map(|delay| now + delay);
        let Some(due) = woken.into_iter().chain(wanted).min() else { return false };
        self.add(task.clone(), now, due.saturating_duration_since(now), item.trigger)
    }

    /// A run failed: the task comes back after a while. `jitter` is a number from 0 to 1. The trigger of the failed run is
    /// still what its next run answers to. Answers how long it waits.
    pub(crate) fn failed(&mut self, due: Due, now: Instant, jitter: f64) -> Duration {
        let failures = self.items.remove(&due.task).map_or(0, |item| item.failures);
        let wait = FIRST_WAIT.saturating_mul(1 << failures.min(16)).min(LONGEST_WAIT).mul_f64(0.75 + jitter / 2.0);
        let state = self.place(&due.task, now, now + wait);
        self.items.insert(due.task, Item { state, failures: failures + 1, trigger: due.trigger });
        wait
    }

    /// When the next task will be due, if none is now.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.later.first_key_value().map(|((at, _), _)| *at)
    }

    /// Whether a task is due now.
    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }
}

fn earliest(a: Option<Box<str>>, b: Option<Box<str>>) -> Option<Box<str>> {
    // Times in objects have one format, so their order is that of their texts.
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
    fn a_key_is_there_once_and_in_turn() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        for key in ["a", "b", "a", "c", "b"] {
            queue.add(task(key), now, Duration::ZERO, None);
        }
        assert!(queue.has_ready());
        assert_eq!(keys(&mut queue, now), ["a", "b", "c"]);
        assert!(queue.take(now).is_none());
    }

    #[test]
    fn a_key_never_runs_twice_at_a_time_and_forgets_no_wake() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        queue.add(task("a"), now, Duration::ZERO, None);
        let due = queue.take(now).expect("due");
        queue.add(task("a"), now, Duration::ZERO, Some("2024-01-01T00:00:00Z".into()));
        assert!(queue.take(now).is_none(), "it is running");
        queue.succeeded(&due.task, now, None);
        let again = queue.take(now).expect("it was woken while it ran");
        assert_eq!(again.trigger.as_deref(), Some("2024-01-01T00:00:00Z"));
        queue.succeeded(&again.task, now, None);
        assert!(queue.take(now).is_none() && queue.items.is_empty());
    }

    #[test]
    fn the_earliest_wish_and_the_earliest_trigger_count() {
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
    fn failures_wait_longer_and_longer_and_success_forgets_them() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        queue.add(task("a"), now, Duration::ZERO, Some("x".into()));
        let mut at = now;
        let mut waits = Vec::new();
        for _ in 0..20 {
            let due = queue.take(at).expect("due");
            assert_eq!(due.trigger.as_deref(), Some("x"), "the trigger is not lost");
            let wait = queue.failed(due, at, 0.5);
            waits.push(wait);
            assert!(queue.take(at + wait / 2).is_none());
            at += wait;
        }
        assert_eq!(waits[..3], [5, 10, 20].map(Duration::from_millis));
        assert!(waits.is_sorted() && waits[19] == LONGEST_WAIT);
        let due = queue.take(at).expect("due");
        queue.succeeded(&due.task, at, None);
        queue.add(task("a"), at, Duration::ZERO, None);
        let due = queue.take(at).expect("due");
        assert_eq!(queue.failed(due, at, 0.5), FIRST_WAIT);
    }
}
