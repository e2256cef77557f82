//! Watches a table with the kernel's nftables monitor and reports changes by other programs.
//!
//! In: the table, and the kernel's generation number after our last write. Out: a thread that calls back on tampering.

use kernel::nft::Nft;

use crate::{BackendError, TamperCallback};

/// Starts the watcher.
///
/// # Errors
/// When the monitor socket is refused or no thread can be started.
pub(crate) fn watch(
    nft: &mut impl Nft,
    table: &str,
    generation: u32,
    on_tampering: TamperCallback,
) -> Result<(), BackendError> {
    let mut monitor = nft.monitor(table)?;
    if nft.generation()? != generation {
        // The table changed before the monitor was open.
        on_tampering();
    }
    let listen = move || {
        while let Ok(touch) = monitor.wait(None) {
            if touch.is_some() && !on_tampering() {
                return;
            }
        }
    };
    let thread = std::thread::Builder::new().name("rules".to_owned()).spawn(listen);
    thread.map(drop).map_err(|error| BackendError { message: format!("cannot start the watcher thread: {error}") })
}
