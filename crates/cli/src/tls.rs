//! The flag that every command has which talks to a listener. Owns no certificate.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use thetis_net::tls::{self, ClientConfig};

use crate::exit::{Exit, Failure};

/// How a server is believed.
#[derive(Args, Debug, Default)]
pub(crate) struct TlsArgs {
    /// Speak TLS, and believe servers whose certificate is in this PEM file or signed by one in it.
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
}

impl TlsArgs {
    /// What a client of such a listener needs; `None` without the flag.
    pub(crate) fn load(&self) -> Result<Option<Arc<ClientConfig>>, Failure> {
        let config = self.tls_ca.as_deref().map(tls::client).transpose();
        config.map_err(|error| Failure::new(Exit::Usage, format!("--tls-ca: {error}")))
    }
}
