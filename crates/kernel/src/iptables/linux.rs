//! iptables through the programs of the host.
//!
//! A machine may have two variants: `legacy` and `nft`. The kernel evaluates the rules of both, but each variant lists
//! only its own, so ours must use the one that others use ([`Linux::open`]). All programs share the xtables lock; after
//! a timeout the request fails rather than run without it.

use std::io::{ErrorKind, Write as _};
use std::process::{Command, Output, Stdio};

use super::{Family, Iptables, IptablesError, Rule, Saved, Script, Table};
use crate::nft::{self, Batch, Change, Nft as _};

/// Timeout for the xtables lock, in seconds.
const LOCK_TIMEOUT: &str = "5";

/// Chains of other Kubernetes components: use the variant that has them.
const HINTS: [&str; 3] = ["KUBE-IPTABLES-HINT", "KUBE-KUBELET-CANARY", "KUBE-PROXY-CANARY"];

/// Variant of iptables.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Variant {
    /// iptables-nft.
    Nft,
    /// iptables-legacy.
    Legacy,
    /// The only one installed, of unknown kind.
    Plain,
}

impl Variant {
    /// Variants with a name suffix.
    const NAMED: [Self; 2] = [Self::Nft, Self::Legacy];

    /// Program name: `iptables-legacy-save`, and so on.
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

/// iptables of one variant.
#[derive(Clone, Debug)]
pub struct Linux {
    variant: Variant,
    families: Vec<Family>,
}

impl Linux {
    /// The variant in use: the one with chains of other Kubernetes components; else the one with more rules; else the
    /// default of the host.
    ///
    /// # Errors
    /// When none is usable.
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
            // Equal counts, usually empty: the default of the host.
            [.., (second, _), (first, _)] if first == second => default_variant()?,
            [.., (_, variant)] => variant,
        };
        Self::of(chosen)
    }

    /// All installed variants, for cleanup.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let named: Vec<Self> = Variant::NAMED.into_iter().filter_map(|variant| Self::of(variant).ok()).collect();
        if named.is_empty() { Self::of(Variant::Plain).into_iter().collect() } else { named }
    }

    /// Opens a variant.
    ///
    /// # Errors
    /// When it is not usable.
    pub fn of(variant: Variant) -> Result<Self, IptablesError> {
        save(variant, Family::Ip)?;
        let families = match save(variant, Family::Ip6) {
            Ok(_) => Family::ALL.to_vec(),
            // IPv6 is optional.
            Err(_) => vec![Family::Ip],
        };
        Ok(Self { variant, families })
    }

    /// The variant.
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
        run(&program, &["-w", LOCK_TIMEOUT, "--noflush", "--counters"], &script.to_string()).map(drop)
    }

    fn has(&mut self, family: Family, table: Table, chain: &str, rule: &Rule) -> Result<bool, IptablesError> {
        let program = self.variant.program(family, "");
        let words = super::tokens::split(&rule.to_string()).unwrap_or_default();
        let mut arguments = vec!["-w", LOCK_TIMEOUT, "-t", table.as_str(), "-C", chain];
        arguments.extend(words.iter().map(String::as_str));
        match run(&program, &arguments, "") {
            Ok(_) => Ok(true),
            // The chain or rule is missing.
            Err(IptablesError::Refused { .. }) => Ok(false),
            // So is the target chain, which legacy programs report as a missing module.
            Err(IptablesError::Unsupported { .. }) if matches!(rule.target(), super::Target::Chain(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Legacy tables are part of the kernel and cannot be removed.
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

/// Without a table name, so that reading does not create tables.
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

/// Runs a program to completion.
fn run(program: &str, arguments: &[&str], input: &str) -> Result<Output, IptablesError> {
    let failed = |error: &std::io::Error| match error.kind() {
        ErrorKind::NotFound => IptablesError::Missing { program: program.to_owned() },
        ErrorKind::PermissionDenied => IptablesError::Permission { program: program.to_owned() },
        _ => IptablesError::Refused { program: program.to_owned(), line: None, said: error.to_string() },
    };
    // Running the host's programs is the only way that leaves the rules of others alone.
    #[allow(clippy::disallowed_methods)]
    let mut command = Command::new(program);
    // The PATH of a service may lack the sbin directories.
    let path = std::env::var("PATH").unwrap_or_default();
    command.args(arguments).env("PATH", format!("{path}:/usr/sbin:/sbin")).env("LC_ALL", "C");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| failed(&error))?;
    let stdin = child.stdin.take();
    let output = std::thread::scope(|scope| {
        scope.spawn(move || {
            // If it stops reading, its exit status gives the reason.
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
