//! Which tables a program makes: those that do everything, or those that leave the balancing to IPVS.

use std::collections::BTreeMap;

use api::ip::Family;
use kernel::nft::{Chain, Name, Set};
use plan::{Frontend, Options, Role, ServicePort};

use super::fragment::{self, Fragment};
use super::shapes::Shape;
use super::{TABLE, TABLE_BESIDE_IPVS, beside_ipvs, ruleset};

/// A style.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Style {
    /// The tables do everything.
    #[default]
    Alone,
    /// IPVS balances; the tables do what it cannot.
    BesideIpvs,
}

impl Style {
    /// The name of its tables.
    pub(crate) const fn table(self) -> &'static str {
        match self {
            Self::Alone => TABLE,
            Self::BesideIpvs => TABLE_BESIDE_IPVS,
        }
    }

    /// The chains that do not depend on Services.
    pub(super) fn chains(self, options: &Options, family: Family) -> BTreeMap<Name, Chain> {
        match self {
            Self::Alone => ruleset::chains(options, family),
            Self::BesideIpvs => beside_ipvs::chains(options, family),
        }
    }

    /// The shapes whose chains are there before anybody needs them.
    pub(super) fn prepared(self) -> impl Iterator<Item = Shape> {
        Shape::prepared().filter(move |_| self == Self::Alone)
    }

    /// The sets that are always there.
    pub(super) fn sets(self) -> BTreeMap<Name, Set> {
        match self {
            Self::Alone => ruleset::sets(),
            Self::BesideIpvs => beside_ipvs::sets(),
        }
    }

    /// What a Service port adds.
    pub(super) fn fragment(self, options: &Options, port: &ServicePort, owned: &[(Frontend, Role)]) -> Fragment {
        match self {
            Self::Alone => fragment::of(options, port, owned),
            Self::BesideIpvs => beside_ipvs::fragment(options, port, owned),
        }
    }
}
