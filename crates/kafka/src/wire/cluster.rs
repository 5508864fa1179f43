//! ApiVersions, Metadata, DescribeCluster and FindCoordinator: who is there, what they speak, and
//! who to ask.

use super::ErrorCode;
use super::Uuid;
use super::table::messages;

/// Value of the `*_authorized_operations` fields when nobody asked for them.
pub const AUTHORIZED_OPERATIONS_UNKNOWN: i32 = i32::MIN;

/// FindCoordinator key type of a consumer group.
pub const COORDINATOR_GROUP: i8 = 0;
/// FindCoordinator key type of a transactional id.
pub const COORDINATOR_TRANSACTION: i8 = 1;

messages! {
    /// Asks which APIs and versions are served.
    pub struct ApiVersionsRequest {
        client_software_name: String [3..],
        client_software_version: String [3..],
    }
    /// The APIs and versions served.
    pub struct ApiVersionsResponse {
        error_code: ErrorCode [0..],
        api_keys: Vec<ApiVersion> [0..],
        throttle_time_ms: i32 [1..],
        supported_features: Vec<SupportedFeature> [3.., tag 0],
        /// -1 when unknown.
        finalized_features_epoch: i64 [3.., tag 1] = -1,
        finalized_features: Vec<FinalizedFeature> [3.., tag 2],
        zk_migration_ready: bool [3.., tag 3],
    }
    /// Versions of one API, both bounds included.
    pub struct ApiVersion {
        api_key: i16 [0..],
        min_version: i16 [0..],
        max_version: i16 [0..],
    }
    /// Levels of a feature this broker can run.
    pub struct SupportedFeature {
        name: String [3..],
        min_version: i16 [3..],
        max_version: i16 [3..],
    }
    /// Level of a feature the cluster runs.
    pub struct FinalizedFeature {
        name: String [3..],
        max_version_level: i16 [3..],
        min_version_level: i16 [3..],
    }

    /// Asks for brokers, topics and leaders.
    pub struct MetadataRequest {
        /// Null for all topics, empty for none; in version 0 empty means all.
        topics: Option<Vec<MetadataRequestTopic>> [0.., nullable 1],
        allow_auto_topic_creation: bool [4..] = true,
        include_cluster_authorized_operations: bool [8..=10],
        include_topic_authorized_operations: bool [8..],
    }
    /// A topic by name, or from version 10 by id with a null name.
    pub struct MetadataRequestTopic {
        topic_id: Uuid [10..],
        name: Option<String> [0.., nullable 10],
    }
    /// Brokers, topics and leaders.
    pub struct MetadataResponse {
        throttle_time_ms: i32 [3..],
        brokers: Vec<MetadataBroker> [0..],
        cluster_id: Option<String> [2.., nullable 2],
        controller_id: i32 [1..] = -1,
        topics: Vec<MetadataTopic> [0..],
        cluster_authorized_operations: i32 [8..=10] = AUTHORIZED_OPERATIONS_UNKNOWN,
    }
    /// One broker and where it listens.
    pub struct MetadataBroker {
        node_id: i32 [0..],
        host: String [0..],
        port: i32 [0..],
        rack: Option<String> [1.., nullable 1],
    }
    /// One topic.
    pub struct MetadataTopic {
        error_code: ErrorCode [0..],
        /// Null only when asked for by an unknown id.
        name: Option<String> [0.., nullable 12],
        topic_id: Uuid [10..],
        is_internal: bool [1..],
        partitions: Vec<MetadataPartition> [0..],
        topic_authorized_operations: i32 [8..] = AUTHORIZED_OPERATIONS_UNKNOWN,
    }
    /// One partition and its leader.
    pub struct MetadataPartition {
        error_code: ErrorCode [0..],
        partition_index: i32 [0..],
        /// -1 for none.
        leader_id: i32 [0..],
        leader_epoch: i32 [7..] = -1,
        replica_nodes: Vec<i32> [0..],
        isr_nodes: Vec<i32> [0..],
        offline_replicas: Vec<i32> [5..],
    }

    /// Asks for the brokers alone.
    pub struct DescribeClusterRequest {
        include_cluster_authorized_operations: bool [0..],
        /// 1 brokers, 2 controllers.
        endpoint_type: i8 [1..] = 1,
        include_fenced_brokers: bool [2..],
    }
    /// The brokers.
    pub struct DescribeClusterResponse {
        throttle_time_ms: i32 [0..],
        error_code: ErrorCode [0..],
        error_message: Option<String> [0.., nullable 0],
        endpoint_type: i8 [1..] = 1,
        cluster_id: String [0..],
        controller_id: i32 [0..] = -1,
        brokers: Vec<DescribeClusterBroker> [0..],
        cluster_authorized_operations: i32 [0..] = AUTHORIZED_OPERATIONS_UNKNOWN,
    }
    /// One broker and where it listens.
    pub struct DescribeClusterBroker {
        broker_id: i32 [0..],
        host: String [0..],
        port: i32 [0..],
        rack: Option<String> [0.., nullable 0],
        is_fenced: bool [2..],
    }

    /// Asks who coordinates a group or a transactional id: one to version 3, several after.
    pub struct FindCoordinatorRequest {
        key: String [0..=3],
        /// [`COORDINATOR_GROUP`] or [`COORDINATOR_TRANSACTION`].
        key_type: i8 [1..],
        coordinator_keys: Vec<String> [4..],
    }
    /// The coordinators.
    pub struct FindCoordinatorResponse {
        throttle_time_ms: i32 [1..],
        error_code: ErrorCode [0..=3],
        error_message: Option<String> [1..=3, nullable 1],
        node_id: i32 [0..=3],
        host: String [0..=3],
        port: i32 [0..=3],
        coordinators: Vec<Coordinator> [4..],
    }
    /// Coordinator of one key.
    pub struct Coordinator {
        key: String [4..],
        node_id: i32 [4..],
        host: String [4..],
        port: i32 [4..],
        error_code: ErrorCode [4..],
        error_message: Option<String> [4.., nullable 4],
    }
}
