//! The real kernel, in network namespaces that are made for each test. Needs root, and Debian's `nftables`, `iptables` and `iproute2`.

mod addresses;
mod agreement;
mod conntrack;
mod iptables;
mod monitor;
mod namespace;
mod nft;
mod packets;
mod sample;
