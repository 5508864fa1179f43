//! Who is there and who leads what: ApiVersions, Metadata, DescribeCluster, FindCoordinator.

use std::sync::Arc;

use thetis_catalog::{Topic, TopicId};

use super::error;
use super::topics::{is_internal, is_legal_name};
use crate::broker::Broker;
use crate::wire::{
    ApiKey, ApiVersionsRequest, ApiVersionsResponse, COORDINATOR_GROUP, Coordinator,
    DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse, ErrorCode,
    FindCoordinatorRequest, FindCoordinatorResponse, MetadataBroker, MetadataPartition,
    MetadataRequest, MetadataRequestTopic, MetadataResponse, MetadataTopic, Uuid,
};

/// Operations a client may do where nothing is forbidden: a bit for each of Kafka's AclOperation
/// ordinals that apply to the resource.
pub(super) mod operations {
    const fn bits(ordinals: &[u8]) -> i32 {
        let mut bits = 0;
        let mut index = 0;
        while index < ordinals.len() {
            bits |= 1 << ordinals[index];
            index += 1;
        }
        bits
    }
    /// Create, alter, describe, cluster action, describe and alter configs, idempotent write.
    pub(in super::super) const CLUSTER: i32 = bits(&[5, 7, 8, 9, 10, 11, 12]);
    /// Read, write, create, delete, alter, describe, describe and alter configs.
    pub(in super::super) const TOPIC: i32 = bits(&[3, 4, 5, 6, 7, 8, 10, 11]);
    /// Read, delete, describe.
    pub(in super::super) const GROUP: i32 = bits(&[3, 6, 8]);
}

pub(super) fn api_versions(request: &ApiVersionsRequest, version: i16) -> ApiVersionsResponse {
    let mut response =
        ApiVersionsResponse { api_keys: ApiKey::advertised(), ..ApiVersionsResponse::default() };
    if version >= 3 {
        let names = [&request.client_software_name, &request.client_software_version];
        if !names.iter().all(|name| is_software_name(name)) {
            response.error_code = ErrorCode::InvalidRequest;
            response.api_keys.clear();
        }
    }
    response
}

/// KIP-511: letters, digits, dots and dashes, the first and the last a letter or digit.
fn is_software_name(name: &str) -> bool {
    let ends = [name.chars().next(), name.chars().last()];
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '.' || c == '-';
    name.chars().all(allowed)
        && ends.iter().flatten().count() == 2
        && ends.iter().flatten().all(char::is_ascii_alphanumeric)
}

pub(super) fn metadata(
    broker: &Broker,
    request: MetadataRequest,
    version: i16,
) -> MetadataResponse {
    let settings = &broker.settings;
    // Version 0 has no null: there an empty list asks for all.
    let asked = request.topics.filter(|topics| version > 0 || !topics.is_empty());
    let with_operations = request.include_topic_authorized_operations;
    let create = request.allow_auto_topic_creation && settings.auto_create_topics;
    let topics = match asked {
        None => broker.catalog.list().iter().map(|topic| found(broker, topic)).collect(),
        Some(asked) => asked.into_iter().map(|topic| one(broker, topic, create)).collect(),
    };
    let with_operations = |mut topic: MetadataTopic| {
        if with_operations && topic.error_code == ErrorCode::None {
            topic.topic_authorized_operations = operations::TOPIC;
        }
        topic
    };
    let mut response = MetadataResponse {
        brokers: vec![MetadataBroker {
            node_id: settings.node_id,
            host: settings.advertised.0.clone(),
            port: i32::from(settings.advertised.1),
            rack: None,
        }],
        cluster_id: Some(settings.cluster_id.clone()),
        controller_id: settings.node_id,
        topics: Vec::into_iter(topics).map(with_operations).collect(),
        ..MetadataResponse::default()
    };
    if request.include_cluster_authorized_operations {
        response.cluster_authorized_operations = operations::CLUSTER;
    }
    response
}

fn one(broker: &Broker, asked: MetadataRequestTopic, create: bool) -> MetadataTopic {
    if asked.topic_id != Uuid::ZERO {
        return match broker.catalog.get_by_id(topic_id(asked.topic_id)) {
            Some(topic) => found(broker, &topic),
            None => MetadataTopic {
                error_code: ErrorCode::UnknownTopicId,
                name: asked.name,
                topic_id: asked.topic_id,
                ..MetadataTopic::default()
            },
        };
    }
    let name = asked.name.unwrap_or_default();
    let missing = |error_code| MetadataTopic {
        error_code,
        is_internal: is_internal(&name),
        name: Some(name.clone()),
        ..MetadataTopic::default()
    };
    if let Some(topic) = broker.catalog.get(&name) {
        return found(broker, &topic);
    }
    if !is_legal_name(&name) {
        return missing(ErrorCode::InvalidTopicException);
    }
    if !create || is_internal(&name) {
        return missing(ErrorCode::UnknownTopicOrPartition);
    }
    match broker.topic_or_create(&name) {
        Ok(topic) => found(broker, &topic),
        Err(failed) => {
            tracing::warn!(topic = name, error = %failed, "could not create a topic on demand");
            missing(error::of_catalog(&failed))
        }
    }
}

fn found(broker: &Broker, topic: &Arc<Topic>) -> MetadataTopic {
    let me = broker.settings.node_id;
    let partitions =
        (0..).zip(&topic.partitions).map(|(partition_index, stream)| MetadataPartition {
            error_code: ErrorCode::None,
            partition_index,
            leader_id: me,
            leader_epoch: leader_epoch(stream),
            replica_nodes: vec![me],
            isr_nodes: vec![me],
            offline_replicas: Vec::new(),
        });
    MetadataTopic {
        error_code: ErrorCode::None,
        name: Some(topic.name.clone()),
        topic_id: wire_id(topic.id),
        is_internal: is_internal(&topic.name),
        partitions: partitions.collect(),
        ..MetadataTopic::default()
    }
}

/// The stream's epoch, as clients know it.
pub(super) fn leader_epoch(stream: &thetis_stream::Stream) -> i32 {
    wire_epoch(stream.epoch())
}

/// An epoch as clients know it.
pub(super) fn wire_epoch(epoch: thetis_types::Epoch) -> i32 {
    i32::try_from(epoch.0).unwrap_or(i32::MAX)
}

pub(super) fn wire_id(id: TopicId) -> Uuid {
    Uuid(*id.0.as_bytes())
}

pub(super) fn topic_id(id: Uuid) -> TopicId {
    TopicId::from_bytes(id.0)
}

pub(super) fn describe_cluster(
    broker: &Broker,
    request: &DescribeClusterRequest,
) -> DescribeClusterResponse {
    let settings = &broker.settings;
    if request.endpoint_type != 1 {
        return DescribeClusterResponse {
            error_code: ErrorCode::UnsupportedEndpointType,
            error_message: Some("this listener knows brokers (endpoint type 1) only".into()),
            endpoint_type: request.endpoint_type,
            ..DescribeClusterResponse::default()
        };
    }
    let mut response = DescribeClusterResponse {
        cluster_id: settings.cluster_id.clone(),
        controller_id: settings.node_id,
        brokers: vec![DescribeClusterBroker {
            broker_id: settings.node_id,
            host: settings.advertised.0.clone(),
            port: i32::from(settings.advertised.1),
            ..DescribeClusterBroker::default()
        }],
        ..DescribeClusterResponse::default()
    };
    if request.include_cluster_authorized_operations {
        response.cluster_authorized_operations = operations::CLUSTER;
    }
    response
}

pub(super) fn find_coordinator(
    broker: &Broker,
    request: FindCoordinatorRequest,
    version: i16,
) -> FindCoordinatorResponse {
    let settings = &broker.settings;
    let refusal = if request.key_type == COORDINATOR_GROUP {
        match broker.groups.ready(broker) {
            Ok(()) => None,
            Err(failed) => Some((ErrorCode::CoordinatorNotAvailable, failed.to_string())),
        }
    } else {
        let why = "transactions and share groups are not served";
        Some((ErrorCode::InvalidRequest, why.to_owned()))
    };
    let (error_code, error_message) = match refusal {
        None => (ErrorCode::None, None),
        Some((code, message)) => (code, Some(message)),
    };
    let (node_id, host, port) = match error_code {
        ErrorCode::None => {
            let (host, port) = settings.advertised.clone();
            (settings.node_id, host, i32::from(port))
        }
        _ => (-1, String::new(), -1),
    };
    if version < 4 {
        return FindCoordinatorResponse {
            error_code,
            error_message,
            node_id,
            host,
            port,
            ..FindCoordinatorResponse::default()
        };
    }
    let coordinators = request.coordinator_keys.into_iter().map(|key| Coordinator {
        key,
        node_id,
        host: host.clone(),
        port,
        error_code,
        error_message: error_message.clone(),
    });
    FindCoordinatorResponse { coordinators: coordinators.collect(), ..Default::default() }
}
