//! Canaries: an Ingress whose backends receive a part of the requests of another one with the same host and path.

use http::HeaderName;

use crate::ingress::reader::Reader;
use crate::ingress::table::HeaderTest;
use crate::policy::Pattern;

/// Which requests a canary receives: by header, then by cookie, then by weight.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Canary {
    /// By a header.
    pub(crate) header: Option<(HeaderName, CanaryHeader)>,
    /// By a cookie with the value `always` or `never`.
    pub(crate) cookie: Option<Box<str>>,
    /// Its share of all other requests, in proportion to `total`.
    pub(crate) weight: u32,
    /// The sum of its weight and that of the other backend; at least 100.
    pub(crate) total: u32,
}

/// Which values of the header lead to the canary.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum CanaryHeader {
    /// `always` does, `never` leads to the other backend.
    AlwaysOrNever,
    /// This one does.
    Test(HeaderTest),
}

/// The values that decide.
pub(crate) const ALWAYS: &str = "always";
/// The value that excludes the canary.
pub(crate) const NEVER: &str = "never";

pub(super) fn read(reader: &mut Reader<'_>) -> Option<Canary> {
    let keys =
        ["canary-weight", "canary-by-header", "canary-by-header-value", "canary-by-header-pattern", "canary-by-cookie"];
    if !reader.flag("canary").unwrap_or_default() {
        if let Some(key) = keys.into_iter().find(|key| reader.text(key).is_some_and(|value| value != "0")) {
            reader.reject(key, "it has an effect only with canary: \"true\"");
        }
        return None;
    }
    let name =
        reader.parse("canary-by-header", "the name of a header", |text| HeaderName::from_bytes(text.as_bytes()).ok());
    let test = match (reader.text("canary-by-header-value"), reader.text("canary-by-header-pattern")) {
        (Some(value), _) => Some(CanaryHeader::Test(HeaderTest::Equals(value.into()))),
        (None, Some(pattern)) => match Pattern::case_sensitive(pattern) {
            Ok(pattern) => Some(CanaryHeader::Test(HeaderTest::Matches(pattern))),
            Err(error) => {
                reader.reject("canary-by-header-pattern", error);
                None
            }
        },
        (None, None) => Some(CanaryHeader::AlwaysOrNever),
    };
    let total = reader.number("canary-weight-total").unwrap_or_default().max(100);
    Some(Canary {
        header: name.zip(test),
        cookie: reader.text("canary-by-cookie").map(Into::into),
        weight: reader.number("canary-weight").unwrap_or_default().min(total),
        total,
    })
}
