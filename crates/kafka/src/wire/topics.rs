//! Topics: create, delete, add partitions, delete records. Configurations: describe and alter.

use super::table::messages;
use super::{ErrorCode, Uuid};

messages! {
    /// Creates topics.
    pub struct CreateTopicsRequest {
        topics: Vec<CreatableTopic> [0..],
        timeout_ms: i32 [0..] = 60_000,
        /// Check only, create nothing.
        validate_only: bool [1..],
    }
    /// One topic to create.
    pub struct CreatableTopic {
        name: String [0..],
        /// -1 for the broker's default (version 4 on), or with `assignments`.
        num_partitions: i32 [0..],
        /// -1 likewise.
        replication_factor: i16 [0..],
        assignments: Vec<CreatableReplicaAssignment> [0..],
        configs: Vec<CreatableTopicConfig> [0..],
    }
    /// Replicas of one partition, chosen by hand.
    pub struct CreatableReplicaAssignment {
        partition_index: i32 [0..],
        broker_ids: Vec<i32> [0..],
    }
    /// One setting.
    pub struct CreatableTopicConfig {
        name: String [0..],
        value: Option<String> [0.., nullable 0],
    }
    /// Which topics were created.
    pub struct CreateTopicsResponse {
        throttle_time_ms: i32 [2..],
        topics: Vec<CreatableTopicResult> [0..],
    }
    /// Whether one topic was created.
    pub struct CreatableTopicResult {
        name: String [0..],
        topic_id: Uuid [7..],
        error_code: ErrorCode [0..],
        error_message: Option<String> [1.., nullable 0],
        topic_config_error_code: ErrorCode [5.., tag 0],
        num_partitions: i32 [5..] = -1,
        replication_factor: i16 [5..] = -1,
        /// Null when the caller may not see them.
        configs: Option<Vec<CreatedTopicConfig>> [5.., nullable 5],
    }
    /// One setting of a created topic.
    pub struct CreatedTopicConfig {
        name: String [5..],
        value: Option<String> [5.., nullable 5],
        read_only: bool [5..],
        config_source: i8 [5..] = -1,
        is_sensitive: bool [5..],
    }

    /// Deletes topics: by name to version 5, by name or id after.
    pub struct DeleteTopicsRequest {
        topics: Vec<DeleteTopicState> [6..],
        topic_names: Vec<String> [0..=5],
        timeout_ms: i32 [0..],
    }
    /// One topic, by name or by id.
    pub struct DeleteTopicState {
        name: Option<String> [6.., nullable 6],
        topic_id: Uuid [6..],
    }
    /// Which topics were deleted.
    pub struct DeleteTopicsResponse {
        throttle_time_ms: i32 [1..],
        responses: Vec<DeletableTopicResult> [0..],
    }
    /// Whether one topic was deleted.
    pub struct DeletableTopicResult {
        name: Option<String> [0.., nullable 6],
        topic_id: Uuid [6..],
        error_code: ErrorCode [0..],
        error_message: Option<String> [5.., nullable 5],
    }

    /// Adds partitions to topics.
    pub struct CreatePartitionsRequest {
        topics: Vec<CreatePartitionsTopic> [0..],
        timeout_ms: i32 [0..],
        /// Check only, create nothing.
        validate_only: bool [0..],
    }
    /// One topic and how many partitions it shall have.
    pub struct CreatePartitionsTopic {
        name: String [0..],
        /// Partitions in all, not those to add.
        count: i32 [0..],
        assignments: Option<Vec<CreatePartitionsAssignment>> [0.., nullable 0],
    }
    /// Replicas of one new partition, chosen by hand.
    pub struct CreatePartitionsAssignment {
        broker_ids: Vec<i32> [0..],
    }
    /// Which topics got their partitions.
    pub struct CreatePartitionsResponse {
        throttle_time_ms: i32 [0..],
        results: Vec<CreatePartitionsTopicResult> [0..],
    }
    /// Whether one topic got its partitions.
    pub struct CreatePartitionsTopicResult {
        name: String [0..],
        error_code: ErrorCode [0..],
        error_message: Option<String> [0.., nullable 0],
    }

    /// Deletes records from the start of partitions.
    pub struct DeleteRecordsRequest {
        topics: Vec<DeleteRecordsTopic> [0..],
        timeout_ms: i32 [0..],
    }
    /// Partitions of one topic.
    pub struct DeleteRecordsTopic {
        name: String [0..],
        partitions: Vec<DeleteRecordsPartition> [0..],
    }
    /// One partition and the first offset to keep.
    pub struct DeleteRecordsPartition {
        partition_index: i32 [0..],
        /// -1 for the high watermark.
        offset: i64 [0..],
    }
    /// What was deleted.
    pub struct DeleteRecordsResponse {
        throttle_time_ms: i32 [0..],
        topics: Vec<DeleteRecordsTopicResult> [0..],
    }
    /// Results in one topic.
    pub struct DeleteRecordsTopicResult {
        name: String [0..],
        partitions: Vec<DeleteRecordsPartitionResult> [0..],
    }
    /// First offset left in one partition.
    pub struct DeleteRecordsPartitionResult {
        partition_index: i32 [0..],
        low_watermark: i64 [0..],
        error_code: ErrorCode [0..],
    }

    /// Asks for settings.
    pub struct DescribeConfigsRequest {
        resources: Vec<DescribeConfigsResource> [0..],
        include_synonyms: bool [1..],
        include_documentation: bool [3..],
    }
    /// One topic, broker or group and the settings asked for.
    pub struct DescribeConfigsResource {
        /// 2 topic, 4 broker, 8 broker logger, 16 client metrics, 32 group.
        resource_type: i8 [0..],
        resource_name: String [0..],
        /// Null for all.
        configuration_keys: Option<Vec<String>> [0.., nullable 0],
    }
    /// Settings.
    pub struct DescribeConfigsResponse {
        throttle_time_ms: i32 [0..],
        results: Vec<DescribeConfigsResult> [0..],
    }
    /// Settings of one resource.
    pub struct DescribeConfigsResult {
        error_code: ErrorCode [0..],
        error_message: Option<String> [0.., nullable 0],
        resource_type: i8 [0..],
        resource_name: String [0..],
        configs: Vec<DescribedConfig> [0..],
    }
    /// One setting.
    pub struct DescribedConfig {
        name: String [0..],
        /// Null when unset or secret.
        value: Option<String> [0.., nullable 0],
        read_only: bool [0..],
        /// 1 topic, 2 dynamic broker, 3 dynamic default broker, 4 static broker, 5 default.
        config_source: i8 [1..] = -1,
        is_sensitive: bool [0..],
        synonyms: Vec<ConfigSynonym> [1..],
        /// 1 boolean, 2 string, 3 int, 4 short, 5 long, 6 double, 7 list, 8 class, 9 password.
        config_type: i8 [3..],
        documentation: Option<String> [3.., nullable 0],
    }
    /// A place the setting could have come from.
    pub struct ConfigSynonym {
        name: String [1..],
        value: Option<String> [1.., nullable 0],
        source: i8 [1..],
    }

    /// Changes single settings.
    pub struct IncrementalAlterConfigsRequest {
        resources: Vec<AlterConfigsResource> [0..],
        /// Check only, change nothing.
        validate_only: bool [0..],
    }
    /// Changes to one resource.
    pub struct AlterConfigsResource {
        resource_type: i8 [0..],
        resource_name: String [0..],
        configs: Vec<AlterableConfig> [0..],
    }
    /// One change.
    pub struct AlterableConfig {
        name: String [0..],
        /// 0 set, 1 delete, 2 append, 3 subtract.
        config_operation: i8 [0..],
        value: Option<String> [0.., nullable 0],
    }
    /// Which changes were made.
    pub struct IncrementalAlterConfigsResponse {
        throttle_time_ms: i32 [0..],
        responses: Vec<AlterConfigsResourceResponse> [0..],
    }
    /// Replaces all settings of resources: the older way, in which one that is not named is unset.
    pub struct AlterConfigsRequest {
        resources: Vec<ReplacedConfigsResource> [0..],
        /// Check only, change nothing.
        validate_only: bool [0..],
    }
    /// All settings of one resource.
    pub struct ReplacedConfigsResource {
        resource_type: i8 [0..],
        resource_name: String [0..],
        configs: Vec<ReplacedConfig> [0..],
    }
    /// One setting.
    pub struct ReplacedConfig {
        name: String [0..],
        value: Option<String> [0.., nullable 0],
    }
    /// Which resources were changed.
    pub struct AlterConfigsResponse {
        throttle_time_ms: i32 [0..],
        responses: Vec<AlterConfigsResourceResponse> [0..],
    }
    /// Whether one resource was changed.
    pub struct AlterConfigsResourceResponse {
        error_code: ErrorCode [0..],
        error_message: Option<String> [0.., nullable 0],
        resource_type: i8 [0..],
        resource_name: String [0..],
    }
}
