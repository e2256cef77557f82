//! Static tokens: a CSV file with `token,user,uid,"group1,group2"` in each line.
//!
//! In: the text of the file, read once at start. Out: a map from the hash of a token to its user. Only hashes are stored and
//! compared, so neither a core dump nor timing reveals a token.

use std::collections::HashMap;
use std::path::Path;

use ring::digest::{SHA256, digest};

use super::User;

/// What is wrong with a token file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenFileError {
    /// An I/O error.
    #[error("reading the token file {path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// The error.
        source: std::io::Error,
    },
    /// A line is invalid.
    #[error("token file {path}, line {line}: {why}")]
    Line {
        /// The file.
        path: String,
        /// The line, counted from 1.
        line: usize,
        /// What is wrong with it.
        why: &'static str,
    },
}

/// The SHA-256 of a token.
pub(super) type TokenHash = [u8; 32];

/// The users of a token file.
#[derive(Default)]
pub struct TokenFile {
    users: HashMap<TokenHash, User>,
}

impl std::fmt::Debug for TokenFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenFile").field("users", &self.users.values()).finish()
    }
}

impl TokenFile {
    /// Reads a token file.
    ///
    /// # Errors
    /// When the file cannot be read or a line is wrong.
    pub fn load(path: &Path) -> Result<Self, TokenFileError> {
        let name = path.display().to_string();
        match std::fs::read_to_string(path) {
            Ok(text) => Self::parse(&text, &name),
            Err(source) => Err(TokenFileError::Io { path: name, source }),
        }
    }

    /// Reads the text of a token file; `path` is for messages.
    ///
    /// # Errors
    /// When a line is wrong.
    pub fn parse(text: &str, path: &str) -> Result<Self, TokenFileError> {
        let mut users = HashMap::new();
        for record in Records::new(text) {
            let fail = |(line, why)| TokenFileError::Line { path: path.to_owned(), line, why };
            let (line, fields) = record.map_err(fail)?;
            let [token, name, uid, rest @ ..] = fields.as_slice() else {
                return Err(fail((line, "at least 3 columns are needed (token, user name, user uid)")));
            };
            if token.is_empty() {
                return Err(fail((line, "the token is empty")));
            }
            if name.is_empty() {
                return Err(fail((line, "the user name is empty")));
            }
            let groups = rest.first().map(|groups| groups.split(',').filter(|group| !group.is_empty()));
            let groups = groups.into_iter().flatten().map(str::to_owned).collect();
            let user = User { name: name.clone(), uid: uid.clone(), groups, ..User::default() };
            if users.insert(hash(token), user).is_some() {
                return Err(fail((line, "the token stands in an earlier line already")));
            }
        }
        Ok(Self { users })
    }

    /// The user of a token.
    #[must_use]
    pub fn user(&self, token: &str) -> Option<&User> {
        self.user_by_hash(&hash(token))
    }

    /// The user of the token that has a hash.
    pub(super) fn user_by_hash(&self, hash: &TokenHash) -> Option<&User> {
        self.users.get(hash)
    }
}

/// The hash of a token.
pub(super) fn hash(token: &str) -> TokenHash {
    let mut out = [0; 32];
    out.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
    out
}

/// The records of a CSV text with the lines they begin in. A quoted field may contain commas, line ends and doubled quotes; empty lines are
/// skipped.
struct Records<'a> {
    rest: &'a str,
    line: usize,
}

impl<'a> Records<'a> {
    fn new(text: &'a str) -> Self {
        Self { rest: text.strip_prefix('\u{feff}').unwrap_or(text), line: 1 }
    }

    /// Parses one field; whether another follows in this record.
    fn field(&mut self) -> Result<(String, bool), &'static str> {
        let field = if let Some(rest) = self.rest.strip_prefix('"') {
            self.rest = rest;
            self.quoted()?
        } else {
            let end = self.rest.find([',', '\n']).unwrap_or(self.rest.len());
            let (field, rest) = self.rest.split_at(end);
            if field.contains('"') {
                return Err("a quote stands inside a field that does not begin with one");
            }
            self.rest = rest;
            field.strip_suffix('\r').unwrap_or(field).to_owned()
        };
        if let Some(rest) = self.rest.strip_prefix(',') {
            self.rest = rest;
            return Ok((field, true));
        }
        let end = self.rest.strip_prefix('\r').unwrap_or(self.rest);
        if let Some(rest) = end.strip_prefix('\n') {
            self.rest = rest;
            self.line += 1;
        } else if end.is_empty() {
            self.rest = end;
        } else {
            return Err("text follows a closing quote");
        }
        Ok((field, false))
    }

    fn quoted(&mut self) -> Result<String, &'static str> {
        let mut field = String::new();
        loop {
            let Some((part, rest)) = self.rest.split_once('"') else { return Err("a quote is not closed") };
            self.line += part.matches('\n').count();
            field.push_str(part);
            self.rest = rest;
            match rest.strip_prefix('"') {
                Some(rest) => self.rest = rest,
                None => return Ok(field),
            }
            field.push('"');
        }
    }
}

impl Iterator for Records<'_> {
    type Item = Result<(usize, Vec<String>), (usize, &'static str)>;

    fn next(&mut self) -> Option<Self::Item> {
        while let Some(rest) = self.rest.strip_prefix("\r\n").or_else(|| self.rest.strip_prefix('\n')) {
            self.rest = rest;
            self.line += 1;
        }
        if self.rest.is_empty() {
            return None;
        }
        let line = self.line;
        let mut fields = Vec::new();
        loop {
            match self.field() {
                Ok((field, more)) => {
                    fields.push(field);
                    if !more {
                        return Some(Ok((line, fields)));
                    }
                }
                Err(why) => {
                    self.rest = "";
                    return Some(Err((line, why)));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_users() {
        let text = "t1,alice,u-1,\"dev,ops\"\r\n\n\"t\"\"2\",bob,\nt3,eve,u-3,single,ignored";
        let file = TokenFile::parse(text, "f").unwrap();
        let alice = file.user("t1").unwrap();
        assert_eq!((alice.name.as_str(), alice.uid.as_str()), ("alice", "u-1"));
        assert_eq!(alice.groups, ["dev", "ops"]);
        assert_eq!(file.user("t\"2").unwrap().name, "bob");
        assert!(file.user("t\"2").unwrap().groups.is_empty());
        assert_eq!(file.user("t3").unwrap().groups, ["single"]);
        for wrong in ["", "t", "t1 ", "T1", "alice"] {
            assert_eq!(file.user(wrong), None, "{wrong:?}");
        }
        assert!(!format!("{file:?}").contains("t1"), "tokens are not printed");
        assert!(TokenFile::parse("", "f").unwrap().users.is_empty());
    }

    #[test]
    fn errors_name_the_line() {
        let cases = [
            ("a,b,c\nd,e\n", 2, "at least 3 columns"),
            ("a,b,c\n\n\nd,\"e,f", 4, "not closed"),
            ("a,b\"x,c", 1, "inside a field"),
            ("\"a\"b,c,d", 1, "follows a closing quote"),
            ("a,b,c\n,d,e", 2, "token is empty"),
            ("a,,c", 1, "user name is empty"),
            ("a,b,c,\"g\n\nh\"\na,b,c", 4, "earlier line"),
        ];
        for (text, line, why) in cases {
            let message = TokenFile::parse(text, "/etc/tokens.csv").unwrap_err().to_string();
            assert!(message.starts_with(&format!("token file /etc/tokens.csv, line {line}: ")), "{message}");
            assert!(message.contains(why), "{message}");
        }
    }

    #[test]
    fn a_missing_file_is_named() {
        let message = TokenFile::load(Path::new("/nowhere/tokens")).unwrap_err().to_string();
        assert!(message.contains("/nowhere/tokens"), "{message}");
    }
}
