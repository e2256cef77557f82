//! Periodic measurement of the ephemeral storage of a Pod that limits it.

use std::time::Duration;

use tokio::sync::Semaphore;

use super::{PodEvent, Worker};
use crate::decide::eviction;
use crate::storage;

/// Pause between two measurements of a Pod.
const INTERVAL: Duration = Duration::from_secs(30);

/// Measurements read many directories: only one at a time on this node.
static MEASURING: Semaphore = Semaphore::const_new(1);

impl Worker {
    /// Measures the storage of the Pod until it ends. Limits of storage and volumes cannot change.
    pub(super) fn watch_storage(&mut self) {
        if !eviction::is_limited(&self.pod) {
            return;
        }
        let (pod, dir, queue) = (self.pod.clone(), self.dir.clone(), self.queue.clone());
        self.work.spawn(async move {
            let mut last = None;
            loop {
                tokio::time::sleep(INTERVAL).await;
                let Ok(permit) = MEASURING.acquire().await else { return };
                let (pod, dir) = (pod.clone(), dir.clone());
                // The permit is held until the measurement has ended, even if this task is aborted.
                let work = move || {
                    let _permit = permit;
                    storage::measure(&pod, &dir)
                };
                let Ok(usage) = tokio::task::spawn_blocking(work).await else { return };
                if last.as_ref() != Some(&usage) {
                    last = Some(usage.clone());
                    if queue.send(PodEvent::StorageMeasured(usage)).is_err() {
                        return;
                    }
                }
            }
        });
    }
}
