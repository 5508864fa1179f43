//! The faults a simulated disk can be told to have. When one strikes is the disk's.

/// Which calls a fault meets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Call {
    /// Any write to a file.
    Write,
    /// A sync of a file.
    Sync,
    /// A read of a file.
    Read,
    /// The creation of a file, and so the allocation of its space.
    Create,
    /// The opening of an existing file.
    Open,
    /// A rename.
    Rename,
    /// A removal.
    Remove,
    /// A sync of the directory.
    SyncDir,
    /// A change of a file's length.
    Truncate,
}

/// A fault to come.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// Which calls.
    pub call: Call,
    /// How many of them succeed before.
    pub after: u64,
    /// Whether all later ones fail, too.
    pub sticky: bool,
}
