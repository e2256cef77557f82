//! `waypost cleanup`: removes every kernel object that Waypost made on this machine.

use anyhow::{Context as _, bail};
use kernel::lock::Lock;
use kernel::nft::linux::Linux;

/// Runs the command.
pub(crate) fn exec() -> anyhow::Result<()> {
    let Some(_turn) = Lock::take(super::proxy::LOCK)? else {
        bail!("a waypost serves Services on this machine and would write its rules again; stop it first");
    };
    let mut nft = Linux::open().context("opening nftables; run this as root")?;
    let found = dataplane::nftables::cleanup(&mut nft).context("removing the rules; run this as root")?;
    tracing::info!("{}", if found { "the rules are gone" } else { "there were no rules" });
    Ok(())
}
