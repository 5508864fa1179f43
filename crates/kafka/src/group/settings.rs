//! What an operator may set for groups, and the limits that are fixed.
//!
//! Owns numbers and their reasons only; the code that meets a limit stands elsewhere.

use std::time::Duration;

/// Bytes of a group id: what the log's signed 16-bit string length can carry.
pub const GROUP_ID_BYTES_MAX: usize = i16::MAX as usize;

/// Bytes of an instance id: Kafka's own limit, that of a topic name.
pub const INSTANCE_ID_BYTES_MAX: usize = 249;

/// Protocols one member may offer. Clients offer one to three.
pub const PROTOCOLS_PER_MEMBER_MAX: usize = 64;

/// Bytes of one group's record in the log; a larger assignment is refused when it is made.
pub const GROUP_RECORD_BYTES_MAX: usize = 16 << 20;

/// Tombstones written in one batch when a topic is deleted or offsets expire; the rest follows.
pub const TOMBSTONES_PER_BATCH_MAX: usize = 10_000;

/// Groups looked at in one step of a retention check; the rest follows.
pub const GROUPS_PER_RETENTION_STEP_MAX: usize = 1_000;

/// Pause between two steps of one retention check.
pub const RETENTION_RESUME_DELAY: Duration = Duration::from_millis(100);

/// Pause before a group's record that the log refused, and nobody waits for, is tried again.
pub const RECORD_RETRY_DELAY: Duration = Duration::from_secs(1);

/// How long a new member's first join may wait before it must ask again. Its session timeout
/// cannot serve: it does not know its id yet, so it sends no heartbeats.
pub const NEW_MEMBER_JOIN_TIMEOUT: Duration = Duration::from_secs(300);

/// Settings of the coordinator. The names of Kafka's options are in the descriptions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How long an empty group waits for more members before its first generation
    /// (`group.initial.rebalance.delay.ms`). Longer: fewer rebalances at start. Shorter: the
    /// first records arrive sooner.
    pub initial_rebalance_delay: Duration,
    /// Shortest session timeout, in milliseconds (`group.min.session.timeout.ms`).
    pub session_timeout_ms_min: i32,
    /// Longest session timeout, in milliseconds (`group.max.session.timeout.ms`).
    pub session_timeout_ms_max: i32,
    /// Members of one group (`group.max.size`).
    pub group_size_max: usize,
    /// How long offsets live after their group became empty, or after the commit when the group
    /// never had members (`offsets.retention.minutes`).
    pub offsets_retention: Duration,
    /// Time between two looks for expired offsets (`offsets.retention.check.interval.ms`).
    pub retention_check_interval: Duration,
    /// Bytes of the text committed with an offset (`offset.metadata.max.bytes`).
    pub offset_metadata_bytes_max: usize,
    /// Groups of one coordinator.
    pub groups_max: usize,
    /// Partitions with a committed offset in one group.
    pub offsets_per_group_max: usize,
    /// Batches of offset records handed to the log and not yet settled.
    pub commits_in_flight_max: usize,
    /// Requests of one group that wait for its record to become durable.
    pub deferred_requests_max: usize,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            initial_rebalance_delay: Duration::from_millis(3_000),
            session_timeout_ms_min: 6_000,
            session_timeout_ms_max: 1_800_000,
            group_size_max: 10_000,
            offsets_retention: Duration::from_secs(7 * 24 * 3_600),
            retention_check_interval: Duration::from_secs(600),
            offset_metadata_bytes_max: 4_096,
            groups_max: 1_000_000,
            offsets_per_group_max: 1_000_000,
            commits_in_flight_max: 65_536,
            deferred_requests_max: 65_536,
        }
    }
}
