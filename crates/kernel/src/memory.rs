//! Memory that the allocator keeps for later, given back to the kernel.
//!
//! Reading every object of a cluster at the start takes much more memory for a moment than what is kept of it. The allocator
//! gives that back as it goes on being used; a program that has nothing to do afterwards would keep it forever.

#![allow(unsafe_code, reason = "the allocator offers no safe call for it")]

/// Gives back what nobody uses. Takes milliseconds: for moments after which less memory is needed, not for every day.
pub fn give_back() {
    // SAFETY: it may be called at any time on any thread; blocks that are in use stay where they are. In a program with
    // another allocator it looks at an empty heap.
    unsafe { libmimalloc_sys::mi_collect(true) };
}
