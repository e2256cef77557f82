//! A program of this machine in namespaces of its own: it sees the machine's files, its own volumes, its own processes and network.

use api::value::ValueExt as _;

use super::program::{Defaults, capability_bits, program};
use super::security::{Kernel, Security, USUAL};
use super::{Made, Refused, Runtime, Wish};
use crate::shim::How;

/// The runtime.
pub struct Process;

impl Runtime for Process {
    fn prepare(&self, wish: &Wish<'_>) -> Result<Made, Refused> {
        let mut program = program(wish, &Defaults::default())?;
        // Whoever may make devices reads the disk past all that is hidden here.
        let usual = capability_bits(&USUAL) & !capability_bits(&["MKNOD"]);
        let security = Security::of(wish, usual)?;
        security.bind(&mut program)?;
        let Kernel { masked, mut locked } = security.kernel_files();
        if !security.privileged {
            locked.push("/sys".into());
        }
        let staging = wish.instance.join("root");
        std::fs::create_dir_all(&staging).map_err(Refused::create)?;
        let how = How::Process {
            network: wish.network.clone(),
            host_name: wish.host_name.clone(),
            mounts: wish.mounts.clone(),
            // Other Pods' secrets are in there, and the keys of the cluster.
            hidden: vec![wish.machine.settings.data_dir.clone()],
            masked,
            locked,
            read_only: wish.container.flag("securityContext.readOnlyRootFilesystem"),
            staging,
            all_devices: security.privileged,
        };
        Ok(Made { program, how, image: "host".to_owned() })
    }
}
