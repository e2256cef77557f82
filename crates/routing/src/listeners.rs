//! Listeners: what each is for itself ([`validity`]), which of them can live together ([`conflicts`]), whose TLS settings
//! overlap ([`overlap`]), and which routes they take ([`kinds`]).

pub(crate) mod conflicts;
pub(crate) mod kinds;
pub(crate) mod overlap;
pub(crate) mod validity;
