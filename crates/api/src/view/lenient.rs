//! How members are read: nulls, numbers out of range and unknown protocols never fail an object.

use serde::Deserialize;
use serde::de::Deserializer;

use super::Protocol;

/// A member that may be null, which means the same as absent.
///
/// # Errors
/// When the value is neither null nor of the member's type.
pub fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(from: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// A number; one outside the range of its type is 0.
///
/// # Errors
/// When the value is neither null nor an integer.
pub fn number<'de, D: Deserializer<'de>, T: TryFrom<i64> + Default>(from: D) -> Result<T, D::Error> {
    Ok(Option::<i64>::deserialize(from)?.and_then(|number| T::try_from(number).ok()).unwrap_or_default())
}

/// A protocol: absent is TCP, an unknown one is none.
pub(super) fn protocol<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Protocol>, D::Error> {
    let name = Option::<std::borrow::Cow<'de, str>>::deserialize(from)?;
    Ok(name.map_or_else(tcp, |name| Protocol::named(&name)))
}

/// The protocol of a port that does not name one.
pub(super) const fn tcp() -> Option<Protocol> {
    Some(Protocol::Tcp)
}
