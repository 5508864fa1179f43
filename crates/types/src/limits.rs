//! Limits that hold everywhere: name, unit, reason (law BOUNDED). Limits of one crate live there.

/// Bytes of one entry. The frame's length field is 32 bits; half of that leaves room for its
/// header and for arithmetic.
pub const ENTRY_BYTES_MAX: usize = 1 << 30;

/// Records in one entry: what a Kafka batch's signed 32-bit delta can count.
pub const ENTRY_RECORDS_MAX: u32 = i32::MAX as u32;

/// Entries in one append call.
pub const APPEND_ENTRIES_MAX: usize = 65_536;

/// Bytes of a topic name: Kafka's limit, which is the smallest of the fronts'.
pub const TOPIC_NAME_BYTES_MAX: usize = 249;

/// Largest offset a stream may reach: what the protocols' signed 64-bit offsets can carry.
pub const OFFSET_MAX: u64 = i64::MAX as u64;
