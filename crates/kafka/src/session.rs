//! One connection: frames in, answers out in the order of the requests.
//!
//! Requests run one after the other, as in Apache Kafka, with one exception that clients cannot
//! see: a Produce request hands its batches to the streams as soon as it has arrived, as long as
//! only Produce requests are unanswered before it, so that several share a flush.
//!
//! Owns neither what a request means ([`crate::map`]) nor how it is written ([`crate::wire`]).

use std::future::Future;
use std::io;
use std::io::IoSlice;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, watch};

use crate::broker::Broker;
use crate::map;
use crate::wire::{
    ApiKey, DecodeError, EncodeError, FrameError, Request, RequestHeader, Response, split_frame,
};

/// Requests of one connection that may wait for their answers.
const UNANSWERED_MAX: usize = 64;

/// Room made for arriving bytes at a time.
const READ_BYTES: usize = 64 << 10;

/// Segments handed to the system in one write.
const WRITE_SEGMENTS_MAX: usize = 64;

/// Why a connection was closed by this side.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SessionError {
    /// The socket failed.
    #[error("the socket failed: {0}")]
    Io(#[from] io::Error),
    /// The bytes are no frames.
    #[error("bad frame: {0}")]
    Frame(#[from] FrameError),
    /// The frame is no request.
    #[error("bad request: {0}")]
    Decode(#[from] DecodeError),
    /// The answer does not fit the protocol.
    #[error("the answer cannot be sent: {0}")]
    Encode(#[from] EncodeError),
    /// The API is not one of ours.
    #[error("api key {key} is not served")]
    UnknownApi {
        /// Its number.
        key: i16,
    },
    /// The version of the API is not served.
    #[error("{api} version {version} is not served; versions {min} to {max} are")]
    UnsupportedVersion {
        /// The API.
        api: ApiKey,
        /// The version asked for.
        version: i16,
        /// Lowest version served.
        min: i16,
        /// Highest version served.
        max: i16,
    },
    /// Nothing was heard for the idle limit.
    #[error("idle for {0:?}")]
    Idle(std::time::Duration),
    /// A Produce request with acks=0 failed, and this is the only way to tell.
    #[error("a batch sent with acks=0 was refused")]
    SilentProduce,
}

/// Who is at the other end.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    /// What it calls itself; empty when it does not.
    pub(crate) id: String,
    /// Where it connects from, as `/address`.
    pub(crate) host: String,
}

/// An answer in the making; `None` for a request that gets none.
pub(crate) type Answer =
    Pin<Box<dyn Future<Output = Result<Option<Response>, SessionError>> + Send>>;

struct Unanswered {
    version: i16,
    correlation_id: i32,
    answer: Answer,
    /// Whether it is counted in `behind`.
    blocks: bool,
}

/// Serves one connection until either side ends it or `stop` becomes true.
pub(crate) async fn run(
    broker: Arc<Broker>,
    (reader, writer): (impl AsyncRead + Unpin, impl AsyncWrite + Unpin),
    peer: SocketAddr,
    stop: watch::Receiver<bool>,
) -> Result<(), SessionError> {
    let (send, receive) = mpsc::channel(UNANSWERED_MAX);
    // Requests before which no Produce may run ahead.
    let behind = Arc::new(AtomicUsize::new(0));
    let requests = Requests { broker, peer, send, behind: behind.clone() };
    let writes = write_answers(writer, receive, behind);
    tokio::pin!(writes);
    let reads = requests.read(reader, stop);
    tokio::pin!(reads);
    tokio::select! {
        // An answer that cannot be sent ends the connection at once.
        written = &mut writes => written,
        read = &mut reads => {
            // No more requests; what was asked is still answered. `reads` holds the only sender,
            // and is done with it.
            writes.await?;
            read
        }
    }
}

struct Requests {
    broker: Arc<Broker>,
    peer: SocketAddr,
    send: mpsc::Sender<Unanswered>,
    behind: Arc<AtomicUsize>,
}

impl Requests {
    async fn read(
        self,
        mut reader: impl AsyncRead + Unpin,
        mut stop: watch::Receiver<bool>,
    ) -> Result<(), SessionError> {
        let idle_max = self.broker.settings.connection_idle_max;
        let mut buffer = BytesMut::new();
        loop {
            while let Some(frame) =
                split_frame(&mut buffer, self.broker.settings.request_bytes_max)?
            {
                if !self.take(frame).await? {
                    return Ok(());
                }
            }
            buffer.reserve(READ_BYTES);
            let arrived = tokio::select! {
                () = thetis_net::told_to_stop(&mut stop) => return Ok(()),
                arrived = tokio::time::timeout(idle_max, reader.read_buf(&mut buffer)) => arrived,
            };
            match arrived {
                Ok(Ok(0)) => return Ok(()),
                Ok(Ok(_)) => {}
                Ok(Err(error)) => return Err(error.into()),
                // A client that waits for an answer is not idle.
                Err(_elapsed) if self.send.capacity() < self.send.max_capacity() => {}
                Err(_elapsed) => return Err(SessionError::Idle(idle_max)),
            }
        }
    }

    /// Takes one request; false when the connection is over.
    async fn take(&self, frame: Bytes) -> Result<bool, SessionError> {
        let (header, body) = RequestHeader::decode(frame)?;
        let (version, correlation_id) = (header.api_version, header.correlation_id);
        let api = header.api().ok_or(SessionError::UnknownApi { key: header.api_key })?;
        let unanswered = if api == ApiKey::ApiVersions && !api.serves(version) {
            // The one request whose version a client cannot know: told in the oldest form.
            let response = map::unsupported_api_versions();
            let answer: Answer = Box::pin(async { Ok(Some(response)) });
            Unanswered { version: 0, correlation_id, answer, blocks: false }
        } else if api.serves(version) {
            let request = Request::decode(api, version, body)?;
            let (answer, blocks) = self.answer(request, &header);
            Unanswered { version, correlation_id, answer, blocks }
        } else {
            let (min, max) = (api.version_min(), api.version_max());
            return Err(SessionError::UnsupportedVersion { api, version, min, max });
        };
        Ok(self.send.send(unanswered).await.is_ok())
    }

    fn answer(&self, request: Request, header: &RequestHeader) -> (Answer, bool) {
        let broker = self.broker.clone();
        let version = header.api_version;
        match request {
            Request::Produce(produce) if self.behind.load(Ordering::Acquire) == 0 => {
                let placed = map::place_produce(&broker, produce, version);
                (Box::pin(placed.answer()), false)
            }
            request => {
                self.behind.fetch_add(1, Ordering::AcqRel);
                let client = Client {
                    id: header.client_id.clone().unwrap_or_default(),
                    host: format!("/{}", self.peer.ip()),
                };
                (Box::pin(map::answer(broker, request, version, client)), true)
            }
        }
    }
}

async fn write_answers(
    mut writer: impl AsyncWrite + Unpin,
    mut unanswered: mpsc::Receiver<Unanswered>,
    behind: Arc<AtomicUsize>,
) -> Result<(), SessionError> {
    while let Some(Unanswered { version, correlation_id, answer, blocks }) = unanswered.recv().await
    {
        let answer = answer.await;
        if blocks {
            behind.fetch_sub(1, Ordering::AcqRel);
        }
        if let Some(response) = answer? {
            let segments = response.encode(version, correlation_id)?;
            write_segments(&mut writer, segments).await?;
        }
    }
    writer.flush().await?;
    Ok(())
}

/// Writes segments without copying them together.
async fn write_segments(
    writer: &mut (impl AsyncWrite + Unpin),
    segments: Vec<Bytes>,
) -> io::Result<()> {
    let mut segments = std::collections::VecDeque::from(segments);
    while !segments.is_empty() {
        let slices: Vec<IoSlice<'_>> =
            segments.iter().take(WRITE_SEGMENTS_MAX).map(|segment| IoSlice::new(segment)).collect();
        let mut written = writer.write_vectored(&slices).await?;
        if written == 0 && segments.iter().any(|segment| !segment.is_empty()) {
            return Err(io::ErrorKind::WriteZero.into());
        }
        while let Some(first) = segments.front_mut() {
            if written < first.len() {
                first.advance(written);
                break;
            }
            written -= first.len();
            segments.pop_front();
        }
    }
    // Encrypted bytes may wait behind the writer.
    writer.flush().await
}
