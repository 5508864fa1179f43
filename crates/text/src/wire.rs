//! Frames: a length (u32, little-endian) and a body. Pure; owns neither commands nor sockets.
//!
//! A length that is not allowed is answered with an error, and its body is skipped as it arrives,
//! so that the connection stays in step and nothing inside a body is ever taken for a frame.

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// Bytes in front of a body.
pub const LENGTH_BYTES: usize = 4;

/// Bytes of a request on a connection that has not said `HELLO`; the limit clients of the first
/// version of the protocol know.
pub const REQUEST_BYTES_MAX_FIRST: usize = 64 << 10;

/// Bytes of a request after `HELLO`.
pub const REQUEST_BYTES_MAX: usize = 8 << 20;

/// What a connection's bytes come apart into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A whole body.
    Request(Bytes),
    /// A length of zero or over the limit.
    BadLength(u32),
}

/// Cuts frames off the front of a buffer.
#[derive(Debug)]
pub struct Frames {
    /// Longest body taken, in bytes.
    request_bytes_max: usize,
    /// Bytes of a refused body that are still to come.
    skip: usize,
}

impl Default for Frames {
    fn default() -> Frames {
        Frames { request_bytes_max: REQUEST_BYTES_MAX_FIRST, skip: 0 }
    }
}

impl Frames {
    /// Takes bodies of up to [`REQUEST_BYTES_MAX`] from the next frame on.
    pub fn allow_large(&mut self) {
        self.request_bytes_max = REQUEST_BYTES_MAX;
    }

    /// The next frame, once it is whole; a bad length is told at once. Nothing is allocated.
    pub fn next(&mut self, buffer: &mut BytesMut) -> Option<Frame> {
        let skipped = self.skip.min(buffer.len());
        buffer.advance(skipped);
        self.skip -= skipped;
        let length = u32::from_le_bytes(*buffer.first_chunk::<LENGTH_BYTES>()?);
        let bytes = usize::try_from(length).expect("a u32 fits a usize on every target");
        if bytes == 0 || bytes > self.request_bytes_max {
            buffer.advance(LENGTH_BYTES);
            self.skip = bytes;
            return Some(Frame::BadLength(length));
        }
        if buffer.len() - LENGTH_BYTES < bytes {
            return None;
        }
        buffer.advance(LENGTH_BYTES);
        Some(Frame::Request(buffer.split_to(bytes).freeze()))
    }
}

/// A body in its frame, in one piece.
///
/// # Panics
/// For a body of 4 GiB or more, which no reply reaches: records are at most half of that.
#[must_use]
pub fn frame(body: &[u8]) -> Bytes {
    let length = u32::try_from(body.len()).expect("bodies end far below 4 GiB");
    let mut framed = BytesMut::with_capacity(LENGTH_BYTES + body.len());
    framed.put_u32_le(length);
    framed.put_slice(body);
    framed.freeze()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(frames: &mut Frames, buffer: &mut BytesMut) -> Vec<Frame> {
        std::iter::from_fn(|| frames.next(buffer)).collect()
    }

    #[test]
    fn a_refused_body_is_skipped_and_never_read_as_frames() {
        let mut inner = frame(b"GET secret").to_vec();
        inner.resize(REQUEST_BYTES_MAX_FIRST + 1, 0);
        let mut buffer = BytesMut::from(&frame(&inner)[..]);
        buffer.extend_from_slice(&frame(b"METRICS"));
        buffer.extend_from_slice(&frame(b""));
        let length = u32::try_from(inner.len()).unwrap();
        assert_eq!(
            all(&mut Frames::default(), &mut buffer),
            [
                Frame::BadLength(length),
                Frame::Request(Bytes::from_static(b"METRICS")),
                Frame::BadLength(0)
            ]
        );
    }

    #[test]
    fn the_limit_is_exact_and_rises() {
        let mut frames = Frames::default();
        let most = vec![b'x'; REQUEST_BYTES_MAX_FIRST];
        let mut buffer = BytesMut::from(&frame(&most)[..]);
        assert_eq!(frames.next(&mut buffer), Some(Frame::Request(most.into())));
        frames.allow_large();
        let more = vec![b'x'; REQUEST_BYTES_MAX_FIRST + 1];
        let mut buffer = BytesMut::from(&frame(&more)[..]);
        assert_eq!(frames.next(&mut buffer), Some(Frame::Request(more.into())));
    }

    proptest! {
        #[test]
        fn frames_come_apart_the_same_however_they_arrive(
            bodies in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..200), 0..10),
            piece in 1_usize..50,
        ) {
            let bytes: Vec<u8> = bodies.iter().flat_map(|body| frame(body)).collect();
            let (mut frames, mut buffer, mut found) =
                (Frames::default(), BytesMut::new(), Vec::new());
            for part in bytes.chunks(piece) {
                buffer.extend_from_slice(part);
                found.extend(all(&mut frames, &mut buffer));
            }
            let expected: Vec<Frame> =
                bodies.into_iter().map(|body| Frame::Request(body.into())).collect();
            prop_assert_eq!(found, expected);
        }

        #[test]
        fn random_bytes_are_cut_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..500)) {
            let mut buffer = BytesMut::from(&bytes[..]);
            let found = all(&mut Frames::default(), &mut buffer);
            prop_assert!(found.len() <= bytes.len() / LENGTH_BYTES);
        }
    }
}
