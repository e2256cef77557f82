//! Errors of iptables programs, and what they mean to callers.

use thiserror::Error;

/// A failed program.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum IptablesError {
    /// The program is not installed.
    #[error("the program {program} is not on this machine; install the package iptables")]
    Missing {
        /// Its name.
        program: String,
    },
    /// Another program held the xtables lock for too long.
    #[error("{program}: another program holds the lock of iptables; it is tried again")]
    Busy {
        /// Its name.
        program: String,
    },
    /// Privileges are missing.
    #[error("{program}: not permitted; run as root")]
    Permission {
        /// Its name.
        program: String,
    },
    /// The kernel lacks support.
    #[error("{program}: this kernel cannot do it: {said}")]
    Unsupported {
        /// Its name.
        program: String,
        /// Its error message.
        said: String,
    },
    /// The input was refused.
    #[error("{program} refused{}: {said}", line.as_ref().map_or_else(String::new, |line| format!(" `{line}`")))]
    Refused {
        /// Its name.
        program: String,
        /// The refused line.
        line: Option<String>,
        /// Its error message.
        said: String,
    },
}

impl IptablesError {
    /// Classifies an exit. `input` is the standard input of the program.
    pub(crate) fn classify(program: &str, code: Option<i32>, said: &str, input: &str) -> Self {
        let program = program.to_owned();
        let any = |words: &[&str]| words.iter().any(|word| said.contains(word));
        let brief = said.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("no error message").to_owned();
        if any(&["Permission denied", "you must be root", "Operation not permitted"]) {
            Self::Permission { program }
        } else if any(&["holding the xtables lock", "Resource temporarily unavailable"]) || code == Some(4) {
            Self::Busy { program }
        } else if any(&[
            "do you need to insmod",
            "Couldn't load",
            "not supported",
            "Extension",
            "missing kernel module",
        ]) {
            Self::Unsupported { program, said: brief }
        } else {
            let line = line_number(said).and_then(|number| input.lines().nth(number.checked_sub(1)?));
            Self::Refused { program, line: line.map(str::to_owned), said: brief }
        }
    }

    /// Whether the same request may succeed later.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        matches!(self, Self::Busy { .. })
    }
}

/// The line number in an error message: all variants print `line` followed by the number.
fn line_number(said: &str) -> Option<usize> {
    said.match_indices("line").find_map(|(at, word)| {
        let rest = said[at + word.len()..].trim_start_matches([':', ' ']);
        let digits = rest.find(|c: char| !c.is_ascii_digit()).map_or(rest, |end| &rest[..end]);
        digits.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_said_is_understood() {
        let of =
            |code, said| IptablesError::classify("iptables-restore", Some(code), said, "*nat\n-A X -j Y\nCOMMIT\n");
        let held = "Another app is currently holding the xtables lock; still 4s 0us time ahead to have a chance";
        assert!(of(4, held).is_retryable());
        let lock = "Fatal: can't open lock file /run/xtables.lock: Permission denied";
        assert!(matches!(of(4, lock), IptablesError::Permission { .. }));
        let module = "can't initialize iptables table `nat': Table does not exist (do you need to insmod?)";
        assert!(matches!(of(3, module), IptablesError::Unsupported { .. }));
        let target = "iptables-restore v1.8.9 (legacy): Couldn't find target `Y'\n\nError occurred at line: 2\n";
        assert_eq!(
            of(2, target).to_string(),
            "iptables-restore refused `-A X -j Y`: iptables-restore v1.8.9 (legacy): Couldn't find target `Y'"
        );
        let commit = "iptables-restore: line 3 failed";
        assert!(of(1, commit).to_string().starts_with("iptables-restore refused `COMMIT`"), "{}", of(1, commit));
    }
}
