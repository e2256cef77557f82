//! Tokens of the grammar and sets of them.
//!
//! The order of [`Kind`] is the order in which messages list expected tokens.

/// A kind of token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Kind {
    Eof,
    Equals,
    NotEquals,
    In,
    Less,
    LessEquals,
    GreaterEquals,
    Greater,
    And,
    Or,
    LeftBracket,
    RightBracket,
    LeftBrace,
    RightBrace,
    LeftParen,
    RightParen,
    Dot,
    Comma,
    Minus,
    Not,
    Question,
    Colon,
    Plus,
    Star,
    Slash,
    Percent,
    True,
    False,
    Null,
    Float,
    Int,
    Uint,
    String,
    Bytes,
    Ident,
    EscapedIdent,
    /// White space or a comment: never seen by the grammar.
    Hidden,
}

impl Kind {
    /// Every kind that the grammar uses, with its name in messages.
    const NAMES: [(Self, &'static str); 36] = [
        (Self::Eof, "<EOF>"),
        (Self::Equals, "'=='"),
        (Self::NotEquals, "'!='"),
        (Self::In, "'in'"),
        (Self::Less, "'<'"),
        (Self::LessEquals, "'<='"),
        (Self::GreaterEquals, "'>='"),
        (Self::Greater, "'>'"),
        (Self::And, "'&&'"),
        (Self::Or, "'||'"),
        (Self::LeftBracket, "'['"),
        (Self::RightBracket, "']'"),
        (Self::LeftBrace, "'{'"),
        (Self::RightBrace, "'}'"),
        (Self::LeftParen, "'('"),
        (Self::RightParen, "')'"),
        (Self::Dot, "'.'"),
        (Self::Comma, "','"),
        (Self::Minus, "'-'"),
        (Self::Not, "'!'"),
        (Self::Question, "'?'"),
        (Self::Colon, "':'"),
        (Self::Plus, "'+'"),
        (Self::Star, "'*'"),
        (Self::Slash, "'/'"),
        (Self::Percent, "'%'"),
        (Self::True, "'true'"),
        (Self::False, "'false'"),
        (Self::Null, "'null'"),
        (Self::Float, "NUM_FLOAT"),
        (Self::Int, "NUM_INT"),
        (Self::Uint, "NUM_UINT"),
        (Self::String, "STRING"),
        (Self::Bytes, "BYTES"),
        (Self::Ident, "IDENTIFIER"),
        (Self::EscapedIdent, "ESC_IDENTIFIER"),
    ];
}

/// A token: its kind and its place, in code points.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// A set of kinds; it may contain [`Set::EMPTY`], "the rule may end here".
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Set(u64);

impl Set {
    /// The rule may end here.
    pub(crate) const EMPTY: Self = Self(1 << 63);

    pub(crate) const fn of(kinds: &[Kind]) -> Self {
        let mut bits = 0;
        let mut rest = kinds;
        while let [first, tail @ ..] = rest {
            bits |= 1 << (*first as u8);
            rest = tail;
        }
        Self(bits)
    }

    pub(crate) const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) fn has(self, kind: Kind) -> bool {
        self.0 & (1 << (kind as u8)) != 0
    }

    pub(crate) fn may_end(self) -> bool {
        self.0 & Self::EMPTY.0 != 0
    }

    pub(crate) fn without_end(self) -> Self {
        Self(self.0 & !Self::EMPTY.0)
    }

    /// The set as messages show it: one name, or several in braces.
    pub(crate) fn display(self) -> String {
        let names: Vec<&str> = Kind::NAMES.iter().filter(|(kind, _)| self.has(*kind)).map(|(_, name)| *name).collect();
        match names[..] {
            [only] => only.to_owned(),
            _ => format!("{{{}}}", names.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_show_their_names_in_order() {
        let set = Set::of(&[Kind::Comma, Kind::RightBracket]).or(Set::EMPTY);
        assert!(set.may_end() && set.has(Kind::Comma) && !set.has(Kind::Dot));
        assert_eq!(set.without_end().display(), "{']', ','}");
        assert_eq!(Set::of(&[Kind::Eof]).display(), "<EOF>");
    }
}
