//! Fetch, ListOffsets and OffsetForLeaderEpoch: how a consumer reads and finds its place.

use super::table::messages;
use super::{ErrorCode, LeaderIdAndEpoch, NodeEndpoint, Records, Uuid};

/// ListOffsets timestamp that asks for the end: the high watermark, or the last stable offset
/// under read_committed.
pub const LATEST_TIMESTAMP: i64 = -1;
/// ListOffsets timestamp that asks for the first offset there is.
pub const EARLIEST_TIMESTAMP: i64 = -2;
/// ListOffsets timestamp that asks for the record with the largest timestamp (version 7 on).
pub const MAX_TIMESTAMP: i64 = -3;
/// ListOffsets timestamp that asks for the first offset on local storage (version 8 on).
pub const EARLIEST_LOCAL_TIMESTAMP: i64 = -4;
/// ListOffsets timestamp that asks for the last offset in tiered storage (version 9 on).
pub const LATEST_TIERED_TIMESTAMP: i64 = -5;

messages! {
    /// Reads record batches, waiting until there are enough.
    pub struct FetchRequest {
        cluster_id: Option<String> [12.., nullable 12, tag 0],
        /// -1 for a consumer.
        replica_id: i32 [0..=14] = -1,
        replica_state: ReplicaState [15.., tag 1],
        max_wait_ms: i32 [0..],
        /// Fewest bytes worth an answer before `max_wait_ms` is over.
        min_bytes: i32 [0..],
        /// Bytes of the whole answer, exceeded only by its first batch.
        max_bytes: i32 [3..] = i32::MAX,
        /// 0 read_uncommitted, 1 read_committed.
        isolation_level: i8 [4..],
        session_id: i32 [7..],
        /// -1 for a fetch without session, 0 to open one.
        session_epoch: i32 [7..] = -1,
        topics: Vec<FetchTopic> [0..],
        forgotten_topics_data: Vec<ForgottenTopic> [7..],
        rack_id: String [11..],
    }
    /// Who a fetching replica is.
    pub struct ReplicaState {
        replica_id: i32 [15..] = -1,
        replica_epoch: i64 [15..] = -1,
    }
    /// Partitions of one topic to read, named to version 12, by id from version 13.
    pub struct FetchTopic {
        topic: String [0..=12],
        topic_id: Uuid [13..],
        partitions: Vec<FetchPartition> [0..],
    }
    /// One partition to read.
    pub struct FetchPartition {
        partition: i32 [0..],
        /// Epoch of the leader the client believes in; -1 when it does not know.
        current_leader_epoch: i32 [9..] = -1,
        fetch_offset: i64 [0..],
        last_fetched_epoch: i32 [12..] = -1,
        /// Of a follower; -1 for a consumer.
        log_start_offset: i64 [5..] = -1,
        partition_max_bytes: i32 [0..],
    }
    /// Partitions to take out of a session.
    pub struct ForgottenTopic {
        topic: String [7..=12],
        topic_id: Uuid [13..],
        partitions: Vec<i32> [7..],
    }

    /// Record batches of the partitions asked for.
    pub struct FetchResponse {
        throttle_time_ms: i32 [1..],
        error_code: ErrorCode [7..],
        /// 0 when there is no session.
        session_id: i32 [7..],
        responses: Vec<FetchTopicResponse> [0..],
        /// Where the leaders named in `current_leader` can be reached.
        node_endpoints: Vec<NodeEndpoint> [16.., tag 0],
    }
    /// What was read from one topic.
    pub struct FetchTopicResponse {
        topic: String [0..=12],
        topic_id: Uuid [13..],
        partitions: Vec<FetchPartitionResponse> [0..],
    }
    /// What was read from one partition.
    pub struct FetchPartitionResponse {
        partition_index: i32 [0..],
        error_code: ErrorCode [0..],
        high_watermark: i64 [0..],
        last_stable_offset: i64 [4..] = -1,
        log_start_offset: i64 [5..] = -1,
        /// Where a follower's log stops matching ours.
        diverging_epoch: DivergingEpoch [12.., tag 0],
        current_leader: LeaderIdAndEpoch [12.., tag 1],
        snapshot_id: SnapshotId [12.., tag 2],
        /// Transactions whose records in this answer a read_committed consumer drops; null under
        /// read_uncommitted.
        aborted_transactions: Option<Vec<AbortedTransaction>> [4.., nullable 4],
        /// -1 to keep reading here.
        preferred_read_replica: i32 [11..] = -1,
        records: Records [0.., nullable 0],
    }
    /// Last epoch the logs share, and its end.
    pub struct DivergingEpoch {
        epoch: i32 [12..] = -1,
        end_offset: i64 [12..] = -1,
    }
    /// A snapshot to load instead of fetching.
    pub struct SnapshotId {
        end_offset: i64 [0..] = -1,
        epoch: i32 [0..] = -1,
    }
    /// One aborted transaction.
    pub struct AbortedTransaction {
        producer_id: i64 [4..],
        first_offset: i64 [4..],
    }

    /// Asks for offsets by time; see the `*_TIMESTAMP` constants.
    pub struct ListOffsetsRequest {
        /// -1 for a consumer.
        replica_id: i32 [0..] = -1,
        /// 0 read_uncommitted, 1 read_committed.
        isolation_level: i8 [2..],
        topics: Vec<ListOffsetsTopic> [0..],
    }
    /// Partitions of one topic.
    pub struct ListOffsetsTopic {
        name: String [0..],
        partitions: Vec<ListOffsetsPartition> [0..],
    }
    /// One partition and the time asked for.
    pub struct ListOffsetsPartition {
        partition_index: i32 [0..],
        current_leader_epoch: i32 [4..] = -1,
        timestamp: i64 [0..],
    }
    /// The offsets found.
    pub struct ListOffsetsResponse {
        throttle_time_ms: i32 [2..],
        topics: Vec<ListOffsetsTopicResponse> [0..],
    }
    /// Offsets found in one topic.
    pub struct ListOffsetsTopicResponse {
        name: String [0..],
        partitions: Vec<ListOffsetsPartitionResponse> [0..],
    }
    /// First offset at or after the time asked for; -1 and -1 when there is none.
    pub struct ListOffsetsPartitionResponse {
        partition_index: i32 [0..],
        error_code: ErrorCode [0..],
        timestamp: i64 [1..] = -1,
        offset: i64 [1..] = -1,
        leader_epoch: i32 [4..] = -1,
    }

    /// Asks where leader epochs end, to find out whether the log was truncated.
    pub struct OffsetForLeaderEpochRequest {
        /// -1 for a consumer, -2 when older versions do not say.
        replica_id: i32 [3..] = -2,
        topics: Vec<OffsetForLeaderTopic> [0..],
    }
    /// Partitions of one topic.
    pub struct OffsetForLeaderTopic {
        topic: String [0..],
        partitions: Vec<OffsetForLeaderPartition> [0..],
    }
    /// One partition and the epoch asked about.
    pub struct OffsetForLeaderPartition {
        partition: i32 [0..],
        current_leader_epoch: i32 [2..] = -1,
        leader_epoch: i32 [0..],
    }
    /// Ends of the epochs.
    pub struct OffsetForLeaderEpochResponse {
        throttle_time_ms: i32 [2..],
        topics: Vec<OffsetForLeaderTopicResult> [0..],
    }
    /// Ends in one topic.
    pub struct OffsetForLeaderTopicResult {
        topic: String [0..],
        partitions: Vec<EpochEndOffset> [0..],
    }
    /// Largest epoch not above the one asked about, and the first offset after it.
    pub struct EpochEndOffset {
        error_code: ErrorCode [0..],
        partition: i32 [0..],
        leader_epoch: i32 [1..] = -1,
        end_offset: i64 [0..] = -1,
    }
}
