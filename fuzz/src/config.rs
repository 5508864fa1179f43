//! The binary's configuration, from its own source: the TOML file with all its layers, and the
//! texts of single values; and the values of a topic's configuration.

use std::io::Write as _;
use std::sync::OnceLock;

use tempfile::NamedTempFile;
use thetis_catalog::config::{ConfigType, KEYS};
use thetis_catalog::{Configs, Defaults};

use crate::input::Input;

/// The binary has no library, so its module is read from where it lies.
#[allow(dead_code, unreachable_pub, reason = "a part of the binary, of which a part is used")]
#[path = "../../crates/cli/src"]
mod cli {
    pub(crate) mod config;
}

use cli::config::settings::TABLE;
use cli::config::{Config, SettingFlags, explain};

/// The text of a configuration file.
pub fn config_file(data: &[u8]) {
    let Ok(config) = load(data) else { return };
    assert_eq!(config.chosen.len(), TABLE.len());
    assert_eq!(explain::rows(&config).count(), TABLE.len());
    // What is explained is a file that says the same.
    let explained = explain::toml(&config);
    match load(explained.as_bytes()) {
        Ok(again) => assert_eq!(again.settings, config.settings),
        Err(error) => panic!("{error}\nin what was explained:\n{explained}"),
    }
}

fn load(text: &[u8]) -> Result<Config, cli::config::ConfigError> {
    let mut file = NamedTempFile::new_in(directory()).expect("a directory for temporary files");
    file.write_all(text).expect("a small file");
    Config::load(Some(file.path()), &SettingFlags::default())
}

/// Memory where there is some, since a file is written for each run.
fn directory() -> &'static std::path::Path {
    static DIRECTORY: OnceLock<std::path::PathBuf> = OnceLock::new();
    DIRECTORY.get_or_init(|| {
        let memory = std::path::PathBuf::from("/dev/shm");
        if memory.is_dir() { memory } else { std::env::temp_dir() }
    })
}

/// One byte choosing a setting of the node or of a topic, then its text.
pub fn config_value(data: &[u8]) {
    let mut input = Input::new(data);
    let choice = usize::from(input.byte()) % (TABLE.len() + KEYS.len());
    let Ok(text) = std::str::from_utf8(input.rest()) else { return };
    match TABLE.get(choice) {
        Some(setting) => {
            let Ok(canonical) = (setting.check)(text) else { return };
            assert_eq!((setting.check)(&canonical).as_ref(), Ok(&canonical), "{}", setting.key);
        }
        None => topic_value(choice - TABLE.len(), text),
    }
}

fn topic_value(index: usize, text: &str) {
    let key = &KEYS[index];
    let set = [(key.name.to_owned(), text.to_owned())].into();
    let Ok(configs) = Configs::parse(&set, &Defaults::default()) else { return };
    assert_eq!(configs.get(key.name), text);
    if matches!(key.kind, ConfigType::Int | ConfigType::Long) {
        let _ = configs.number(key.name);
    }
    let (_, _) = (configs.durability(), configs.profile());
}

/// The default of every setting, in the order of the choices of [`config_value`].
pub(crate) fn defaults() -> impl Iterator<Item = &'static str> {
    let node = TABLE.iter().map(|setting| setting.default);
    node.chain(KEYS.iter().map(|key| key.default))
}
