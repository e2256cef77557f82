//! What already runs becomes endpoints: programs, containers of podman, units of systemd, behind real Services with real packets.

mod machine;
mod podman;
mod registered;
mod systemd;
