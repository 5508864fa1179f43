//! Topics come, grow, are cut and go: CreateTopics, CreatePartitions, DeleteRecords, DeleteTopics.

use std::collections::{BTreeMap, HashMap};

use thetis_catalog::{CatalogError, Format, Topic, TopicSpec, config};
use thetis_types::Offset;
use thetis_types::limits::TOPIC_NAME_BYTES_MAX;

use super::metadata::{topic_id, wire_id};
use super::{blocking, error};
use crate::broker::Broker;
use crate::coordinator::OFFSETS_TOPIC;
use crate::wire::{
    CreatableTopic, CreatableTopicResult, CreatePartitionsRequest, CreatePartitionsResponse,
    CreatePartitionsTopic, CreatePartitionsTopicResult, CreateTopicsRequest, CreateTopicsResponse,
    CreatedTopicConfig, DeletableTopicResult, DeleteRecordsPartition, DeleteRecordsPartitionResult,
    DeleteRecordsRequest, DeleteRecordsResponse, DeleteRecordsTopicResult, DeleteTopicState,
    DeleteTopicsRequest, DeleteTopicsResponse, ErrorCode, Uuid,
};

/// Where a configuration value comes from, as DescribeConfigs numbers it.
pub(super) mod source {
    pub(in super::super) const TOPIC: i8 = 1;
    pub(in super::super) const STATIC_BROKER: i8 = 4;
    pub(in super::super) const DEFAULT: i8 = 5;

    /// Of a topic's value: set by the topic, by the server, or by nobody.
    pub(in super::super) const fn of_topic(is_set: bool, is_servers: bool) -> i8 {
        match (is_set, is_servers) {
            (true, _) => TOPIC,
            (false, true) => STATIC_BROKER,
            (false, false) => DEFAULT,
        }
    }
}

/// Whether clients see the topic as one of the server's own.
pub(super) fn is_internal(name: &str) -> bool {
    name == OFFSETS_TOPIC || name == "__transaction_state"
}

/// Kafka's rule for topic names.
pub(super) fn is_legal_name(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    !matches!(name, "" | "." | "..")
        && name.len() <= TOPIC_NAME_BYTES_MAX
        && name.chars().all(allowed)
}

/// An error code and what a person is to be told.
type Fault = (ErrorCode, String);

fn fault_of(error: &CatalogError) -> Fault {
    (error::of_catalog(error), error.to_string())
}

pub(super) fn create(broker: &Broker, request: CreateTopicsRequest) -> CreateTopicsResponse {
    let mut times: HashMap<&str, usize> = HashMap::new();
    for topic in &request.topics {
        *times.entry(&topic.name).or_default() += 1;
    }
    let specs: Vec<Result<TopicSpec, Fault>> = request
        .topics
        .iter()
        .map(|topic| match times.get(topic.name.as_str()) {
            Some(1) => spec(broker, topic),
            _ => Err((ErrorCode::InvalidRequest, "named more than once in the request".into())),
        })
        .collect();
    let good: Vec<TopicSpec> = specs.iter().flatten().cloned().collect();
    let outcomes: Vec<Result<Option<std::sync::Arc<Topic>>, CatalogError>> =
        if request.validate_only {
            good.iter().map(|spec| broker.catalog.check(spec).map(|()| None)).collect()
        } else {
            let created = broker.catalog.create_all(good);
            created.into_iter().map(|topic| topic.map(Some)).collect()
        };
    let mut outcomes = outcomes.into_iter();
    let topics = request.topics.iter().zip(specs).map(|(asked, spec)| {
        let result = spec.and_then(|spec| {
            let outcome = outcomes.next().expect("one outcome for each spec");
            outcome.map(|topic| (spec, topic)).map_err(|error| fault_of(&error))
        });
        match result {
            Ok((spec, topic)) => created(broker, &spec, topic.as_deref()),
            Err((error_code, message)) => CreatableTopicResult {
                name: asked.name.clone(),
                error_code,
                error_message: Some(message),
                ..CreatableTopicResult::default()
            },
        }
    });
    CreateTopicsResponse { topics: topics.collect(), ..CreateTopicsResponse::default() }
}

fn spec(broker: &Broker, topic: &CreatableTopic) -> Result<TopicSpec, Fault> {
    if !is_legal_name(&topic.name) {
        let why = format!(
            "{:?} is not a topic name: 1 to {TOPIC_NAME_BYTES_MAX} of a-z, A-Z, 0-9, '.', '_', '-'",
            topic.name
        );
        return Err((ErrorCode::InvalidTopicException, why));
    }
    let me = broker.settings.node_id;
    let partitions = if topic.assignments.is_empty() {
        if !matches!(topic.replication_factor, -1 | 1) {
            let why = format!(
                "replication factor {} is larger than the 1 broker there is",
                topic.replication_factor
            );
            return Err((ErrorCode::InvalidReplicationFactor, why));
        }
        match topic.num_partitions {
            -1 => broker.settings.default_partitions,
            count => u32::try_from(count).unwrap_or(0),
        }
    } else {
        if topic.num_partitions != -1 || topic.replication_factor != -1 {
            let why = "give either assignments or partitions and replication factor";
            return Err((ErrorCode::InvalidRequest, why.into()));
        }
        let mut indexes: Vec<i32> =
            topic.assignments.iter().map(|assignment| assignment.partition_index).collect();
        indexes.sort_unstable();
        let dense = (0..).zip(&indexes).all(|(index, found)| index == *found);
        if !dense || topic.assignments.iter().any(|assignment| assignment.broker_ids != [me]) {
            let why = format!("assign partitions 0, 1, 2... to broker {me} alone");
            return Err((ErrorCode::InvalidReplicaAssignment, why));
        }
        u32::try_from(indexes.len()).unwrap_or(u32::MAX)
    };
    let mut configs = BTreeMap::new();
    for config in &topic.configs {
        let Some(value) = &config.value else {
            let why = format!("configuration {} has no value", config.name);
            return Err((ErrorCode::InvalidConfig, why));
        };
        configs.insert(config.name.clone(), value.clone());
    }
    Ok(TopicSpec { name: topic.name.clone(), partitions, format: Format::Kafka, configs })
}

fn created(broker: &Broker, spec: &TopicSpec, topic: Option<&Topic>) -> CreatableTopicResult {
    let configs = config::KEYS.iter().map(|key| {
        let set = spec.configs.get(key.name).map(String::as_str);
        let (default, is_servers) = broker.catalog.defaults().get(key);
        CreatedTopicConfig {
            name: key.name.to_owned(),
            value: Some(set.unwrap_or(default).to_owned()),
            read_only: false,
            config_source: source::of_topic(set.is_some(), is_servers),
            is_sensitive: false,
        }
    });
    CreatableTopicResult {
        name: spec.name.clone(),
        topic_id: topic.map_or(Uuid::ZERO, |topic| wire_id(topic.id)),
        num_partitions: i32::try_from(spec.partitions).unwrap_or(i32::MAX),
        replication_factor: 1,
        configs: Some(configs.collect()),
        ..CreatableTopicResult::default()
    }
}

pub(super) async fn delete(broker: &Broker, request: DeleteTopicsRequest) -> DeleteTopicsResponse {
    let named = |name| DeleteTopicState { name: Some(name), topic_id: Uuid::ZERO };
    let asked = request.topics.into_iter().chain(request.topic_names.into_iter().map(named));
    let mut responses = Vec::new();
    for topic in asked {
        responses.push(delete_one(broker, topic).await);
    }
    DeleteTopicsResponse { responses, ..DeleteTopicsResponse::default() }
}

async fn delete_one(broker: &Broker, asked: DeleteTopicState) -> DeletableTopicResult {
    let by_id = asked.topic_id != Uuid::ZERO;
    let name = match &asked.name {
        _ if by_id => broker.catalog.get_by_id(topic_id(asked.topic_id)).map(|t| t.name.clone()),
        name => name.clone(),
    };
    let refused = |error_code, message: String| DeletableTopicResult {
        name: asked.name.clone(),
        topic_id: asked.topic_id,
        error_code,
        error_message: Some(message),
    };
    let Some(name) = name else {
        return refused(ErrorCode::UnknownTopicId, "no topic has this id".into());
    };
    if is_internal(&name) {
        let why = format!("{name} is the server's own and cannot be deleted");
        return refused(ErrorCode::InvalidTopicException, why);
    }
    match blocking(|| broker.delete_topic(&name)) {
        Ok(topic) => {
            broker.groups.forget_topic(&name).await;
            DeletableTopicResult {
                name: Some(name),
                topic_id: wire_id(topic.id),
                error_code: ErrorCode::None,
                error_message: None,
            }
        }
        Err(failed) => refused(error::of_catalog(&failed), failed.to_string()),
    }
}

pub(super) fn create_partitions(
    broker: &Broker,
    request: CreatePartitionsRequest,
) -> CreatePartitionsResponse {
    let validate_only = request.validate_only;
    let results = request.topics.into_iter().map(|topic| {
        let result = grow(broker, &topic, validate_only);
        let (error_code, error_message) = match result {
            Ok(()) => (ErrorCode::None, None),
            Err((code, message)) => (code, Some(message)),
        };
        CreatePartitionsTopicResult { name: topic.name, error_code, error_message }
    });
    CreatePartitionsResponse { results: results.collect(), ..CreatePartitionsResponse::default() }
}

fn grow(broker: &Broker, topic: &CreatePartitionsTopic, validate_only: bool) -> Result<(), Fault> {
    let total = u32::try_from(topic.count).unwrap_or(0);
    let have = broker.catalog.check_partitions(&topic.name, total).map_err(|e| fault_of(&e))?;
    if let Some(assignments) = &topic.assignments {
        let added = (total - have.partition_count()) as usize;
        let me = broker.settings.node_id;
        if assignments.len() != added || assignments.iter().any(|a| a.broker_ids != [me]) {
            let why = format!("assign each of the {added} new partitions to broker {me} alone");
            return Err((ErrorCode::InvalidReplicaAssignment, why));
        }
    }
    if validate_only {
        return Ok(());
    }
    broker.catalog.add_partitions(&topic.name, total).map(|_| ()).map_err(|e| fault_of(&e))
}

pub(super) fn delete_records(
    broker: &Broker,
    request: DeleteRecordsRequest,
) -> DeleteRecordsResponse {
    let topics = request.topics.into_iter().map(|topic| {
        let cut = |partition: DeleteRecordsPartition| {
            let result = cut(broker, &topic.name, &partition);
            DeleteRecordsPartitionResult {
                partition_index: partition.partition_index,
                low_watermark: result.map_or(-1, |trim| trim.0.cast_signed()),
                error_code: result.err().unwrap_or_default(),
            }
        };
        let partitions = topic.partitions.into_iter().map(cut).collect();
        DeleteRecordsTopicResult { name: topic.name.clone(), partitions }
    });
    DeleteRecordsResponse { topics: topics.collect(), ..DeleteRecordsResponse::default() }
}

fn cut(
    broker: &Broker,
    topic: &str,
    partition: &DeleteRecordsPartition,
) -> Result<Offset, ErrorCode> {
    let topic = broker.catalog.get(topic).ok_or(ErrorCode::UnknownTopicOrPartition)?;
    let stream =
        topic.partition(partition.partition_index).ok_or(ErrorCode::UnknownTopicOrPartition)?;
    let before = match partition.offset {
        -1 => stream.committed_end(),
        offset => Offset(u64::try_from(offset).map_err(|_| ErrorCode::OffsetOutOfRange)?),
    };
    stream.trim(before).map_err(|failed| error::of_stream(&failed))
}
