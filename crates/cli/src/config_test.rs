//! Tests of the configuration's layers, origins and messages.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use thetis_types::Durability;

use super::layers::Layers;
use super::settings::Setting;
use super::value::ByteSize;
use super::*;

/// Resolves the three layers given as texts.
fn config(file: &str, env: &[(&str, &str)], flags: &[(&str, &str)]) -> Result<Config, ConfigError> {
    let mut layers = Layers::default();
    layers.file(Path::new("thetis.toml"), file);
    layers.env(env.iter().map(|(name, value)| (OsString::from(name), OsString::from(value))));
    let given = flags.iter().map(|(key, text)| (Setting::by_key(key).unwrap(), text.to_string()));
    layers.flags(&SettingFlags { given: given.collect() });
    layers.resolve()
}

/// The messages of a configuration that is refused.
fn messages(file: &str, env: &[(&str, &str)], flags: &[(&str, &str)]) -> Vec<String> {
    let error = config(file, env, flags).unwrap_err();
    error.problems.iter().map(ToString::to_string).collect()
}

#[test]
fn nothing_set_gives_the_documented_defaults() {
    let config = config("", &[], &[]).unwrap();
    let settings = &config.settings;
    assert_eq!(settings.data_dir, PathBuf::from("./data"));
    assert_eq!(settings.kafka_listen.to_string(), "127.0.0.1:9092");
    assert_eq!(settings.durability, Durability::Disk);
    assert_eq!(settings.topic_partitions, 4);
    assert_eq!(settings.topic_message_bytes_max, ByteSize(1_048_588));
    assert!(config.chosen.iter().all(|chosen| chosen.origin == Origin::Default));
}

#[test]
fn flags_win_over_environment_over_file_over_defaults_and_origins_say_so() {
    let file = "durability = \"memory\"\n\n[journal]\nfile_bytes = \"8MiB\"\n\
                os_flush_interval = \"5ms\"\n";
    let env = [("THETIS_DURABILITY", "os"), ("THETIS_JOURNAL_FILE_BYTES", "16MiB")];
    let config = config(file, &env, &[("durability", "disk")]).unwrap();
    assert_eq!(config.settings.durability, Durability::Disk);
    assert_eq!(config.settings.journal_file_bytes, ByteSize::mib(16));
    assert_eq!(config.settings.journal_os_flush_interval, Duration::from_millis(5));
    let origin = |key| origin_of(&config.chosen, key).to_string();
    assert_eq!(origin("durability"), "flag --durability");
    assert_eq!(origin("journal.file_bytes"), "env THETIS_JOURNAL_FILE_BYTES");
    assert_eq!(origin("journal.os_flush_interval"), "thetis.toml:5");
    assert_eq!(origin("log.level"), "default");
}

#[test]
fn the_file_takes_numbers_switches_and_dotted_keys() {
    let file = "journal.file_bytes = 8_388_608\ntopic = { partitions = 7, auto_create = false }\n\
                [log]\n";
    let config = config(file, &[], &[]).unwrap();
    assert_eq!(config.settings.journal_file_bytes, ByteSize::mib(8));
    assert_eq!(config.settings.topic_partitions, 7);
    assert!(!config.settings.topic_auto_create);
}

#[test]
fn an_unknown_key_of_the_file_names_its_line_and_the_nearest_key() {
    assert_eq!(
        messages("\n[kafka]\nlisen = \"127.0.0.1:1\"\n", &[], &[]),
        ["thetis.toml:3: unknown setting kafka.lisen; did you mean kafka.listen?"]
    );
    assert_eq!(
        messages("partitions = 3\n", &[], &[]),
        ["thetis.toml:1: unknown setting partitions; did you mean topic.partitions?"]
    );
    assert_eq!(
        messages("colour = true\n", &[], &[]),
        ["thetis.toml:1: unknown setting colour; `thetis config explain` lists all"]
    );
}

#[test]
fn an_unknown_variable_names_the_nearest_one() {
    assert_eq!(
        messages("", &[("THETIS_DURABILTY", "os"), ("HOME", "/root")], &[]),
        ["env THETIS_DURABILTY: unknown setting THETIS_DURABILTY; did you mean \
             THETIS_DURABILITY?"]
    );
}

#[test]
fn variables_of_container_platforms_are_nobodys_mistake() {
    let links = [
        ("THETIS_SERVICE_HOST", "10.0.0.1"),
        ("THETIS_SERVICE_PORT_KAFKA", "9092"),
        ("THETIS_PORT", "tcp://10.0.0.1:9092"),
        ("THETIS_KAFKA_PORT_9092_TCP_ADDR", "10.0.0.1"),
        ("THETIS_CONFIG", "/etc/thetis.toml"),
        ("THETIS_SERVER", "127.0.0.1:9092"),
    ];
    assert!(config("", &links, &[]).is_ok());
}

#[test]
fn bad_values_are_named_in_every_layer_at_once_even_when_overridden() {
    let found = messages(
        "durability = \"paper\"\n[topic]\npartitions = [1]\n",
        &[("THETIS_JOURNAL_OS_FLUSH_INTERVAL", "250")],
        &[("durability", "disk"), ("kafka.listen", "9092")],
    );
    assert_eq!(
        found,
        [
            "thetis.toml:1: durability: \"paper\" is not one of disk|os|memory",
            "thetis.toml:3: topic.partitions is array; settings are texts, whole numbers or true \
             and false",
            "env THETIS_JOURNAL_OS_FLUSH_INTERVAL: journal.os_flush_interval: \"250\" has no unit; \
             write 250ms, 250s, 250m, 250h or 250d",
            "flag --kafka: kafka.listen: \"9092\" is not an address; write host:port, such as \
             127.0.0.1:9092 or [::1]:9092",
        ]
    );
}

#[test]
fn broken_toml_names_the_line() {
    let found = messages("durability = \"os\"\nkafka = {\n", &[], &[]);
    assert_eq!(found.len(), 1);
    assert!(found[0].starts_with("thetis.toml:"), "{found:?}");
    assert!(!found[0].contains('\n'), "{found:?}");
    assert!(messages("durability = \"os\"\ndurability = \"disk\"\n", &[], &[])[0].contains(":2:"));
}

#[test]
fn listening_everywhere_needs_an_advertised_address() {
    let found = messages("", &[], &[("kafka.listen", "0.0.0.0:9092")]);
    assert!(found[0].contains("flag --kafka") && found[0].contains("set kafka.advertised"));
    let advertised = ("kafka.advertised", "broker.example.com:9092");
    assert!(config("", &[], &[("kafka.listen", "0.0.0.0:9092"), advertised]).is_ok());
    let found = messages("kafka.advertised = \"0.0.0.0:9092\"", &[], &[]);
    assert!(found[0].contains("leads no client anywhere"), "{found:?}");
}

#[test]
fn the_explanation_is_a_file_that_says_what_it_shows() {
    let flags =
        [("data.dir", "/srv/a \"b\""), ("topic.partitions", "9"), ("topic.retention", "forever")];
    let first = config("", &[("THETIS_LOG_FORMAT", "json")], &flags).unwrap();
    let text = explain::toml(&first);
    assert!(text.contains("# flag --topic-partitions"), "{text}");
    assert!(text.contains("# env THETIS_LOG_FORMAT"), "{text}");
    let second = config(&text, &[], &[]).unwrap();
    assert_eq!(first.settings, second.settings);
    assert!(second.chosen.iter().all(|chosen| matches!(chosen.origin, Origin::File { .. })));
}

#[test]
fn a_certificate_and_its_key_come_together() {
    assert_eq!(
        messages("text.tls_certificate_file = \"c\"\n", &[], &[("kafka.tls_key_file", "k")]),
        [
            "flag --kafka-tls-key-file: kafka.tls_key_file is set and kafka.tls_certificate_file is \
             not; TLS needs both files",
            "thetis.toml:1: text.tls_certificate_file is set and text.tls_key_file is not; TLS needs \
             both files",
        ]
    );
    let both = "text.tls_certificate_file = \"c\"\ntext.tls_key_file = \"k\"\n";
    assert!(config(both, &[], &[]).is_ok());
}
