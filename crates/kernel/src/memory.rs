//! Returns unused memory of the allocator to the kernel.
//!
//! Listing all objects of a cluster at start briefly takes much more memory than is kept. The allocator returns it
//! while it is used; an idle program would keep it forever.

#![allow(unsafe_code, reason = "the allocator offers no safe call for it")]

/// Returns unused memory. Takes milliseconds: call it after load peaks.
pub fn release() {
    // SAFETY: may be called at any time on any thread; blocks in use stay in place. With another allocator the heap is
    // empty.
    unsafe { libmimalloc_sys::mi_collect(true) };
}
