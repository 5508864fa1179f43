//! One connection: requests in, replies out in their order.
//!
//! Requests run one after the other, with one exception that clients cannot see: appends that have
//! arrived together are handed to their streams together and share a flush, and their replies leave
//! in one write. Owns who may speak (AUTH), what is followed, and when a record given out counts
//! as delivered; what commands mean is `map`'s.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use subtle::ConstantTimeEq;
use thetis_net::{Connection, told_to_stop};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::command::{self, Command};
use crate::front::Front;
use crate::map::{self, Error, Placed, Reader};
use crate::reply::Reply;
use crate::wire::{Frame, Frames, LENGTH_BYTES};

/// Appends of one connection whose replies are not written.
const UNANSWERED_MAX: usize = 256;

/// Room made for arriving bytes at a time.
const READ_BYTES: usize = 64 << 10;

/// How long a client may leave a reply lying in its socket.
const WRITE_STALL_MAX: Duration = Duration::from_secs(60);

/// What a client without TLS is told where it is asked for, in its frame.
const PLAIN_REFUSAL: &[u8] = b"\x31\0\0\0ERR unauthenticated this listener speaks TLS only";

/// Why a connection was closed by this side.
#[derive(Debug, thiserror::Error)]
enum SessionError {
    /// The socket failed.
    #[error("the socket failed: {0}")]
    Io(#[from] io::Error),
    /// Nothing was heard for the idle limit.
    #[error("idle for {0:?}")]
    Idle(Duration),
    /// A reply was not taken.
    #[error("a reply was not taken for {WRITE_STALL_MAX:?}")]
    Stalled,
}

/// Serves `front` on a bound socket until `stop` becomes true or its sender is gone; then takes no
/// more requests, sends the answers that are on their way, and returns. Needs tokio's runtime of
/// several threads.
pub async fn serve(front: Arc<Front>, socket: TcpListener, stop: watch::Receiver<bool>) {
    let options = thetis_net::Options {
        protocol: "text",
        connections_max: front.settings.connections_max,
        tls: front.settings.tls.clone(),
        plain_refusal: PLAIN_REFUSAL,
    };
    let session = move |connection, _, stop| run(front.clone(), connection, stop);
    thetis_net::serve(socket, options, stop, session).await;
}

/// Serves one connection until either side ends it or `stop` becomes true.
///
/// Cancel safety: a record on its way to the client goes back to its queue.
async fn run(
    front: Arc<Front>,
    connection: Connection,
    stop: watch::Receiver<bool>,
) -> Result<(), SessionError> {
    let is_known = front.settings.token.is_none();
    let mut session = Session {
        front,
        connection,
        stop,
        frames: Frames::default(),
        is_known,
        unanswered: Vec::new(),
        following: None,
    };
    session.serve().await
}

struct Session {
    front: Arc<Front>,
    connection: Connection,
    stop: watch::Receiver<bool>,
    frames: Frames,
    /// Whether it may do anything but AUTH.
    is_known: bool,
    /// Appends in the order of their requests, the replies still to come.
    unanswered: Vec<Placed>,
    following: Option<Reader>,
}

/// What woke a session.
enum Woken {
    Stopped,
    Arrived(io::Result<usize>),
    Idle,
    /// There is something to push, or there never will be again.
    Ready(bool),
}

impl Session {
    async fn serve(&mut self) -> Result<(), SessionError> {
        let mut buffer = BytesMut::new();
        loop {
            while let Some(frame) = self.frames.next(&mut buffer) {
                self.take(frame).await?;
            }
            self.answer_appends().await?;
            buffer.reserve(READ_BYTES);
            match self.wait(&mut buffer).await {
                Woken::Stopped | Woken::Arrived(Ok(0)) => return Ok(()),
                Woken::Arrived(read) => drop(read?),
                Woken::Idle => {
                    return Err(SessionError::Idle(self.front.settings.connection_idle_max));
                }
                Woken::Ready(is_more) => self.push(is_more).await?,
            }
        }
    }

    async fn wait(&mut self, buffer: &mut BytesMut) -> Woken {
        let Session { front, connection, stop, following, .. } = self;
        connection.acknowledge_at_once();
        let idle_max = front.settings.connection_idle_max;
        let is_following = following.is_some();
        let ready = async {
            match following {
                Some(reader) => reader.ready().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = told_to_stop(stop) => Woken::Stopped,
            arrived = connection.read_buf(buffer) => Woken::Arrived(arrived),
            is_more = ready => Woken::Ready(is_more),
            () = tokio::time::sleep(idle_max), if !is_following => Woken::Idle,
        }
    }

    /// Takes one request and answers it, unless it is an append: those are answered together.
    async fn take(&mut self, frame: Frame) -> Result<(), SessionError> {
        let command = match &frame {
            Frame::BadLength(_) => Err("invalid frame length".to_owned()),
            Frame::Request(body) => command::parse(body).map_err(|fault| fault.to_string()),
        };
        let followed = self.following.take();
        if let Some(reader) = &followed {
            self.write(&Reply::end_at(reader.at())).await?;
        }
        let command = match command {
            Ok(Command::Auth { .. } | Command::Hello) | Err(_) => command,
            Ok(_) if !self.is_known => Err("unauthenticated say AUTH <token> first".to_owned()),
            command => command,
        };
        match command {
            Ok(Command::Put { topic, value }) => {
                self.append(|front| Placed::put(front, topic, value)).await
            }
            Ok(Command::Append(append)) => {
                self.append(|front| Placed::append(front, &append)).await
            }
            Err(fault) => self.answer(&Reply::error(fault)).await,
            Ok(command) => {
                // What was asked before is done and answered before.
                self.answer_appends().await?;
                self.act(command, followed.is_some()).await
            }
        }
    }

    async fn append(&mut self, place: impl FnOnce(&Front) -> Placed) -> Result<(), SessionError> {
        if self.unanswered.len() >= UNANSWERED_MAX {
            self.answer_appends().await?;
        }
        self.unanswered.push(place(&self.front));
        Ok(())
    }

    /// Waits for all appends under way and writes their replies at once.
    ///
    /// Who finds nobody else doing so flushes on its own thread, for others too: a client by itself
    /// is spared two switches of threads. All others are called back.
    async fn answer_appends(&mut self) -> Result<(), SessionError> {
        let placed = std::mem::take(&mut self.unanswered);
        let front = self.front.clone();
        let turn = match placed.iter().any(Placed::is_for_disk) {
            true => front.flush_turn.try_acquire().ok(),
            false => None,
        };
        let replies: Vec<Reply> = match turn {
            Some(_turn) => {
                tokio::task::block_in_place(|| placed.into_iter().map(Placed::wait).collect())
            }
            None => called_back(placed).await,
        };
        self.write_all(&replies).await
    }

    async fn act(&mut self, command: Command, has_followed: bool) -> Result<(), SessionError> {
        match command {
            Command::Hello => {
                self.frames.allow_large();
                self.write(&Reply::ok_with("thetis 2")).await
            }
            Command::Auth { token } => {
                let reply = self.authenticate(&token);
                self.write(&reply).await
            }
            // The END that was sent is its answer.
            Command::Stop if has_followed => Ok(()),
            Command::Stop => self.write(&Reply::error("invalid STOP: nothing is followed")).await,
            Command::Get { topic } => {
                match tokio::task::block_in_place(|| map::get(&self.front, &topic)) {
                    Err(error) => self.write(&error.reply()).await,
                    Ok((reply, handed)) => {
                        self.write(&reply).await?;
                        if let Some(handed) = handed {
                            handed.delivered();
                        }
                        Ok(())
                    }
                }
            }
            Command::Read(read) => {
                let reply = self.read(&read).await.unwrap_or_else(|error| error.reply());
                self.write(&reply).await
            }
            Command::Follow(read) => match Reader::new(&self.front, &read) {
                Err(error) => self.write(&error.reply()).await,
                Ok(reader) => {
                    self.write(&Reply::ok_with(reader.at().0)).await?;
                    self.following = Some(reader);
                    Ok(())
                }
            },
            command => {
                let done = tokio::task::block_in_place(|| map::act(&self.front, command));
                self.write(&done.unwrap_or_else(|error| error.reply())).await
            }
        }
    }

    fn authenticate(&mut self, said: &str) -> Reply {
        let is_right = match &self.front.settings.token {
            None => true,
            Some(token) => token.as_bytes().ct_eq(said.as_bytes()).into(),
        };
        self.is_known |= is_right;
        if is_right { Reply::ok() } else { Reply::error("unauthenticated the token is wrong") }
    }

    async fn read(&mut self, read: &command::Read) -> Result<Reply, Error> {
        let mut reader = Reader::new(&self.front, read)?;
        if !read.wait.is_zero() {
            tokio::select! {
                () = told_to_stop(&mut self.stop) => {}
                () = reader.ready_within(read.wait) => {}
            }
        }
        tokio::task::block_in_place(|| reader.read())
    }

    /// Sends what the followed topic has; ends following when it will have no more.
    async fn push(&mut self, is_more: bool) -> Result<(), SessionError> {
        let Some(mut reader) = self.following.take() else { return Ok(()) };
        if !is_more {
            return self.write(&Reply::end_at(reader.at())).await;
        }
        match tokio::task::block_in_place(|| reader.read()) {
            Ok(reply) => {
                self.write(&reply).await?;
                self.following = Some(reader);
                Ok(())
            }
            Err(error) => self.write_all(&[error.reply(), Reply::end_at(reader.at())]).await,
        }
    }

    /// Answers what needs no doing, behind what was asked before.
    async fn answer(&mut self, reply: &Reply) -> Result<(), SessionError> {
        self.answer_appends().await?;
        self.write(reply).await
    }

    async fn write(&mut self, reply: &Reply) -> Result<(), SessionError> {
        self.write_all(std::slice::from_ref(reply)).await
    }

    /// Writes replies in one piece.
    async fn write_all(&mut self, replies: &[Reply]) -> Result<(), SessionError> {
        if replies.is_empty() {
            return Ok(());
        }
        let bodies = || replies.iter().map(Reply::body);
        let mut framed = BytesMut::with_capacity(bodies().map(|b| LENGTH_BYTES + b.len()).sum());
        for body in bodies().map(bounded) {
            framed.put_u32_le(u32::try_from(body.len()).expect("bounded"));
            framed.put_slice(&body);
        }
        let write = async {
            self.connection.write_all(&framed).await?;
            self.connection.flush().await
        };
        match tokio::time::timeout(WRITE_STALL_MAX, write).await {
            Ok(written) => Ok(written?),
            Err(_elapsed) => Err(SessionError::Stalled),
        }
    }
}

/// The replies to appends that somebody else flushes, in their order.
async fn called_back(mut placed: Vec<Placed>) -> Vec<Reply> {
    placed.iter_mut().for_each(Placed::start);
    let mut replies = Vec::with_capacity(placed.len());
    for placed in placed {
        replies.push(placed.reply().await);
    }
    replies
}

/// The body, or, should it not fit a frame, an error in its place.
fn bounded(body: &Bytes) -> Bytes {
    match u32::try_from(body.len()) {
        Ok(_) => body.clone(),
        Err(_) => {
            Reply::error("invalid the answer is larger than 4 GiB; ask for less").body().clone()
        }
    }
}
