//! Topics as a client sees them: list, create, delete, describe, and where their offsets begin and
//! end. Learns where nodes listen on the way.

use std::collections::BTreeMap;
use std::time::Duration;

use thetis_kafka::wire::{
    CreatableTopic, CreatableTopicConfig, CreateTopicsRequest, DeleteTopicState,
    DeleteTopicsRequest, DescribeConfigsRequest, DescribeConfigsResource, ErrorCode,
    ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic, MetadataRequest,
    MetadataRequestTopic, MetadataResponse, MetadataTopic,
};

use super::{Client, ClientError};
use crate::config::value::Address;
use thetis_types::spelling::nearest;

/// How long the server may take to create or delete a topic.
const CHANGE_WAIT: Duration = Duration::from_secs(30);
/// A topic among the resources that have a configuration.
const RESOURCE_TOPIC: i8 = 2;
/// Where a configuration value comes from when it was set on the topic.
const SOURCE_TOPIC: i8 = 1;

/// One topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Topic {
    /// Its name.
    pub(crate) name: String,
    /// Whether the cluster keeps its own state in it.
    pub(crate) internal: bool,
    /// Its partitions by number.
    pub(crate) partitions: Vec<Partition>,
}

/// One partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Partition {
    /// Its number.
    pub(crate) index: i32,
    /// Id of the node that leads it; -1 for none.
    pub(crate) leader: i32,
    /// Ids of the nodes that hold it.
    pub(crate) replicas: Vec<i32>,
}

/// A topic to be created.
pub(crate) struct NewTopic {
    /// Its name.
    pub(crate) name: String,
    /// Number of partitions; the server's default when there is none.
    pub(crate) partitions: Option<i32>,
    /// Settings of the topic, in the protocol's names.
    pub(crate) configs: Vec<(String, String)>,
}

impl Topic {
    /// The partition `index`, or an error that says which there are.
    pub(crate) fn partition(&self, index: i32) -> Result<&Partition, ClientError> {
        self.partitions.iter().find(|partition| partition.index == index).ok_or_else(|| {
            ClientError::UnknownPartition {
                topic: self.name.clone(),
                partition: index,
                last: self.partitions.last().map_or(-1, |partition| partition.index),
            }
        })
    }
}

impl Client {
    /// All topics, by name.
    pub(crate) fn topics(&mut self) -> Result<Vec<Topic>, ClientError> {
        let answer = self.retrying(|client| client.metadata(None))?;
        let mut topics: Vec<Topic> = answer.topics.into_iter().map(topic_of).collect();
        topics.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(topics)
    }

    /// The topic `name`, every partition led. `create` lets a server that creates topics on first
    /// use do so.
    ///
    /// # Errors
    /// [`ClientError::UnknownTopic`], with a name like it when there is one.
    pub(crate) fn topic(&mut self, name: &str, create: bool) -> Result<Topic, ClientError> {
        let found = self.retrying(|client| {
            let mut answer = client.metadata(Some((name, create)))?;
            let topic = answer.topics.pop().ok_or_else(|| client.unknown_topic(name, None))?;
            match topic.error_code {
                // A topic that was just created has no leaders for a moment; one that may not be
                // created will not appear by waiting.
                ErrorCode::UnknownTopicOrPartition if !create => Ok(None),
                code => {
                    ClientError::check(code, None, || format!("find topic {name}"))?;
                    let topic = topic_of(topic);
                    if topic.partitions.iter().any(|partition| partition.leader < 0) {
                        let code = ErrorCode::LeaderNotAvailable;
                        ClientError::check(code, None, || format!("find the leaders of {name}"))?;
                    }
                    Ok(Some(topic))
                }
            }
        });
        match found {
            Ok(Some(topic)) => Ok(topic),
            Ok(None)
            | Err(ClientError::Refused { code: ErrorCode::UnknownTopicOrPartition, .. }) => {
                let topics = self.topics()?;
                let names = topics.iter().map(|topic| topic.name.as_str());
                let nearest = nearest(name, names).map(str::to_owned);
                Err(self.unknown_topic(name, nearest))
            }
            Err(error) => Err(error),
        }
    }

    fn unknown_topic(&self, name: &str, nearest: Option<String>) -> ClientError {
        let address = self.bootstrap.clone();
        ClientError::UnknownTopic { topic: name.to_owned(), address, nearest }
    }

    fn metadata(&mut self, topic: Option<(&str, bool)>) -> Result<MetadataResponse, ClientError> {
        let request = MetadataRequest {
            topics: topic.map(|(name, _)| {
                vec![MetadataRequestTopic {
                    name: Some(name.to_owned()),
                    ..MetadataRequestTopic::default()
                }]
            }),
            allow_auto_topic_creation: topic.is_some_and(|(_, create)| create),
            ..MetadataRequest::default()
        };
        let answer = self.ask(&request)?;
        self.nodes = answer
            .brokers
            .iter()
            .filter_map(|broker| {
                let port = u16::try_from(broker.port).ok()?;
                Some((broker.node_id, Address { host: broker.host.clone(), port }))
            })
            .collect();
        Ok(answer)
    }

    /// Creates a topic and gives the number of its partitions, -1 when the server does not say.
    pub(crate) fn create_topic(&mut self, topic: &NewTopic) -> Result<i32, ClientError> {
        let request = CreateTopicsRequest {
            topics: vec![CreatableTopic {
                name: topic.name.clone(),
                num_partitions: topic.partitions.unwrap_or(-1),
                replication_factor: -1,
                configs: topic
                    .configs
                    .iter()
                    .map(|(name, value)| CreatableTopicConfig {
                        name: name.clone(),
                        value: Some(value.clone()),
                    })
                    .collect(),
                ..CreatableTopic::default()
            }],
            timeout_ms: wait_ms(CHANGE_WAIT),
            ..CreateTopicsRequest::default()
        };
        let answer = self.ask_controller(&request)?;
        let Some(result) = answer.topics.first() else { return Ok(-1) };
        ClientError::check(result.error_code, result.error_message.as_deref(), || {
            format!("create topic {}", topic.name)
        })?;
        Ok(result.num_partitions)
    }

    /// Deletes a topic and everything in it.
    pub(crate) fn delete_topic(&mut self, name: &str) -> Result<(), ClientError> {
        // Found first, for the better message.
        self.topic(name, false)?;
        let request = DeleteTopicsRequest {
            topics: vec![DeleteTopicState {
                name: Some(name.to_owned()),
                ..DeleteTopicState::default()
            }],
            topic_names: vec![name.to_owned()],
            timeout_ms: wait_ms(CHANGE_WAIT),
        };
        let answer = self.ask_controller(&request)?;
        let Some(result) = answer.responses.first() else { return Ok(()) };
        ClientError::check(result.error_code, result.error_message.as_deref(), || {
            format!("delete topic {name}")
        })
    }

    /// Asks the node that decides about topics; only ever once, since a second try could meet the
    /// first one's success and call it an error.
    fn ask_controller<R: thetis_kafka::wire::Call>(
        &mut self,
        request: &R,
    ) -> Result<R::Response, ClientError> {
        let controller = self.retrying(|client| client.metadata(None))?.controller_id;
        self.ask_node(controller, request, i16::MAX, CHANGE_WAIT)
    }

    /// The settings made on a topic itself, by name. Empty when the server does not tell.
    pub(crate) fn topic_configs(
        &mut self,
        name: &str,
    ) -> Result<BTreeMap<String, String>, ClientError> {
        let request = DescribeConfigsRequest {
            resources: vec![DescribeConfigsResource {
                resource_type: RESOURCE_TOPIC,
                resource_name: name.to_owned(),
                configuration_keys: None,
            }],
            ..DescribeConfigsRequest::default()
        };
        let answer = match self.retrying(|client| client.ask(&request)) {
            Err(ClientError::Version { .. }) => return Ok(BTreeMap::new()),
            answer => answer?,
        };
        let mut configs = BTreeMap::new();
        for result in answer.results {
            ClientError::check(result.error_code, result.error_message.as_deref(), || {
                format!("read the configuration of {name}")
            })?;
            let own = result.configs.into_iter().filter(|c| c.config_source == SOURCE_TOPIC);
            configs.extend(own.filter_map(|config| Some((config.name, config.value?))));
        }
        Ok(configs)
    }

    /// For each partition of `topic` that `wanted` names, the first offset at or after a timestamp,
    /// in milliseconds since 1970 or one of the protocol's `*_TIMESTAMP`s; -1 when there is none.
    pub(crate) fn offsets_at(
        &mut self,
        topic: &Topic,
        wanted: &[i32],
        timestamp: i64,
    ) -> Result<BTreeMap<i32, i64>, ClientError> {
        let mut offsets = BTreeMap::new();
        for (leader, partitions) in by_leader(topic, wanted)? {
            let request = ListOffsetsRequest {
                topics: vec![ListOffsetsTopic {
                    name: topic.name.clone(),
                    partitions: partitions
                        .iter()
                        .map(|index| ListOffsetsPartition {
                            partition_index: *index,
                            timestamp,
                            ..ListOffsetsPartition::default()
                        })
                        .collect(),
                }],
                ..ListOffsetsRequest::default()
            };
            let found = self.retrying(|client| {
                let answer = client.ask_node(leader, &request, i16::MAX, Duration::ZERO)?;
                let results = answer.topics.into_iter().flat_map(|topic| topic.partitions);
                results
                    .map(|result| {
                        ClientError::check(result.error_code, None, || {
                            format!("find offsets of {}/{}", topic.name, result.partition_index)
                        })?;
                        Ok((result.partition_index, result.offset))
                    })
                    .collect::<Result<Vec<_>, ClientError>>()
            })?;
            offsets.extend(found);
        }
        Ok(offsets)
    }
}

/// The partitions of `topic` that `wanted` names, by the node that leads them.
pub(super) fn by_leader(
    topic: &Topic,
    wanted: &[i32],
) -> Result<BTreeMap<i32, Vec<i32>>, ClientError> {
    let mut leaders: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for index in wanted {
        leaders.entry(topic.partition(*index)?.leader).or_default().push(*index);
    }
    Ok(leaders)
}

/// Milliseconds for a request's own time limit.
pub(super) fn wait_ms(wait: Duration) -> i32 {
    i32::try_from(wait.as_millis()).unwrap_or(i32::MAX)
}

fn topic_of(topic: MetadataTopic) -> Topic {
    let mut partitions: Vec<Partition> = topic
        .partitions
        .into_iter()
        .map(|partition| Partition {
            index: partition.partition_index,
            leader: partition.leader_id,
            replicas: partition.replica_nodes,
        })
        .collect();
    partitions.sort_by_key(|partition| partition.index);
    Topic { name: topic.name.unwrap_or_default(), internal: topic.is_internal, partitions }
}
