//! The parts of a running node and the order in which they start and stop: listeners, store, fronts,
//! upkeep. This is the one place that knows all of them; `serve.rs` knows only [`Node`].

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use thetis::{Options, SystemClock, Thetis};
use thetis_kafka::Broker;
use thetis_net::tls::Tls;
use thetis_text::Front;
use thetis_types::clock::Clock;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::config::settings::Settings;
use crate::config::value::{Address, Advertised, Listen, OptionalFile, Retention};
use crate::exit::{Exit, Failure};

/// Time between two rounds of upkeep: retention, then giving back space.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(30);

/// A start that takes longer says how far it is.
const SLOW_START: Duration = Duration::from_secs(1);

/// What the node found out while starting, for the banner and the ready line.
pub(super) struct Facts {
    /// The address the Kafka listener is bound to, with the port the kernel chose.
    pub(super) kafka: SocketAddr,
    /// The address clients are told to come back to.
    pub(super) advertised: Address,
    /// The address the text listener is bound to, if there is one.
    pub(super) text: Option<SocketAddr>,
    /// How the journal writes, and why so.
    pub(super) io_path: String,
}

/// A node whose listeners accept.
pub(super) struct Node {
    /// What is said about it.
    pub(super) facts: Facts,
    thetis: Thetis,
    broker: Arc<Broker>,
    stop: watch::Sender<bool>,
    kafka: JoinHandle<()>,
    text: Option<Text>,
    upkeep: JoinHandle<()>,
}

/// The text front and its listener.
struct Text {
    front: Arc<Front>,
    server: JoinHandle<()>,
}

impl Node {
    /// Opens the store, then accepts clients; when this returns, every listener does.
    ///
    /// Cancel safety: a cancelled start leaves nothing running; an opened store is closed by its
    /// drop and recovers at the next start.
    pub(super) async fn start(settings: &Settings) -> Result<Node, Failure> {
        let (listener, bound) = bind(&settings.kafka_listen, "kafka").await?;
        let advertised = advertised(settings, bound);
        let kafka_settings = kafka_settings(settings, &advertised)?;
        let text = match &settings.text_listen {
            Listen::Off => None,
            Listen::At(address) => Some((bind(address, "text").await?, text_settings(settings)?)),
        };
        let thetis = open(settings)?;
        let broker = Broker::open(thetis.catalog().clone(), kafka_settings)
            .map_err(|error| Failure::new(Exit::Failed, format!("the Kafka front: {error}")))?;
        let text_bound = text.as_ref().map(|((_, bound), _)| *bound);
        let (stop, stopped) = watch::channel(false);
        let text = match text {
            None => None,
            Some(((listener, bound), settings)) => {
                let front = text_front(&thetis, bound, settings)?;
                let server = thetis_text::serve(front.clone(), listener, stopped.clone());
                Some(Text { front, server: tokio::spawn(server) })
            }
        };
        let kafka = tokio::spawn(thetis_kafka::serve(broker.clone(), listener, stopped.clone()));
        let upkeep = tokio::spawn(keep_up(thetis.clone(), stopped));
        let io_path = thetis.journal().io_path().to_string();
        let facts = Facts { kafka: bound, advertised, text: text_bound, io_path };
        Ok(Node { facts, thetis, broker, stop, kafka, text, upkeep })
    }

    /// Waits until a part fails that the node cannot run without.
    ///
    /// Cancel safety: safe; the failure stays for the next caller.
    pub(super) async fn failed(&mut self) -> Failure {
        let text = async {
            match &mut self.text {
                Some(text) => (&mut text.server).await,
                None => std::future::pending().await,
            }
        };
        let (name, ended) = tokio::select! {
            ended = &mut self.kafka => ("Kafka", ended),
            ended = text => ("text", ended),
        };
        let why = ended.err().map(|error| format!(": {error}")).unwrap_or_default();
        Failure::new(Exit::Failed, format!("the {name} listener ended{why}"))
    }

    /// Accepts no more clients, lets requests in flight finish, flushes and closes the store.
    pub(super) async fn stop(self) -> Result<(), Failure> {
        let Node { thetis, broker, stop, kafka, text, upkeep, .. } = self;
        // Both end with this; if one is gone already there is nothing to wait for.
        let _ = stop.send(true);
        if !kafka.is_finished() {
            let _ = kafka.await;
        }
        let text = match text {
            Some(Text { front, server }) => {
                if !server.is_finished() {
                    let _ = server.await;
                }
                Some(front)
            }
            None => None,
        };
        let _ = upkeep.await;
        tokio::task::block_in_place(move || {
            broker.close();
            if let Some(front) = text {
                front.close();
            }
            thetis.close()
        })
        .map_err(|error| {
            Failure::new(Exit::Failed, format!("the last flush failed: {error}"))
                .hint("what was acknowledged at level os or memory may be gone; start again")
        })
    }
}

/// Opens the data directory and says what was found there.
fn open(settings: &Settings) -> Result<Thetis, Failure> {
    let mut topic_defaults = BTreeMap::from([(
        "max.message.bytes".to_owned(),
        settings.topic_message_bytes_max.0.to_string(),
    )]);
    let retention_ms = match settings.topic_retention {
        Retention::Forever => "-1".to_owned(),
        Retention::For(age) => age.as_millis().to_string(),
    };
    topic_defaults.insert("retention.ms".to_owned(), retention_ms);
    let options = Options {
        durability: settings.durability,
        topic_defaults,
        journal: thetis_journal::Options {
            file_bytes: settings.journal_file_bytes.0,
            os_flush_interval: settings.journal_os_flush_interval,
            ..thetis_journal::Options::default()
        },
    };
    let clock = SystemClock::default();
    let (thetis, opened) =
        tokio::task::block_in_place(|| Thetis::open_with(&settings.data_dir, options)).map_err(
            |error| {
                let at = settings.data_dir.display();
                let failure = Failure::new(Exit::Failed, format!("could not open {at}: {error}"));
                match error.kind() {
                    thetis_types::ErrorKind::Conflict => failure.hint(
                        "stop the other process, or choose another directory with --data DIR",
                    ),
                    _ => failure,
                }
            },
        )?;
    let recovery = &opened.recovery;
    if let Some(cut) = &recovery.cut {
        tracing::warn!(
            file = cut.file,
            at = cut.at,
            bytes = cut.bytes,
            "cut a torn tail: it was never acknowledged"
        );
    }
    for damage in &recovery.damage {
        tracing::error!(
            file = damage.file,
            at = damage.at,
            bytes = damage.len,
            why = damage.why,
            "damaged bytes are fenced off and kept"
        );
    }
    if !opened.streams.unknown.is_empty() {
        let count = opened.streams.unknown.len();
        tracing::warn!(
            count,
            "the journal holds streams that metadata does not know; they are kept"
        );
    }
    let took = clock.monotonic();
    if took >= SLOW_START || recovery.scanned_bytes > 0 {
        tracing::info!(
            ?took,
            scanned_bytes = recovery.scanned_bytes,
            files = recovery.files,
            streams = opened.streams.streams,
            "recovered"
        );
    }
    Ok(thetis)
}

/// What the settings mean to the Kafka front.
fn kafka_settings(
    settings: &Settings,
    advertised: &Address,
) -> Result<thetis_kafka::Settings, Failure> {
    let mut front = thetis_kafka::Settings {
        advertised: (advertised.host.clone(), advertised.port),
        default_partitions: settings.topic_partitions,
        auto_create_topics: settings.topic_auto_create,
        tls: tls(&settings.kafka_tls_certificate_file, &settings.kafka_tls_key_file)?,
        ..thetis_kafka::Settings::default()
    };
    front.groups.initial_rebalance_delay = settings.group_rebalance_delay;
    Ok(front)
}

/// Retention, reclaim and lapsed leases, until the node stops.
async fn keep_up(thetis: Thetis, mut stopped: watch::Receiver<bool>) {
    loop {
        let told = async { drop(stopped.wait_for(|stopped| *stopped).await) };
        if tokio::time::timeout(UPKEEP_INTERVAL, told).await.is_ok() {
            return;
        }
        let thetis = thetis.clone();
        let round = tokio::task::spawn_blocking(move || {
            thetis.catalog().retain();
            if let Err(error) = thetis.reclaim() {
                tracing::warn!(%error, "space was not given back; the next round tries again");
            }
            if let Err(error) = thetis.catalog().store().meta().sweep() {
                tracing::warn!(%error, "lapsed leases were not swept; the next round tries again");
            }
        });
        if let Err(error) = round.await {
            tracing::error!(%error, "a round of upkeep ended badly");
        }
    }
}

/// Binds a listener, the flag being the one that chooses its address.
async fn bind(listen: &Address, flag: &str) -> Result<(TcpListener, SocketAddr), Failure> {
    let bound = async {
        let listener = TcpListener::bind((listen.host.as_str(), listen.port)).await?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    };
    bound.await.map_err(|error: std::io::Error| {
        let failure = Failure::new(Exit::Failed, format!("could not listen on {listen}: {error}"));
        failure.hint(match error.kind() {
            std::io::ErrorKind::AddrInUse => {
                format!("another process has the port; choose one with --{flag} HOST:PORT")
            }
            _ => format!("choose an address of this machine with --{flag} HOST:PORT"),
        })
    })
}

/// What text clients must say, from the first line of its file.
fn token(settings: &Settings) -> Result<Option<String>, Failure> {
    let OptionalFile(Some(path)) = &settings.text_token_file else { return Ok(None) };
    let at = path.display();
    let failed = |why: String| Failure::new(Exit::Failed, format!("text.token_file {at}: {why}"));
    let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
    let token = text.lines().next().unwrap_or_default().trim();
    if token.is_empty() || token.contains(char::is_whitespace) {
        let fault = failed("its first line is no token: one word without spaces".to_owned());
        return Err(fault.hint("write one, such as: openssl rand -hex 32 > FILE"));
    }
    Ok(Some(token.to_owned()))
}

/// What the settings mean to the text front.
fn text_settings(settings: &Settings) -> Result<thetis_text::Settings, Failure> {
    Ok(thetis_text::Settings {
        token: token(settings)?,
        tls: tls(&settings.text_tls_certificate_file, &settings.text_tls_key_file)?,
        ..thetis_text::Settings::default()
    })
}

/// A listener's certificate, if it has one.
fn tls(certificate: &OptionalFile, key: &OptionalFile) -> Result<Option<Tls>, Failure> {
    let (OptionalFile(Some(certificate)), OptionalFile(Some(key))) = (certificate, key) else {
        return Ok(None);
    };
    let tls = tokio::task::block_in_place(|| Tls::from_files(certificate, key));
    tls.map(Some).map_err(|error| Failure::new(Exit::Failed, error.to_string()))
}

/// The text front over the topics of an opened directory.
fn text_front(
    thetis: &Thetis,
    bound: SocketAddr,
    settings: thetis_text::Settings,
) -> Result<Arc<Front>, Failure> {
    let settings = thetis_text::Settings { address: bound.to_string(), ..settings };
    let opened = tokio::task::block_in_place(|| Front::open(thetis.catalog().clone(), settings));
    opened.map_err(|error| Failure::new(Exit::Failed, format!("the text front: {error}")))
}

/// The advertised address; the listener's own when none is set.
fn advertised(settings: &Settings, bound: SocketAddr) -> Address {
    match &settings.kafka_advertised {
        Advertised::At(address) => address.clone(),
        Advertised::Listen => {
            Address { host: settings.kafka_listen.host.clone(), port: bound.port() }
        }
    }
}
