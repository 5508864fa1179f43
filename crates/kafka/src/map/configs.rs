//! Configurations: DescribeConfigs and IncrementalAlterConfigs.

use std::collections::BTreeMap;

use thetis_catalog::config::{ConfigKey, ConfigType, KEYS};
use thetis_catalog::{CatalogError, Topic};

use super::error;
use super::topics::source;
use crate::broker::Broker;
use crate::wire::{
    AlterConfigsResource, AlterConfigsResourceResponse, AlterableConfig, ConfigSynonym,
    DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResponse,
    DescribeConfigsResult, DescribedConfig, ErrorCode, IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
};

/// Kinds of resource, as the protocol numbers them.
mod resource {
    pub(super) const TOPIC: i8 = 2;
    pub(super) const BROKER: i8 = 4;
    pub(super) const BROKER_LOGGER: i8 = 8;
    pub(super) const CLIENT_METRICS: i8 = 16;
    pub(super) const GROUP: i8 = 32;
}

/// What an alteration does, as the protocol numbers it.
mod operation {
    pub(super) const SET: i8 = 0;
    pub(super) const DELETE: i8 = 1;
    pub(super) const APPEND: i8 = 2;
    pub(super) const SUBTRACT: i8 = 3;
}

const fn wire_type(kind: ConfigType) -> i8 {
    match kind {
        ConfigType::Boolean => 1,
        ConfigType::String => 2,
        ConfigType::Int => 3,
        ConfigType::Long => 5,
        ConfigType::Double => 6,
        ConfigType::List => 7,
    }
}

pub(super) fn describe(
    broker: &Broker,
    request: DescribeConfigsRequest,
) -> DescribeConfigsResponse {
    let shown =
        Shown { synonyms: request.include_synonyms, documentation: request.include_documentation };
    let results = request.resources.into_iter().map(|resource| {
        let described = match resource.resource_type {
            resource::TOPIC => describe_topic(broker, &resource, shown),
            resource::BROKER => describe_broker(broker, &resource, shown),
            // Nothing can be set there, which is not an error.
            resource::BROKER_LOGGER | resource::CLIENT_METRICS | resource::GROUP => Ok(Vec::new()),
            other => Err((ErrorCode::InvalidRequest, format!("no resource has type {other}"))),
        };
        let (error_code, error_message, configs) = match described {
            Ok(configs) => (ErrorCode::None, None, configs),
            Err((code, message)) => (code, Some(message), Vec::new()),
        };
        DescribeConfigsResult {
            error_code,
            error_message,
            resource_type: resource.resource_type,
            resource_name: resource.resource_name,
            configs,
        }
    });
    DescribeConfigsResponse { results: results.collect(), ..DescribeConfigsResponse::default() }
}

#[derive(Clone, Copy)]
struct Shown {
    synonyms: bool,
    documentation: bool,
}

fn is_asked(resource: &DescribeConfigsResource, name: &str) -> bool {
    let keys = resource.configuration_keys.as_ref().filter(|keys| !keys.is_empty());
    keys.is_none_or(|keys| keys.iter().any(|key| key == name))
}

fn describe_topic(
    broker: &Broker,
    resource: &DescribeConfigsResource,
    shown: Shown,
) -> Result<Vec<DescribedConfig>, (ErrorCode, String)> {
    let name = &resource.resource_name;
    let topic = broker.catalog.get(name).ok_or_else(|| {
        (ErrorCode::UnknownTopicOrPartition, format!("topic {name:?} does not exist"))
    })?;
    let asked = KEYS.iter().filter(|key| is_asked(resource, key.name));
    Ok(asked.map(|key| topic_config(&topic, key, shown)).collect())
}

fn topic_config(topic: &Topic, key: &ConfigKey, shown: Shown) -> DescribedConfig {
    let set = topic.configs().set().get(key.name);
    let (default, is_servers) = topic.configs().defaults().get(key);
    let mut synonyms = Vec::new();
    if shown.synonyms {
        let mut synonym = |value: &str, source| {
            let value = Some(value.to_owned());
            synonyms.push(ConfigSynonym { name: key.name.to_owned(), value, source });
        };
        if let Some(value) = set {
            synonym(value, source::TOPIC);
        }
        if is_servers {
            synonym(default, source::STATIC_BROKER);
        }
        synonym(key.default, source::DEFAULT);
    }
    DescribedConfig {
        name: key.name.to_owned(),
        value: Some(topic.configs().get(key.name).to_owned()),
        read_only: false,
        config_source: source::of_topic(set.is_some(), is_servers),
        is_sensitive: false,
        synonyms,
        config_type: wire_type(key.kind),
        documentation: shown.documentation.then(|| key.doc.to_owned()),
    }
}

fn describe_broker(
    broker: &Broker,
    resource: &DescribeConfigsResource,
    shown: Shown,
) -> Result<Vec<DescribedConfig>, (ErrorCode, String)> {
    let settings = &broker.settings;
    let me = settings.node_id.to_string();
    if !resource.resource_name.is_empty() && resource.resource_name != me {
        let why = format!("this is broker {me}, not {}", resource.resource_name);
        return Err((ErrorCode::InvalidRequest, why));
    }
    let asked = broker_configs(broker).into_iter();
    let asked = asked.filter(|(name, ..)| is_asked(resource, name));
    let configs = asked.map(|(name, kind, value)| {
        let synonym = ConfigSynonym {
            name: name.to_owned(),
            value: Some(value.clone()),
            source: source::STATIC_BROKER,
        };
        DescribedConfig {
            name: name.to_owned(),
            value: Some(value),
            read_only: true,
            config_source: source::STATIC_BROKER,
            is_sensitive: false,
            synonyms: if shown.synonyms { vec![synonym] } else { Vec::new() },
            config_type: wire_type(kind),
            documentation: None,
        }
    });
    Ok(configs.collect())
}

/// What an operator set for this node, in Kafka's words.
fn broker_configs(broker: &Broker) -> Vec<(&'static str, ConfigType, String)> {
    let settings = &broker.settings;
    let millis = |duration: std::time::Duration| duration.as_millis().to_string();
    let me = settings.node_id.to_string();
    let (groups, (host, port)) = (&settings.groups, &settings.advertised);
    vec![
        ("advertised.listeners", ConfigType::String, format!("PLAINTEXT://{host}:{port}")),
        ("auto.create.topics.enable", ConfigType::Boolean, settings.auto_create_topics.to_string()),
        ("broker.id", ConfigType::Int, me.clone()),
        ("connections.max.idle.ms", ConfigType::Long, millis(settings.connection_idle_max)),
        ("default.replication.factor", ConfigType::Int, "1".into()),
        ("fetch.max.bytes", ConfigType::Int, settings.fetch_bytes_max.to_string()),
        (
            "group.initial.rebalance.delay.ms",
            ConfigType::Int,
            millis(groups.initial_rebalance_delay),
        ),
        (
            "group.max.session.timeout.ms",
            ConfigType::Int,
            groups.session_timeout_ms_max.to_string(),
        ),
        ("group.max.size", ConfigType::Int, groups.group_size_max.to_string()),
        (
            "group.min.session.timeout.ms",
            ConfigType::Int,
            groups.session_timeout_ms_min.to_string(),
        ),
        ("max.connections", ConfigType::Int, settings.connections_max.to_string()),
        ("node.id", ConfigType::Int, me),
        ("num.partitions", ConfigType::Int, settings.default_partitions.to_string()),
        (
            "offset.metadata.max.bytes",
            ConfigType::Int,
            groups.offset_metadata_bytes_max.to_string(),
        ),
        (
            "offsets.retention.minutes",
            ConfigType::Int,
            (groups.offsets_retention.as_secs() / 60).to_string(),
        ),
        ("offsets.topic.num.partitions", ConfigType::Int, settings.offsets_partitions.to_string()),
        ("producer.id.expiration.ms", ConfigType::Int, millis(settings.producer_expiration)),
        ("socket.request.max.bytes", ConfigType::Int, settings.request_bytes_max.to_string()),
        (
            "thetis.durability",
            ConfigType::String,
            broker.catalog.store().limits().durability.to_string(),
        ),
    ]
}

pub(super) fn alter(
    broker: &Broker,
    request: IncrementalAlterConfigsRequest,
) -> IncrementalAlterConfigsResponse {
    let validate_only = request.validate_only;
    let responses = request.resources.into_iter().map(|resource| {
        let (error_code, error_message) = match alter_one(broker, &resource, validate_only) {
            Ok(()) => (ErrorCode::None, None),
            Err((code, message)) => (code, Some(message)),
        };
        AlterConfigsResourceResponse {
            error_code,
            error_message,
            resource_type: resource.resource_type,
            resource_name: resource.resource_name,
        }
    });
    IncrementalAlterConfigsResponse { responses: responses.collect(), ..Default::default() }
}

fn alter_one(
    broker: &Broker,
    resource: &AlterConfigsResource,
    validate_only: bool,
) -> Result<(), (ErrorCode, String)> {
    if resource.resource_type != resource::TOPIC {
        let why = "only topics are configured while the server runs; see `thetis config explain`";
        return Err((ErrorCode::InvalidRequest, why.into()));
    }
    let name = &resource.resource_name;
    let told = |failed: &CatalogError| (error::of_catalog(failed), failed.to_string());
    let topic = broker
        .catalog
        .get(name)
        .ok_or_else(|| told(&CatalogError::NotFound { name: name.clone() }))?;
    let mut configs = topic.configs().set().clone();
    for config in &resource.configs {
        apply(&mut configs, config)?;
    }
    if validate_only {
        return thetis_catalog::Configs::parse(&configs, broker.catalog.defaults())
            .map(|_| ())
            .map_err(|e| told(&e));
    }
    broker.catalog.set_configs(name, configs).map(|_| ()).map_err(|e| told(&e))
}

fn apply(
    configs: &mut BTreeMap<String, String>,
    config: &AlterableConfig,
) -> Result<(), (ErrorCode, String)> {
    let name = &config.name;
    if config.config_operation == operation::DELETE {
        configs.remove(name);
        return Ok(());
    }
    let invalid = |why: String| (ErrorCode::InvalidConfig, why);
    let value = config.value.as_ref().ok_or_else(|| invalid(format!("{name} has no value")))?;
    let key = ConfigKey::find(name);
    let is_list = key.is_some_and(|key| key.kind == ConfigType::List);
    let current = || {
        let current = configs.get(name).map(String::as_str);
        let current = current.unwrap_or_else(|| key.map_or("", |key| key.default));
        current.split(',').map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned)
    };
    let parts = || value.split(',').map(str::trim).map(str::to_owned);
    let changed: Vec<String> = match config.config_operation {
        operation::SET => vec![value.clone()],
        operation::APPEND | operation::SUBTRACT if !is_list => {
            return Err(invalid(format!("{name} is not a list; set it")));
        }
        operation::APPEND => {
            let mut list: Vec<String> = current().collect();
            list.extend(parts().filter(|part| !current().any(|have| have == *part)));
            list
        }
        operation::SUBTRACT => {
            current().filter(|have| !parts().any(|part| part == *have)).collect()
        }
        other => {
            return Err((ErrorCode::InvalidRequest, format!("no alteration has number {other}")));
        }
    };
    configs.insert(name.clone(), changed.join(","));
    Ok(())
}
