//! OffsetCommit and OffsetFetch: how far a group has read.

use super::ErrorCode;
use super::table::messages;

messages! {
    /// Stores how far a group has read.
    pub struct OffsetCommitRequest {
        group_id: String [0..],
        /// Generation of the classic protocol, or epoch of the member; -1 outside a group.
        generation_id_or_member_epoch: i32 [1..] = -1,
        member_id: String [1..],
        group_instance_id: Option<String> [7.., nullable 7],
        /// -1 for the broker's setting.
        retention_time_ms: i64 [2..=4] = -1,
        topics: Vec<OffsetCommitTopic> [0..],
    }
    /// Offsets in one topic.
    pub struct OffsetCommitTopic {
        name: String [0..],
        partitions: Vec<OffsetCommitPartition> [0..],
    }
    /// Offset in one partition.
    pub struct OffsetCommitPartition {
        partition_index: i32 [0..],
        /// First offset not read.
        committed_offset: i64 [0..],
        committed_leader_epoch: i32 [6..] = -1,
        /// Words of the consumer, kept as they are.
        committed_metadata: Option<String> [0.., nullable 0],
    }
    /// Which were stored.
    pub struct OffsetCommitResponse {
        throttle_time_ms: i32 [3..],
        topics: Vec<OffsetCommitTopicResponse> [0..],
    }
    /// Results in one topic.
    pub struct OffsetCommitTopicResponse {
        name: String [0..],
        partitions: Vec<OffsetCommitPartitionResponse> [0..],
    }
    /// Result of one partition.
    pub struct OffsetCommitPartitionResponse {
        partition_index: i32 [0..],
        error_code: ErrorCode [0..],
    }

    /// Asks how far groups have read: one group to version 7, several after.
    pub struct OffsetFetchRequest {
        group_id: String [0..=7],
        /// Null for all partitions with an offset (version 2 on).
        topics: Option<Vec<OffsetFetchTopic>> [0..=7, nullable 2],
        groups: Vec<OffsetFetchGroup> [8..],
        /// Refuse while a transaction may still change the offsets.
        require_stable: bool [7..],
    }
    /// Partitions of one topic.
    pub struct OffsetFetchTopic {
        name: String [0..],
        partition_indexes: Vec<i32> [0..],
    }
    /// One group and the partitions asked for.
    pub struct OffsetFetchGroup {
        group_id: String [8..],
        member_id: Option<String> [9.., nullable 9],
        member_epoch: i32 [9..] = -1,
        /// Null for all partitions with an offset.
        topics: Option<Vec<OffsetFetchTopic>> [8.., nullable 8],
    }
    /// How far the groups have read.
    pub struct OffsetFetchResponse {
        throttle_time_ms: i32 [3..],
        topics: Vec<OffsetFetchTopicResponse> [0..=7],
        error_code: ErrorCode [2..=7],
        groups: Vec<OffsetFetchGroupResponse> [8..],
    }
    /// How far one group has read.
    pub struct OffsetFetchGroupResponse {
        group_id: String [8..],
        topics: Vec<OffsetFetchTopicResponse> [8..],
        error_code: ErrorCode [8..],
    }
    /// Offsets in one topic.
    pub struct OffsetFetchTopicResponse {
        name: String [0..],
        partitions: Vec<OffsetFetchPartitionResponse> [0..],
    }
    /// Offset in one partition.
    pub struct OffsetFetchPartitionResponse {
        partition_index: i32 [0..],
        /// -1 when nothing was committed.
        committed_offset: i64 [0..],
        committed_leader_epoch: i32 [5..] = -1,
        metadata: Option<String> [0.., nullable 0],
        error_code: ErrorCode [0..],
    }
}
