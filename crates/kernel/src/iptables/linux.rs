//! The tables of this machine, by way of its programs.
//!
//! A machine may have two iptables at once: `legacy`, and one that is written in terms of nftables. Rules of both are heeded by
//! the kernel, but each sees only its own, so ours must be where those of everybody else are ([`Linux::open`]). All programs
//! share a lock; we wait for it a while and then say so, rather than go on without it.

use std::io::{ErrorKind, Write as _};
use std::process::{Command, Output, Stdio};

use super::{Family, Iptables, IptablesError, Rule, Saved, Script, Table};
use crate::nft::{self, Batch, Change, Nft as _};

/// How many seconds the lock is waited for.
const PATIENCE: &str = "5";

/// Chains of whoever else serves Kubernetes here: where they are, ours belong.
const HINTS: [&str; 3] = ["KUBE-IPTABLES-HINT", "KUBE-KUBELET-CANARY", "KUBE-PROXY-CANARY"];

/// A kind of iptables.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Variant {
    /// In terms of nftables.
    Nft,
    /// The older one.
    Legacy,
    /// The only one, whatever it is.
    Plain,
}

impl Variant {
    /// Those with a name.
    const NAMED: [Self; 2] = [Self::Nft, Self::Legacy];

    /// How its programs are called: `iptables-legacy-save`, and so on.
    fn program(self, family: Family, what: &str) -> String {
        let base = match family {
            Family::Ip => "iptables",
            Family::Ip6 => "ip6tables",
        };
        let kind = match self {
            Self::Nft => "-nft",
            Self::Legacy => "-legacy",
            Self::Plain => "",
        };
        format!("{base}{kind}{what}")
    }
}

/// The tables of this machine, as one variant sees them.
#[derive(Clone, Debug)]
pub struct Linux {
    variant: Variant,
    families: Vec<Family>,
}

impl Linux {
    /// The variant that this machine uses: the one in which others who serve Kubernetes have left a sign; else the one with
    /// more rules; else the one that `iptables` means here.
    ///
    /// # Errors
    /// When there is none, or it cannot be used.
    pub fn open() -> Result<Self, IptablesError> {
        let mut candidates = Vec::new();
        for variant in Variant::NAMED {
            match save(variant, Family::Ip) {
                Ok(saved) => {
                    let hinted = HINTS.iter().any(|chain| saved.has_chain(Table::Mangle, chain));
                    candidates.push(((hinted, saved.count()), variant));
                }
                Err(IptablesError::Missing { .. } | IptablesError::Unsupported { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        candidates.sort_unstable();
        let chosen = match candidates[..] {
            [] => Variant::Plain,
            [(_, only)] => only,
            // Equally full, which is mostly empty: what the host's own name for it leads to.
            [.., (second, _), (first, _)] if first == second => default_variant()?,
            [.., (_, variant)] => variant,
        };
        Self::of(chosen)
    }

    /// Every variant that this machine has, for whoever tidies up.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let named: Vec<Self> = Variant::NAMED.into_iter().filter_map(|variant| Self::of(variant).ok()).collect();
        if named.is_empty() { Self::of(Variant::Plain).into_iter().collect() } else { named }
    }

    /// This variant.
    ///
    /// # Errors
    /// When it cannot be used.
    pub fn of(variant: Variant) -> Result<Self, IptablesError> {
        save(variant, Family::Ip)?;
        let families = match save(variant, Family::Ip6) {
            Ok(_) => Family::ALL.to_vec(),
            // A machine may well do without IPv6.
            Err(_) => vec![Family::Ip],
        };
        Ok(Self { variant, families })
    }

    /// Which one it is.
    #[must_use]
    pub const fn variant(&self) -> Variant {
        self.variant
    }
}

impl Iptables for Linux {
    fn families(&self) -> Vec<Family> {
        self.families.clone()
    }

    fn save(&mut self, family: Family) -> Result<Saved, IptablesError> {
        save(self.variant, family)
    }

    fn restore(&mut self, family: Family, script: &Script) -> Result<(), IptablesError> {
        let program = self.variant.program(family, "-restore");
        run(&program, &["-w", PATIENCE, "--noflush", "--counters"], &script.to_string()).map(drop)
    }

    fn has(&mut self, family: Family, table: Table, chain: &str, rule: &Rule) -> Result<bool, IptablesError> {
        let program = self.variant.program(family, "");
        let words = super::tokens::split(&rule.to_string()).unwrap_or_default();
        let mut arguments = vec!["-w", PATIENCE, "-t", table.as_str(), "-C", chain];
        arguments.extend(words.iter().map(String::as_str));
        match run(&program, &arguments, "") {
            Ok(_) => Ok(true),
            // A chain or a rule that is missing is an answer.
            Err(IptablesError::Refused { .. }) => Ok(false),
            // So is a rule that leads to a chain that is missing, which the older programs take for a module.
            Err(IptablesError::Unsupported { .. }) if matches!(rule.target(), super::Target::Chain(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The older tables are part of the kernel and go when it does.
    fn tidy(&mut self, family: Family) -> Result<(), IptablesError> {
        let variant = if self.variant == Variant::Plain { default_variant()? } else { self.variant };
        if variant != Variant::Nft {
            return Ok(());
        }
        let saved = self.save(family)?;
        let bare = Table::ALL.into_iter().filter(|table| saved.is_bare(*table));
        let changes = bare.map(|table| Change::DeleteTable(family, table.as_str().into())).collect();
        let removed = nft::linux::Linux::open().and_then(|mut nft| nft.apply(&Batch { changes }));
        let said = |error: nft::NftError| IptablesError::Unsupported {
            program: "nftables".to_owned(),
            said: error.to_string(),
        };
        removed.map_err(said)
    }
}

/// Without a table named, so that reading does not make tables.
fn save(variant: Variant, family: Family) -> Result<Saved, IptablesError> {
    let output = run(&variant.program(family, "-save"), &[], "")?;
    Ok(Saved::parse(String::from_utf8_lossy(&output.stdout).into_owned()))
}

fn default_variant() -> Result<Variant, IptablesError> {
    let program = Variant::Plain.program(Family::Ip, "");
    let output = run(&program, &["--version"], "")?;
    let is_nft = String::from_utf8_lossy(&output.stdout).contains("nf_tables");
    Ok(if is_nft { Variant::Nft } else { Variant::Legacy })
}

/// Runs a program to its end.
fn run(program: &str, arguments: &[&str], input: &str) -> Result<Output, IptablesError> {
    let failed = |error: &std::io::Error| match error.kind() {
        ErrorKind::NotFound => IptablesError::Missing { program: program.to_owned() },
        ErrorKind::PermissionDenied => IptablesError::Permission { program: program.to_owned() },
        _ => IptablesError::Refused { program: program.to_owned(), line: None, said: error.to_string() },
    };
    // The port to these tables is a program of the host: there is no other that leaves other people's rules alone.
    #[allow(clippy::disallowed_methods)]
    let mut command = Command::new(program);
    // Where a service finds its programs is not always where those of the administrator are.
    let path = std::env::var("PATH").unwrap_or_default();
    command.args(arguments).env("PATH", format!("{path}:/usr/sbin:/sbin")).env("LC_ALL", "C");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| failed(&error))?;
    let stdin = child.stdin.take();
    let output = std::thread::scope(|scope| {
        scope.spawn(move || {
            // A program that stops reading says why by itself.
            let _ = stdin.map(|mut stdin| stdin.write_all(input.as_bytes()));
        });
        child.wait_with_output()
    });
    let output = output.map_err(|error| failed(&error))?;
    if output.status.success() {
        return Ok(output);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(IptablesError::classify(program, output.status.code(), &said, input))
}
