//! The stream core: append, commit, read, trim, recover.
