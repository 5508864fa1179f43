//! The settings as flags of a command: one flag for each row of the table, so that neither can
//! forget the other. Owns no checking; a flag's text goes through the layers like any other.

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};

use super::settings::{Setting, TABLE};

/// What the command line says about settings.
#[derive(Clone, Default)]
pub(crate) struct SettingFlags {
    /// Flags that were given, in the order of the table.
    pub(crate) given: Vec<(&'static Setting, String)>,
}

impl std::fmt::Debug for SettingFlags {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self.given.iter().map(|(s, text)| (s.flag, text))).finish()
    }
}

impl SettingFlags {
    /// The one flag of the setting `key`, for commands that take no others.
    pub(crate) fn only(key: &str, text: Option<String>) -> SettingFlags {
        let given = text.and_then(|text| Some((Setting::by_key(key)?, text)));
        SettingFlags { given: given.into_iter().collect() }
    }
}

impl FromArgMatches for SettingFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut flags = SettingFlags::default();
        flags.update_from_arg_matches(matches)?;
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        let text = |setting: &Setting| matches.get_one::<String>(setting.key).cloned();
        self.given = TABLE.iter().filter_map(|row| Some((row, text(row)?))).collect();
        Ok(())
    }
}

impl Args for SettingFlags {
    fn augment_args(command: Command) -> Command {
        TABLE.iter().fold(command, |command, setting| {
            command.arg(
                Arg::new(setting.key)
                    .long(setting.flag)
                    .value_name(setting.unit)
                    .help(setting.meaning.trim())
                    .long_help(format!(
                        "{} [file: {}] [env: {}] [default: {}]",
                        setting.meaning.trim(),
                        setting.key,
                        setting.env(),
                        setting.default
                    ))
                    .help_heading("Settings"),
            )
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}
