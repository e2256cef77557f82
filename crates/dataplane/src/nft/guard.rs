//! Watches over a table: the kernel tells of every change, and of those that others made the loop is told.
//!
//! In: the table, and how the kernel numbered what we wrote last. Out: a thread that tells, for as long as anybody listens.

use kernel::nft::Nft;

use crate::{BackendError, Tampered};

/// Begins to watch.
///
/// # Errors
/// When listening is not allowed, or there is no thread to be had.
pub(crate) fn watch(nft: &mut impl Nft, table: &str, generation: u32, tampered: Tampered) -> Result<(), BackendError> {
    let mut monitor = nft.monitor(table)?;
    if nft.generation()? != generation {
        // Somebody was quicker than our listening.
        tampered();
    }
    let listen = move || {
        while let Ok(touch) = monitor.wait(None) {
            if touch.is_some() && !tampered() {
                return;
            }
        }
    };
    let thread = std::thread::Builder::new().name("rules".to_owned()).spawn(listen);
    thread.map(drop).map_err(|error| BackendError { what: format!("starting a thread: {error}") })
}
