//! The kinds of tables a program can build: complete ones, and those that leave balancing to IPVS.

use std::collections::BTreeMap;

use api::ip::Family;
use kernel::nft::{Chain, Name, Set};
use plan::{Frontend, Options, Role, ServicePort};

use super::fragment::{self, Fragment};
use super::shapes::Shape;
use super::{TABLE, TABLE_BESIDE_IPVS, ipvs, ruleset};

/// Kind of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum TableKind {
    /// nftables does everything.
    #[default]
    Nftables,
    /// IPVS balances; nftables does the rest.
    Ipvs,
}

impl TableKind {
    /// Name of the tables.
    pub(crate) const fn table(self) -> &'static str {
        match self {
            Self::Nftables => TABLE,
            Self::Ipvs => TABLE_BESIDE_IPVS,
        }
    }

    /// Chains that do not depend on Services.
    pub(super) fn chains(self, options: &Options, family: Family) -> BTreeMap<Name, Chain> {
        match self {
            Self::Nftables => ruleset::chains(options, family),
            Self::Ipvs => ipvs::chains(options, family),
        }
    }

    /// Shapes whose chains are created with the table.
    pub(super) fn prepared(self) -> impl Iterator<Item = Shape> {
        Shape::prepared().filter(move |_| self == Self::Nftables)
    }

    /// Sets that always exist.
    pub(super) fn sets(self) -> BTreeMap<Name, Set> {
        match self {
            Self::Nftables => ruleset::sets(),
            Self::Ipvs => ipvs::sets(),
        }
    }

    /// The elements and chains of a Service port.
    pub(super) fn fragment(self, options: &Options, port: &ServicePort, owned: &[(Frontend, Role)]) -> Fragment {
        match self {
            Self::Nftables => fragment::of(options, port, owned),
            Self::Ipvs => ipvs::fragment(options, port, owned),
        }
    }
}
