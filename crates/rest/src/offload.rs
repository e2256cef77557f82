//! Runs expensive work of requests on separate threads.
//!
//! In: the work, how many bytes it reads, and its user. Out: its result. There is one connection thread per CPU, and a list of ten thousand
//! objects occupies one for tens of milliseconds: a few of them would delay every other request, whatever its priority. With separate
//! threads the kernel schedules both. Each class of users has as many threads as there are CPUs, so that administrators and nodes do not
//! wait for lists of others.

use std::sync::Arc;
use std::thread::available_parallelism;

use api::status::Status;
use tokio::sync::Semaphore;

use crate::auth::User;
use crate::memory::Class;

/// Work on fewer bytes is cheaper than changing threads.
const THRESHOLD: usize = 256 << 10;

/// See the module.
pub(crate) struct Offload {
    /// Threads that each class may use.
    slots: [Arc<Semaphore>; Class::COUNT],
}

impl Default for Offload {
    fn default() -> Self {
        let threads = available_parallelism().map_or(1, std::num::NonZero::get);
        Self { slots: std::array::from_fn(|_| Arc::new(Semaphore::new(threads))) }
    }
}

impl Offload {
    /// Runs work that reads this many bytes.
    ///
    /// # Errors
    /// The error of the work; 500 when the server shuts down before it is done.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        user: &User,
        bytes: usize,
        work: impl FnOnce() -> Result<T, Status> + Send + 'static,
    ) -> Result<T, Status> {
        if bytes < THRESHOLD {
            return work();
        }
        // Semaphores are never closed. The thread holds its slot when the request is cancelled.
        let slot = self.slots[Class::of(user) as usize].clone().acquire_owned().await;
        let done = tokio::task::spawn_blocking(move || {
            let _slot = slot;
            work()
        });
        match done.await {
            Ok(done) => done,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => Err(Status::internal("the server is going away")),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread::{ThreadId, current};

    use super::*;
    use crate::pki::MASTERS;

    fn thread() -> Result<ThreadId, Status> {
        Ok(current().id())
    }

    #[tokio::test]
    async fn only_long_work_changes_threads() {
        let (offload, alice) = (Offload::default(), User { name: "alice".into(), ..User::default() });
        let own = current().id();
        assert_eq!(offload.run(&alice, THRESHOLD - 1, thread).await.ok(), Some(own));
        assert_ne!(offload.run(&alice, THRESHOLD, thread).await.ok(), Some(own));
        let refused = offload.run(&alice, THRESHOLD, || Err::<(), _>(Status::method_not_allowed())).await;
        assert_eq!(refused.err().map(|status| status.code), Some(405));
    }

    #[tokio::test]
    async fn administrators_do_not_wait_for_the_work_of_others() {
        let offload = Arc::new(Offload::default());
        let (alice, root) = (User::default(), User { groups: vec![MASTERS.into()], ..User::default() });
        let slots = &offload.slots[Class::Other as usize];
        let all = slots.available_permits();
        let busy = slots.clone().acquire_many_owned(u32::try_from(all).unwrap()).await.unwrap();
        let waiting = tokio::spawn({
            let offload = offload.clone();
            async move { offload.run(&alice, THRESHOLD, || Ok(())).await }
        });
        assert!(offload.run(&root, THRESHOLD, || Ok(())).await.is_ok());
        assert!(!waiting.is_finished());
        drop(busy);
        assert!(waiting.await.unwrap().is_ok());
        assert_eq!(slots.available_permits(), all);
    }
}
