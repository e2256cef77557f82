//! Rules of filters: a filter has the settings of its type and no others, and most types are not repeated.

/// Rules of a filter: the settings in `field` belong to the type.
pub(super) fn only_with_type(field: &str, kind: &str) -> [(String, String); 2] {
    [
        (
            format!("filter.{field} must be nil if the filter.type is not {kind}"),
            format!("!has(self.{field}) || self.type == '{kind}'"),
        ),
        (
            format!("filter.{field} must be specified for {kind} filter.type"),
            format!("has(self.{field}) || self.type != '{kind}'"),
        ),
    ]
}

/// Rules of a list of filters: there is at most one of each of these types.
pub(super) fn not_repeated(kinds: &[&str]) -> Vec<(String, String)> {
    let rule = |kind: &&str| {
        let expression = format!("size(self.filter(one, one.type == '{kind}')) < 2");
        (format!("{kind} filter cannot be repeated"), expression)
    };
    kinds.iter().map(rule).collect()
}

/// Rules of an HTTP rule: a prefix can be replaced only where exactly one prefix is matched. `in_backends`: the filters of the
/// backends, and not those of the rule. As upstream, nothing is checked if several filters, or several backends, replace one.
pub(super) fn prefix_is_known(in_backends: bool) -> [(String, String); 2] {
    let rule = |filter: &str, field: &str, within: &str| {
        let replaces = format!(
            "filters.exists_one(f, has(f.{field}) && has(f.{field}.path) && \
             f.{field}.path.type == 'ReplacePrefixMatch' && has(f.{field}.path.replacePrefixMatch))"
        );
        let applies = if in_backends {
            format!("has(self.backendRefs) && self.backendRefs.exists_one(b, has(b.filters) && b.{replaces})")
        } else {
            format!("has(self.filters) && self.{replaces}")
        };
        let is_one_prefix =
            "size(self.matches) == 1 && has(self.matches[0].path) && self.matches[0].path.type == 'PathPrefix'";
        (
            format!(
                "{within} using {filter} filter with path.replacePrefixMatch, exactly one PathPrefix match must be specified"
            ),
            format!("({applies}) ? ({is_one_prefix}) : true"),
        )
    };
    // The capital is upstream's.
    let (redirect, rewrite) =
        if in_backends { ("Within backendRefs, when", "Within backendRefs, When") } else { ("When", "When") };
    [rule("RequestRedirect", "requestRedirect", redirect), rule("URLRewrite", "urlRewrite", rewrite)]
}
