//! The topic record: docs/formats/topic-record.md.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use thetis_meta::record::RecordKind;

use crate::error::CatalogError;
use crate::topic::TopicId;

/// The envelope of topic records.
const TOPIC: RecordKind = RecordKind { kind: 0x0201, schema: 1 };

/// Who writes a topic: the form of its entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// Kafka record batches.
    Kafka,
    /// Records of the library, as they are.
    Plain,
}

/// What metadata holds of a topic.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TopicRecord {
    /// Its name.
    pub name: String,
    /// Its id.
    pub id: TopicId,
    /// The form of its entries.
    pub format: Format,
    /// Its streams, by partition index.
    pub partitions: Vec<u64>,
    /// Configuration that differs from the defaults.
    pub configs: BTreeMap<String, String>,
}

impl TopicRecord {
    pub(crate) fn encode(&self) -> Bytes {
        let json = serde_json::to_vec(self).expect("strings and numbers are always JSON");
        TOPIC.seal(&json)
    }

    pub(crate) fn decode(value: &Bytes) -> Result<TopicRecord, CatalogError> {
        let (_, payload) = TOPIC
            .open(value)
            .map_err(|error| CatalogError::Record { detail: error.to_string() })?;
        serde_json::from_slice(&payload)
            .map_err(|error| CatalogError::Record { detail: error.to_string() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes_read_back() {
        let golden = Bytes::from_static(include_bytes!("../golden/topic-record-v1.bin"));
        let record = TopicRecord {
            name: "orders".into(),
            id: TopicId("6ba7b810-9dad-41d1-80b4-00c04fd430c8".parse().unwrap()),
            format: Format::Kafka,
            partitions: vec![1, 2],
            configs: [("retention.ms".to_string(), "1000".to_string())].into(),
        };
        assert_eq!(TopicRecord::decode(&golden).unwrap(), record);
        assert_eq!(record.encode(), golden);
    }

    #[test]
    fn a_newer_schema_and_unknown_fields_are_refused() {
        let newer = RecordKind { schema: 2, ..TOPIC }.seal(b"{}");
        let error = TopicRecord::decode(&newer).unwrap_err().to_string();
        assert!(error.contains("schema 2"), "{error}");
        let odd = TOPIC.seal(br#"{"name":"x","surprise":1}"#);
        assert!(TopicRecord::decode(&odd).is_err());
    }
}
