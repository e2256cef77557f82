//! System call numbers, from `calls.txt`.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::Architecture;

/// Name, then one number or `-` per architecture.
const TABLE: &str = include_str!("calls.txt");

/// Calls above this number are private to an architecture (32-bit ARM).
const PRIVATE: u32 = 0x0f_0000;

static CALLS: LazyLock<HashMap<&str, [Option<u32>; 4]>> = LazyLock::new(|| {
    let lines = TABLE.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| {
            let mut words = line.split(' ');
            let name = words.next()?;
            Some((name, std::array::from_fn(|_| words.next()?.parse().ok())))
        })
        .collect()
});

const fn column(architecture: Architecture) -> usize {
    match architecture {
        Architecture::X86_64 => 0,
        Architecture::X86 => 1,
        Architecture::Aarch64 => 2,
        Architecture::Arm => 3,
    }
}

/// The number of a call, if the architecture has it.
pub(super) fn number(architecture: Architecture, name: &str) -> Option<u32> {
    CALLS.get(name)?.get(column(architecture)).copied().flatten()
}

/// The highest number that is not private to the architecture.
pub(super) fn newest(architecture: Architecture) -> u32 {
    let numbers = CALLS.values().filter_map(|numbers| numbers.get(column(architecture)).copied().flatten());
    numbers.filter(|number| *number < PRIVATE).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_kernel() {
        let of = |name: &str| {
            [Architecture::X86_64, Architecture::X86, Architecture::Aarch64, Architecture::Arm]
                .map(|architecture| number(architecture, name))
        };
        assert_eq!(of("read"), [Some(0), Some(3), Some(63), Some(3)]);
        assert_eq!(of("open"), [Some(2), Some(5), None, Some(5)]);
        assert_eq!(of("clone3"), [Some(435); 4]);
        assert_eq!(of("set_tls"), [None, None, None, Some(983_045)]);
        assert_eq!(of("no_such_call"), [None; 4]);
        assert_eq!(newest(Architecture::Arm), newest(Architecture::X86_64));
    }

    /// The numbers of the C library equal those of the table.
    #[test]
    fn numbers_are_those_of_the_c_library() {
        for (name, own) in [
            ("unshare", libc::SYS_unshare),
            ("mount", libc::SYS_mount),
            ("keyctl", libc::SYS_keyctl),
            ("bpf", libc::SYS_bpf),
            ("socket", libc::SYS_socket),
            ("execve", libc::SYS_execve),
            ("setns", libc::SYS_setns),
            ("ptrace", libc::SYS_ptrace),
        ] {
            let found = number(Architecture::NATIVE, name).map(libc::c_long::from);
            assert_eq!(found, Some(own), "{name}");
        }
    }

    #[test]
    fn every_line_is_a_call() {
        let lines = TABLE.lines().filter(|line| !line.starts_with('#'));
        let mut before = "";
        for line in lines {
            let words: Vec<&str> = line.split(' ').collect();
            let numbers = words.iter().skip(1).filter(|word| **word == "-" || word.parse::<u32>().is_ok());
            assert_eq!((words.len(), numbers.count()), (5, 4), "{line}");
            assert!(before < words[0], "{line} is not sorted");
            before = words[0];
        }
    }
}
