//! The configuration as documentation: each key with its value, origin, unit and meaning. The text
//! form is itself a configuration file that says what it shows. Owns no I/O.

use serde::Serialize;

use super::layers::Chosen;
use super::{Config, Origin};

/// Columns of a comment line.
const WIDTH: usize = 96;

/// One setting, as `thetis config explain --json` prints it, one a line. Fields are only added.
#[derive(Serialize)]
pub(crate) struct Row<'a> {
    key: &'static str,
    value: &'a str,
    origin: String,
    layer: &'static str,
    unit: &'static str,
    default: &'static str,
    flag: String,
    env: String,
    meaning: &'static str,
}

/// The settings in the order of the table.
pub(crate) fn rows(config: &Config) -> impl Iterator<Item = Row<'_>> {
    config.chosen.iter().map(|Chosen { setting, text, origin }| Row {
        key: setting.key,
        value: text,
        origin: origin.to_string(),
        layer: match origin {
            Origin::Default => "default",
            Origin::File { .. } => "file",
            Origin::Env { .. } => "env",
            Origin::Flag { .. } => "flag",
        },
        unit: setting.unit,
        default: setting.default,
        flag: format!("--{}", setting.flag),
        env: setting.env(),
        meaning: setting.meaning.trim(),
    })
}

/// The settings as a commented TOML file.
pub(crate) fn toml(config: &Config) -> String {
    let line = |chosen: &Chosen| {
        let text = &chosen.text;
        let bare = text.parse::<u32>().is_ok() || text.parse::<bool>().is_ok();
        let value = if bare { text.clone() } else { toml::Value::String(text.clone()).to_string() };
        format!("{} = {value}", chosen.setting.key)
    };
    let width = config.chosen.iter().map(|chosen| line(chosen).len()).max().unwrap_or(0);
    let mut out = String::new();
    for chosen in &config.chosen {
        let setting = chosen.setting;
        let names = format!("[{}; --{}; {}]", setting.unit, setting.flag, setting.env());
        for comment in wrap(&format!("{} {names}", setting.meaning.trim())) {
            out.push_str(&format!("# {comment}\n"));
        }
        out.push_str(&format!("{:width$}  # {}\n\n", line(chosen), chosen.origin));
    }
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}

/// Breaks a text at spaces.
fn wrap(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= WIDTH => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}
