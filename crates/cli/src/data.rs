//! What lies where in a data directory, and how the offline tools open it. The names here are a
//! format: a node of any later version finds them.

use std::io;
use std::path::Path;

use clap::Args;
use thetis_journal::OsDisk;

use crate::config::{Config, SettingFlags};
use crate::exit::{Exit, Failure};

/// Directory of the journal's files.
pub(crate) const JOURNAL: &str = "journal";

/// The flag of the offline tools.
#[derive(Args, Debug)]
pub(crate) struct DataArgs {
    /// Data directory of a node, running or not [env: THETIS_DATA_DIR] [default: data.dir].
    #[arg(long, short, value_name = "DIR")]
    data: Option<String>,
}

impl DataArgs {
    /// Opens the journal of that data directory for reading; nothing is created or locked.
    pub(crate) fn journal(&self, config: Option<&Path>) -> Result<OsDisk, Failure> {
        let flags = SettingFlags::only("data.dir", self.data.clone());
        let path = Config::load(config, &flags)?.settings.data_dir.join(JOURNAL);
        OsDisk::existing(&path).map_err(|error| {
            let shown = path.display();
            match error.kind() {
                io::ErrorKind::NotFound => {
                    Failure::new(Exit::Failed, format!("there is no journal at {shown}"))
                        .hint("name the data directory of a node with --data DIR")
                }
                _ => Failure::new(Exit::Failed, format!("could not open {shown}: {error}")),
            }
        })
    }
}
