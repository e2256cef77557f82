//! Seccomp filters: which system calls a program may make.
//!
//! In: a [`Policy`] by system call names. Out: a [`Filter`], a classic BPF program that the kernel runs at every call,
//! and [`Filter::install`], which applies it to the calling thread permanently. `calls.txt` has the call numbers.
//!
//! Why not an existing crate: `libseccomp` needs a C library at build and run time; `seccompiler` has one action for all rules of a filter
//! (the default profile of containers has three) and refuses 32-bit programs.

mod assemble;
mod calls;

use std::io;

pub use self::assemble::TooLong;

/// Action for a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The process is killed by `SIGSYS`.
    KillProcess,
    /// The thread is killed.
    KillThread,
    /// The thread gets `SIGSYS`.
    Trap,
    /// The call fails with this error.
    Errno(u16),
    /// A tracer decides; without one the call fails with `ENOSYS`.
    Trace(u16),
    /// The call is made and audited.
    Log,
    /// The call is made.
    Allow,
}

/// Comparison of an argument as an unsigned 64-bit number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compare {
    /// `=`
    Equal(u64),
    /// `≠`
    NotEqual(u64),
    /// `<`
    Less(u64),
    /// `≤`
    LessOrEqual(u64),
    /// `>`
    Greater(u64),
    /// `≥`
    GreaterOrEqual(u64),
    /// The bits of a mask have this value.
    Masked {
        /// Mask.
        mask: u64,
        /// Value of the masked bits.
        value: u64,
    },
}

/// A condition on an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Argument index, from 0 to 5.
    pub argument: u8,
    /// How it is compared.
    pub compare: Compare,
}

/// Action for a call when all conditions hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Call name. A name unknown to all architectures of the policy has no effect.
    pub call: String,
    /// Conditions; at most one per argument.
    pub conditions: Vec<Condition>,
    /// What happens.
    pub action: Action,
}

/// System call ABI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Architecture {
    /// 64-bit x86.
    X86_64,
    /// 32-bit x86.
    X86,
    /// 64-bit ARM.
    Aarch64,
    /// 32-bit ARM, EABI.
    Arm,
}

impl Architecture {
    /// The ABI of this program.
    pub const NATIVE: Self = if cfg!(target_arch = "aarch64") { Self::Aarch64 } else { Self::X86_64 };
}

/// A seccomp policy.
///
/// A rule without conditions decides alone, the first of several. Otherwise the first rule whose conditions hold decides, and the default
/// where none does. Calls of architectures that are not listed fail with `ENOSYS`, and so do calls that are newer than the table of
/// numbers where the default is an error: C libraries then use the older call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Action for calls without a rule.
    pub default: Action,
    /// Allowed architectures.
    pub architectures: Vec<Architecture>,
    /// The rules.
    pub rules: Vec<Rule>,
}

/// A filter for the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Filter {
    /// Instructions of classic BPF, each `code | jt << 16 | jf << 24 | k << 32`.
    pub program: Vec<u64>,
    /// Flags of seccomp(2): [`FLAG_LOG`] and [`FLAG_SPEC_ALLOW`].
    pub flags: u32,
}

/// Audit actions other than [`Action::Allow`].
pub const FLAG_LOG: u32 = 1 << 1;
/// Disables the mitigation of speculative store bypass.
pub const FLAG_SPEC_ALLOW: u32 = 1 << 2;

impl Policy {
    /// Compiles this policy.
    ///
    /// # Errors
    /// When it has more instructions than the kernel accepts.
    pub fn assemble(&self, flags: u32) -> Result<Filter, TooLong> {
        Ok(Filter { program: assemble::program(self)?, flags })
    }
}

/// Whether the kernel has seccomp filters.
#[must_use]
pub fn is_available() -> bool {
    std::path::Path::new("/proc/sys/kernel/seccomp/actions_avail").exists()
}

impl Filter {
    /// Applies the filter to this thread and its children. Needs `no_new_privs` or `CAP_SYS_ADMIN`.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn install(&self) -> io::Result<()> {
        install(&self.program, self.flags)
    }
}

#[allow(unsafe_code, reason = "no safe call installs a filter")]
fn install(program: &[u64], flags: u32) -> io::Result<()> {
    let mut instructions: Vec<libc::sock_filter> = program.iter().map(|word| decode(*word)).collect();
    let length = u16::try_from(instructions.len()).map_err(io::Error::other)?;
    let program = libc::sock_fprog { len: length, filter: instructions.as_mut_ptr() };
    // SAFETY: the kernel reads `len` instructions from `filter`, which outlive the call, and copies them.
    let result = unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Decodes an instruction of [`Filter::program`].
fn decode(word: u64) -> libc::sock_filter {
    let [c0, c1, jt, jf, k0, k1, k2, k3] = word.to_le_bytes();
    libc::sock_filter { code: u16::from_le_bytes([c0, c1]), jt, jf, k: u32::from_le_bytes([k0, k1, k2, k3]) }
}
