//! Parses the `WWW-Authenticate` header.

/// An authentication challenge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Challenge {
    /// Basic authentication.
    Basic,
    /// A bearer token from a token server.
    Bearer {
        /// The URL of the token server.
        realm: String,
        /// The service.
        service: Option<String>,
        /// The scope.
        scope: Option<String>,
    },
}

/// Parses the headers; prefers a bearer challenge.
pub(super) fn read<'a>(headers: impl Iterator<Item = &'a str>) -> Option<Challenge> {
    let mut basic = None;
    for header in headers {
        let (scheme, rest) = header.trim().split_once(' ').unwrap_or((header.trim(), ""));
        if scheme.eq_ignore_ascii_case("basic") {
            basic = Some(Challenge::Basic);
        } else if scheme.eq_ignore_ascii_case("bearer") {
            let parameters = parameters(rest);
            let get = |name: &str| parameters.iter().find(|(own, _)| own == name).map(|(_, value)| value.clone());
            if let Some(realm) = get("realm") {
                return Some(Challenge::Bearer { realm, service: get("service"), scope: get("scope") });
            }
        }
    }
    basic
}

/// `name="value", other=value`
fn parameters(text: &str) -> Vec<(String, String)> {
    let mut out = Vec::new();
    let mut rest = text.trim_start();
    while let Some((name, tail)) = rest.split_once('=') {
        let name = name.trim_matches([' ', ',']).to_ascii_lowercase();
        let mut value = String::new();
        let tail = tail.trim_start();
        if let Some(quoted) = tail.strip_prefix('"') {
            let mut characters = quoted.char_indices();
            let mut end = quoted.len();
            while let Some((place, character)) = characters.next() {
                match character {
                    '"' => {
                        end = place + 1;
                        break;
                    }
                    '\\' => value.extend(characters.next().map(|(_, escaped)| escaped)),
                    other => value.push(other),
                }
            }
            rest = quoted.get(end..).unwrap_or_default();
        } else {
            let (plain, tail) = tail.split_once(',').unwrap_or((tail, ""));
            plain.trim().clone_into(&mut value);
            rest = tail;
        }
        out.push((name, value));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_are_parsed() {
        let bearer = r#"Bearer realm="https://auth.example.com/token",service="registry.example.com",scope="repository:a/b:pull,push""#;
        let wanted = Challenge::Bearer {
            realm: "https://auth.example.com/token".to_owned(),
            service: Some("registry.example.com".to_owned()),
            scope: Some("repository:a/b:pull,push".to_owned()),
        };
        assert_eq!(read([bearer].into_iter()), Some(wanted.clone()));
        assert_eq!(read(["Basic realm=\"x\"", bearer].into_iter()), Some(wanted));
        assert_eq!(read(["basic realm=x"].into_iter()), Some(Challenge::Basic));
        let odd = r#"bearer Realm = "https://x/\"y", service=z"#;
        assert_eq!(
            read([odd].into_iter()),
            Some(Challenge::Bearer { realm: "https://x/\"y".to_owned(), service: Some("z".to_owned()), scope: None })
        );
        for nothing in ["", "Bearer", "Bearer realm", "Negotiate", "Bearer service=\"unfinished"] {
            assert_eq!(read([nothing].into_iter()), None, "{nothing}");
        }
    }
}
