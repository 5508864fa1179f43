//! The layers of a configuration, lowest first, as texts with origins. Pure: sources are handed in.
//! Owns the naming of unknown keys; the order of the calls is the order of the layers.

use std::ffi::OsString;
use std::path::Path;

use toml::de::{DeTable, DeValue};

use super::settings::{Setting, Settings, TABLE};
use super::{
    CONFIG_VARIABLE, Config, ConfigError, Origin, Problem, SERVER_VARIABLE, SettingFlags,
    check_relations,
};
use crate::nearest::nearest;

/// The text a setting ended up with.
#[derive(Clone)]
pub(crate) struct Chosen {
    /// The row of the table.
    pub(crate) setting: &'static Setting,
    /// Its text: as written before the layers are resolved, canonical afterwards.
    pub(crate) text: String,
    /// Where it stands.
    pub(crate) origin: Origin,
}

impl std::fmt::Debug for Chosen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} = {:?} ({})", self.setting.key, self.text, self.origin)
    }
}

/// Gathers texts; a later one for the same key wins.
pub(super) struct Layers {
    chosen: Vec<Chosen>,
    problems: Vec<Problem>,
}

impl Default for Layers {
    /// The defaults, which are the lowest layer.
    fn default() -> Self {
        let chosen = TABLE.iter().map(|setting| Chosen {
            setting,
            text: setting.default.to_owned(),
            origin: Origin::Default,
        });
        Layers { chosen: chosen.collect(), problems: Vec::new() }
    }
}

impl Layers {
    /// The text of a TOML file.
    pub(super) fn file(&mut self, path: &Path, text: &str) {
        match DeTable::parse(text) {
            Ok(table) => self.table(path, text, "", table.get_ref()),
            Err(error) => self.problems.push(Problem::Syntax {
                path: path.to_owned(),
                line: error.span().map_or(1, |span| line_of(text, span.start)),
                message: error.message().replace('\n', ", "),
            }),
        }
    }

    /// The names and values of the environment; those that are none of ours are passed over.
    pub(super) fn env(&mut self, variables: impl Iterator<Item = (OsString, OsString)>) {
        let mut ours: Vec<(String, OsString)> = variables
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
            .filter(|(name, _)| name.starts_with("THETIS_") && !is_service_link(name))
            .collect();
        // The environment has no order of its own; messages shall.
        ours.sort();
        for (name, value) in ours {
            if name == CONFIG_VARIABLE || name == SERVER_VARIABLE {
                continue;
            }
            let Ok(text) = value.into_string() else {
                self.problems.push(Problem::NotText { name });
                continue;
            };
            let origin = Origin::Env { name: name.clone() };
            match TABLE.iter().find(|setting| setting.env() == name) {
                Some(setting) => self.set(setting, text, origin),
                None => {
                    let known: Vec<String> = TABLE
                        .iter()
                        .map(Setting::env)
                        .chain([CONFIG_VARIABLE.to_owned(), SERVER_VARIABLE.to_owned()])
                        .collect();
                    let nearest = nearest(&name, known.iter().map(String::as_str));
                    let nearest = nearest.map(str::to_owned);
                    self.problems.push(Problem::Unknown { origin, name, nearest });
                }
            }
        }
    }

    /// What the command line says.
    pub(super) fn flags(&mut self, flags: &SettingFlags) {
        for (setting, text) in &flags.given {
            let origin = Origin::Flag { name: format!("--{}", setting.flag) };
            self.set(setting, text.clone(), origin);
        }
    }

    /// Checks every layer's outcome and their relations.
    pub(super) fn resolve(mut self) -> Result<Config, ConfigError> {
        let text_of = |key: &'static str| {
            self.chosen.iter().find(|chosen| chosen.setting.key == key).map_or("", |c| &c.text)
        };
        // A text that was refused is not in `chosen`, so what is there reads; a problem found here
        // would be a relation between a row's two readings and is reported as such.
        let settings = Settings::read(text_of).map_err(|error| Problem::Value {
            origin: Origin::Default,
            key: "settings",
            error,
        })?;
        check_relations(&settings, &self.chosen, &mut self.problems);
        if self.problems.is_empty() {
            Ok(Config { settings, chosen: self.chosen })
        } else {
            Err(ConfigError { problems: self.problems })
        }
    }

    /// Takes a text if its setting does; a refused one is a problem also when a higher layer
    /// would have hidden it, because it is wrong where it stands.
    fn set(&mut self, setting: &'static Setting, text: String, origin: Origin) {
        match (setting.check)(&text) {
            Ok(text) => {
                if let Some(chosen) = self.chosen.iter_mut().find(|c| c.setting.key == setting.key)
                {
                    *chosen = Chosen { setting, text, origin };
                }
            }
            Err(error) => {
                self.problems.push(Problem::Value { origin, key: setting.key, error });
            }
        }
    }

    /// Walks a TOML table; nested tables and dotted keys are the same thing.
    fn table(&mut self, path: &Path, text: &str, prefix: &str, table: &DeTable<'_>) {
        for (key, value) in table {
            let name = format!("{prefix}{}", key.get_ref());
            let line = line_of(text, key.span().start);
            let origin = Origin::File { path: path.to_owned(), line };
            match value.get_ref() {
                DeValue::Table(inner) if !inner.is_empty() => {
                    self.table(path, text, &format!("{name}."), inner);
                }
                // An empty table sets nothing and is a remainder of commented lines.
                DeValue::Table(_) => {}
                other => self.file_value(name, other, origin),
            }
        }
    }

    fn file_value(&mut self, name: String, value: &DeValue<'_>, origin: Origin) {
        let Some(setting) = Setting::by_key(&name) else {
            let nearest = nearest(&name, TABLE.iter().map(|setting| setting.key));
            let nearest = nearest.map(str::to_owned);
            self.problems.push(Problem::Unknown { origin, name, nearest });
            return;
        };
        let text = match value {
            DeValue::String(text) => text.clone().into_owned(),
            DeValue::Boolean(switch) => switch.to_string(),
            DeValue::Integer(number) if number.radix() == 10 => number.as_str().replace('_', ""),
            other => {
                let found = other.type_str();
                self.problems.push(Problem::Shape { origin, name, found });
                return;
            }
        };
        self.set(setting, text, origin);
    }
}

/// Whether the variable is one that container platforms put in for every service, after its name:
/// a service called `thetis` brings `THETIS_SERVICE_HOST`, `THETIS_PORT_9092_TCP_ADDR` and so on
/// into its neighbours. They are nobody's mistake.
fn is_service_link(name: &str) -> bool {
    let port_number = name
        .split("_PORT_")
        .skip(1)
        .any(|rest| rest.starts_with(|first: char| first.is_ascii_digit()));
    name.ends_with("_SERVICE_HOST")
        || name.contains("_SERVICE_PORT")
        || name.ends_with("_PORT")
        || port_number
}

/// Line of a byte position, from one.
fn line_of(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
}
