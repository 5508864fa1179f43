//! Settings of the node and where each came from: flags over environment over file over defaults.
//! Owns the layers' order, the relations between settings and the loading of real sources. Values
//! are read in `value`, the table is in `settings`, the documentation in `explain`.

pub(crate) mod explain;
mod flags;
mod layers;
pub(crate) mod settings;
pub(crate) mod value;

use std::fmt;
use std::path::{Path, PathBuf};

pub(crate) use flags::SettingFlags;
use layers::{Chosen, Layers};
use settings::Settings;
use value::{Advertised, ValueError};

/// Names the configuration file when no `--config` does.
pub(crate) const CONFIG_VARIABLE: &str = "THETIS_CONFIG";
/// Names the server that the client commands talk to when no `--server` does.
pub(crate) const SERVER_VARIABLE: &str = "THETIS_SERVER";
/// Read from the working directory when it is there and nothing else is named.
const DEFAULT_FILE: &str = "thetis.toml";
/// Bytes of a configuration file; more is certainly something else.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Which layer a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Nobody set it.
    Default,
    /// A line of the configuration file.
    File {
        /// The file as it was named.
        path: PathBuf,
        /// Line, from one.
        line: usize,
    },
    /// An environment variable.
    Env {
        /// Its name.
        name: String,
    },
    /// A flag of this command line.
    Flag {
        /// Its name, with dashes.
        name: String,
    },
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::File { path, line } => write!(f, "{}:{line}", path.display()),
            Origin::Env { name } => write!(f, "env {name}"),
            Origin::Flag { name } => write!(f, "flag {name}"),
        }
    }
}

/// One thing wrong with the configuration.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Problem {
    /// A name that is none of ours.
    #[error("{origin}: unknown setting {name}{}", Suggestion(nearest.as_deref()))]
    Unknown {
        /// Where it stands.
        origin: Origin,
        /// The name as written.
        name: String,
        /// What was probably meant.
        nearest: Option<String>,
    },
    /// A value its setting does not take.
    #[error("{origin}: {key}: {error}")]
    Value {
        /// Where it stands.
        origin: Origin,
        /// The setting.
        key: &'static str,
        /// What is wrong with it.
        error: ValueError,
    },
    /// A value of a shape no setting has: a list, a date, a float.
    #[error("{origin}: {name} is {found}; settings are texts, whole numbers or true and false")]
    Shape {
        /// Where it stands.
        origin: Origin,
        /// The name as written.
        name: String,
        /// The TOML type that was found.
        found: &'static str,
    },
    /// The file is not TOML.
    #[error("{}:{line}: {message}", path.display())]
    Syntax {
        /// The file as it was named.
        path: PathBuf,
        /// Line, from one.
        line: usize,
        /// What the TOML reader says.
        message: String,
    },
    /// The file cannot be read.
    #[error("could not read {}: {error}; name another with --config", path.display())]
    Unreadable {
        /// The file as it was named.
        path: PathBuf,
        /// What the system says.
        error: String,
    },
    /// The file is too large to be a configuration.
    #[error("{} has {bytes} bytes; a configuration has at most {FILE_BYTES_MAX}", path.display())]
    TooLarge {
        /// The file as it was named.
        path: PathBuf,
        /// Its size.
        bytes: u64,
    },
    /// An environment variable of ours whose value is not text.
    #[error("env {name}: the value is not valid UTF-8")]
    NotText {
        /// The variable.
        name: String,
    },
    /// Listening everywhere without saying where clients come back to.
    #[error(
        "{origin}: kafka.listen {listen} accepts on every interface, which is no address to come \
         back to; set kafka.advertised to the address clients use, such as broker.example.com:9092"
    )]
    AdvertisedMissing {
        /// Where kafka.listen stands.
        origin: Origin,
        /// Its value.
        listen: String,
    },
    /// Advertising an address that leads nowhere.
    #[error(
        "{origin}: kafka.advertised {advertised} leads no client anywhere; name a host and a port \
         that clients can reach"
    )]
    AdvertisedUseless {
        /// Where kafka.advertised stands.
        origin: Origin,
        /// Its value.
        advertised: String,
    },
    /// A certificate without its key, or the other way round.
    #[error("{origin}: {set} is set and {missing} is not; TLS needs both files")]
    HalfOfTls {
        /// Where the one that is set stands.
        origin: Origin,
        /// It.
        set: &'static str,
        /// The other.
        missing: &'static str,
    },
}

/// Shows a suggestion, or where to find all names.
struct Suggestion<'a>(Option<&'a str>);

impl fmt::Display for Suggestion<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(name) => write!(f, "; did you mean {name}?"),
            None => f.write_str("; `thetis config explain` lists all"),
        }
    }
}

/// Everything wrong with the configuration, all layers at once.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
pub(crate) struct ConfigError {
    /// At least one, in the order of the layers.
    pub(crate) problems: Vec<Problem>,
}

impl From<Problem> for ConfigError {
    fn from(problem: Problem) -> Self {
        ConfigError { problems: vec![problem] }
    }
}

/// Checked settings and the origin of each.
#[derive(Debug)]
pub(crate) struct Config {
    /// The values.
    pub(crate) settings: Settings,
    /// Text and origin of each, in the order of the table.
    pub(crate) chosen: Vec<Chosen>,
}

impl Config {
    /// Reads the file named by `file`, else by `THETIS_CONFIG`, else `thetis.toml` when the working
    /// directory has one; then the environment; then `flags`.
    pub(crate) fn load(file: Option<&Path>, flags: &SettingFlags) -> Result<Config, ConfigError> {
        let mut layers = Layers::default();
        let from_env = std::env::var_os(CONFIG_VARIABLE).map(PathBuf::from);
        if let Some(path) = file.or(from_env.as_deref()) {
            layers.file(path, &read_file(path)?);
        } else if Path::new(DEFAULT_FILE).exists() {
            layers.file(Path::new(DEFAULT_FILE), &read_file(Path::new(DEFAULT_FILE))?);
        }
        layers.env(std::env::vars_os());
        layers.flags(flags);
        layers.resolve()
    }
}

fn origin_of<'a>(chosen: &'a [Chosen], key: &str) -> &'a Origin {
    chosen.iter().find(|chosen| chosen.setting.key == key).map_or(&Origin::Default, |c| &c.origin)
}

fn read_file(path: &Path) -> Result<String, ConfigError> {
    let unreadable = |error: std::io::Error| Problem::Unreadable {
        path: path.to_owned(),
        error: error.to_string(),
    };
    let bytes = std::fs::metadata(path).map_err(unreadable)?.len();
    if bytes > FILE_BYTES_MAX {
        return Err(Problem::TooLarge { path: path.to_owned(), bytes }.into());
    }
    Ok(std::fs::read_to_string(path).map_err(unreadable)?)
}

/// Checks what no single setting can know.
fn check_relations(settings: &Settings, chosen: &[Chosen], problems: &mut Vec<Problem>) {
    match &settings.kafka_advertised {
        Advertised::Listen if settings.kafka_listen.is_unspecified() => {
            problems.push(Problem::AdvertisedMissing {
                origin: origin_of(chosen, "kafka.listen").clone(),
                listen: settings.kafka_listen.to_string(),
            });
        }
        Advertised::At(address) if address.is_unspecified() || address.port == 0 => {
            problems.push(Problem::AdvertisedUseless {
                origin: origin_of(chosen, "kafka.advertised").clone(),
                advertised: address.to_string(),
            });
        }
        Advertised::Listen | Advertised::At(_) => {}
    }
    for (certificate, key, names) in [
        (
            &settings.kafka_tls_certificate_file,
            &settings.kafka_tls_key_file,
            ["kafka.tls_certificate_file", "kafka.tls_key_file"],
        ),
        (
            &settings.text_tls_certificate_file,
            &settings.text_tls_key_file,
            ["text.tls_certificate_file", "text.tls_key_file"],
        ),
    ] {
        let [set, missing] = match (&certificate.0, &key.0) {
            (Some(_), None) => names,
            (None, Some(_)) => [names[1], names[0]],
            _ => continue,
        };
        let origin = origin_of(chosen, set).clone();
        problems.push(Problem::HalfOfTls { origin, set, missing });
    }
}

#[cfg(test)]
#[path = "config_test.rs"]
mod tests;
