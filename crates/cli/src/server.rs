//! Which server a client command talks to: `--server`, else `THETIS_SERVER`, else the address the
//! configuration of this directory listens on.

use std::path::Path;

use clap::Args;

use crate::client::Client;
use crate::config::value::{Address, Value, ValueError};
use crate::config::{Config, SERVER_VARIABLE, SettingFlags};
use crate::exit::{Exit, Failure};
use crate::tls::TlsArgs;

/// The flag every client command has.
#[derive(Args, Debug)]
pub(crate) struct ServerArgs {
    /// Kafka listener of a node [env: THETIS_SERVER] [default: kafka.listen].
    #[arg(long, short, value_name = "HOST:PORT", value_parser = address)]
    server: Option<Address>,
    #[command(flatten)]
    tls: TlsArgs,
}

impl ServerArgs {
    /// Connects to that server.
    pub(crate) fn connect(&self, config: Option<&Path>) -> Result<Client, Failure> {
        Ok(Client::connect(self.address(config)?, self.tls.load()?)?)
    }

    fn address(&self, config: Option<&Path>) -> Result<Address, Failure> {
        if let Some(address) = &self.server {
            return Ok(address.clone());
        }
        if let Some(text) = std::env::var_os(SERVER_VARIABLE) {
            return address(&text.to_string_lossy()).map_err(|error| {
                Failure::new(Exit::Usage, format!("env {SERVER_VARIABLE}: {error}"))
            });
        }
        let listen = Config::load(config, &SettingFlags::default())?.settings.kafka_listen;
        if listen.is_unspecified() {
            return Ok(Address { host: "localhost".to_owned(), port: listen.port });
        }
        Ok(listen)
    }
}

fn address(text: &str) -> Result<Address, ValueError> {
    Address::parse(text)
}
