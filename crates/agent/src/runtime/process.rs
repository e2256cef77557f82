//! Runs a program of the host in its own namespaces: it sees the host's files, its own volumes, processes and network.

use api::value::ValueExt as _;

use super::program::{Defaults, capability_bits, program};
use super::security::{DEFAULT_CAPABILITIES, Kernel, Security};
use super::{ContainerConfig, Prepared, Runtime};
use crate::container_error::ContainerError;
use crate::shim::RuntimeSpec;

/// The runtime.
pub struct Process;

impl Runtime for Process {
    fn prepare(&self, config: &ContainerConfig<'_>) -> Result<Prepared, ContainerError> {
        let mut program = program(config, &Defaults::default())?;
        // MKNOD would give access to the host's disks.
        let default_capabilities = capability_bits(&DEFAULT_CAPABILITIES) & !capability_bits(&["MKNOD"]);
        let security = Security::of(config, default_capabilities)?;
        security.apply(&mut program)?;
        let Kernel { masked, mut locked } = security.kernel_files();
        if !security.privileged {
            locked.push("/sys".into());
        }
        let staging = config.instance.join("root");
        std::fs::create_dir_all(&staging).map_err(ContainerError::create)?;
        let how = RuntimeSpec::Process {
            network: config.network.clone(),
            host_name: config.host_name.clone(),
            mounts: config.mounts.clone(),
            // It contains Secrets of other Pods and keys of the cluster.
            hidden: vec![config.machine.settings.data_dir.clone()],
            masked,
            locked,
            read_only: config.container.flag("securityContext.readOnlyRootFilesystem"),
            staging,
            all_devices: security.privileged,
        };
        Ok(Prepared { program, how, image: "host".to_owned() })
    }
}
