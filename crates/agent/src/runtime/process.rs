//! A program of this machine in namespaces of its own: it sees the machine's files, its own volumes, its own processes and network.

use api::value::ValueExt as _;

use super::program::{Defaults, USUAL, all, capabilities, capability_bits, program};
use super::{Made, Refused, Runtime, Wish};
use crate::shim::How;

/// The runtime.
pub struct Process;

impl Runtime for Process {
    fn prepare(&self, wish: &Wish<'_>) -> Result<Made, Refused> {
        let mut program = program(wish, &Defaults::default())?;
        let privileged = wish.container.flag("securityContext.privileged");
        // Whoever may make devices reads the disk past all that is hidden here.
        let usual = capability_bits(&USUAL) & !capability_bits(&["MKNOD"]);
        let base = if privileged { all() } else { usual };
        program.capabilities = Some(capabilities(wish.container, base).unwrap_or(base));
        let staging = wish.instance.join("root");
        std::fs::create_dir_all(&staging).map_err(Refused::create)?;
        let how = How::Process {
            network: wish.network.clone(),
            host_name: wish.host_name.clone(),
            mounts: wish.mounts.clone(),
            // Other Pods' secrets are in there, and the keys of the cluster.
            hidden: vec![wish.machine.settings.data_dir.clone()],
            read_only: wish.container.flag("securityContext.readOnlyRootFilesystem"),
            staging,
            all_devices: privileged,
        };
        Ok(Made { program, how, image: "host".to_owned() })
    }
}
