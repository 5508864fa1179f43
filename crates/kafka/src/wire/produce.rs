//! Produce and InitProducerId: what a producer sends, and the answers. Record batches pass through
//! as bytes; `crate::records` looks inside.

use bytes::Bytes;

use super::table::messages;
use super::{ErrorCode, LeaderIdAndEpoch, NodeEndpoint};

messages! {
    /// Appends record batches to partitions.
    pub struct ProduceRequest {
        /// Transactional id of the producer; null outside transactions.
        transactional_id: Option<String> [3.., nullable 3],
        /// 0 for no answer at all, 1 for the leader, -1 for all in-sync replicas.
        acks: i16 [0..],
        /// Milliseconds to wait for the replicas.
        timeout_ms: i32 [0..],
        topic_data: Vec<ProduceTopic> [0..],
    }
    /// Batches for one topic.
    pub struct ProduceTopic {
        name: String [0..=12],
        partition_data: Vec<ProducePartition> [0..],
    }
    /// Batches for one partition.
    pub struct ProducePartition {
        index: i32 [0..],
        /// The record batches as received, a slice of the frame.
        records: Option<Bytes> [0.., nullable 0],
    }

    /// Where the batches went.
    pub struct ProduceResponse {
        responses: Vec<ProduceTopicResponse> [0..],
        throttle_time_ms: i32 [1..],
        /// Where the leaders named in `current_leader` can be reached.
        node_endpoints: Vec<NodeEndpoint> [10.., tag 0],
    }
    /// Results of one topic.
    pub struct ProduceTopicResponse {
        name: String [0..=12],
        partition_responses: Vec<ProducePartitionResponse> [0..],
    }
    /// Result of one partition.
    pub struct ProducePartitionResponse {
        index: i32 [0..],
        error_code: ErrorCode [0..],
        /// Offset of the first record; -1 after an error.
        base_offset: i64 [0..],
        /// Broker's time of the append under LogAppendTime, else -1.
        log_append_time_ms: i64 [2..] = -1,
        log_start_offset: i64 [5..] = -1,
        record_errors: Vec<RecordError> [8..],
        error_message: Option<String> [8.., nullable 8],
        /// The leader to go to after NOT_LEADER_OR_FOLLOWER.
        current_leader: LeaderIdAndEpoch [10.., tag 0],
    }
    /// A record that made its batch fail.
    pub struct RecordError {
        /// Place of the record within the batch.
        batch_index: i32 [8..],
        batch_index_error_message: Option<String> [8.., nullable 8],
    }

    /// Asks for a producer id and epoch.
    pub struct InitProducerIdRequest {
        /// Null for a producer that is idempotent only.
        transactional_id: Option<String> [0.., nullable 0],
        transaction_timeout_ms: i32 [0..],
        /// The id held so far, to raise its epoch; -1 for none.
        producer_id: i64 [3..] = -1,
        producer_epoch: i16 [3..] = -1,
    }
    /// The producer id and epoch to stamp batches with.
    pub struct InitProducerIdResponse {
        throttle_time_ms: i32 [0..],
        error_code: ErrorCode [0..],
        producer_id: i64 [0..] = -1,
        producer_epoch: i16 [0..],
    }
}
