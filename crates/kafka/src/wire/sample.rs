//! Random valid messages for the tests: every field that the version has, nothing that it has not,
//! so that a round trip must give back the same message. And the walk over all APIs.

use bytes::{Bytes, BytesMut};

use super::{ApiKey, ErrorCode, FRAME_BYTES_MAX, Records, Uuid, Wire, Writer, split_frame};

/// Where samples come from: a seeded stream of numbers and the version to fit.
pub(crate) struct Source {
    state: u64,
    version: i16,
}

impl Source {
    pub(crate) fn new(seed: u64, version: i16) -> Source {
        Source { state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1, version }
    }

    pub(crate) fn version(&self) -> i16 {
        self.version
    }

    /// The next number (xorshift64*).
    pub(crate) fn next(&mut self) -> u64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        self.state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `end`, skewed to nothing.
    pub(crate) fn below(&mut self, end: u64) -> usize {
        usize::try_from((self.next() >> 32) % end).unwrap()
    }
}

/// A type with random values.
pub(crate) trait Sample {
    fn sample(source: &mut Source, nullable: bool) -> Self;
}

macro_rules! integers {
    ($($type:ty),*) => {$(
        impl Sample for $type {
            fn sample(source: &mut Source, _nullable: bool) -> Self {
                let bytes = source.next().to_be_bytes();
                <$type>::from_be_bytes(*bytes.first_chunk().unwrap())
            }
        }
    )*};
}
integers!(i8, i16, i32, i64);

impl Sample for bool {
    fn sample(source: &mut Source, _nullable: bool) -> Self {
        source.next() & 1 == 1
    }
}

impl Sample for Uuid {
    fn sample(source: &mut Source, _nullable: bool) -> Self {
        Uuid((u128::from(source.next()) << 64 | u128::from(source.next())).to_be_bytes())
    }
}

impl Sample for ErrorCode {
    fn sample(source: &mut Source, _nullable: bool) -> Self {
        ErrorCode::ALL[source.below(ErrorCode::ALL.len() as u64)]
    }
}

impl Sample for String {
    fn sample(source: &mut Source, _nullable: bool) -> Self {
        let letters = ['a', 'B', '.', '-', '9', 'é', '漢'];
        (0..source.below(12)).map(|_| letters[source.below(7)]).collect()
    }
}

impl Sample for Bytes {
    fn sample(source: &mut Source, _nullable: bool) -> Self {
        let length = if source.below(8) == 0 { 2000 } else { source.below(40) };
        (0..length).map(|_| source.next().to_be_bytes()[0]).collect()
    }
}

impl Sample for Records {
    fn sample(source: &mut Source, _nullable: bool) -> Self {
        Records::from(Bytes::sample(source, false))
    }
}

impl<T: Sample> Sample for Vec<T> {
    fn sample(source: &mut Source, _nullable: bool) -> Self {
        (0..source.below(4)).map(|_| T::sample(source, false)).collect()
    }
}

impl<T: Sample + Default> Sample for Option<T> {
    fn sample(source: &mut Source, nullable: bool) -> Self {
        if nullable && source.below(3) == 0 { None } else { Some(T::sample(source, false)) }
    }
}

/// Calls `$visit` for the request, which names its response, of every API.
macro_rules! for_each_api {
    ($visit:ident) => {
        $visit::<ProduceRequest>();
        $visit::<FetchRequest>();
        $visit::<ListOffsetsRequest>();
        $visit::<MetadataRequest>();
        $visit::<OffsetCommitRequest>();
        $visit::<OffsetFetchRequest>();
        $visit::<FindCoordinatorRequest>();
        $visit::<JoinGroupRequest>();
        $visit::<HeartbeatRequest>();
        $visit::<LeaveGroupRequest>();
        $visit::<SyncGroupRequest>();
        $visit::<DescribeGroupsRequest>();
        $visit::<ListGroupsRequest>();
        $visit::<ApiVersionsRequest>();
        $visit::<CreateTopicsRequest>();
        $visit::<DeleteTopicsRequest>();
        $visit::<DeleteRecordsRequest>();
        $visit::<InitProducerIdRequest>();
        $visit::<OffsetForLeaderEpochRequest>();
        $visit::<DescribeConfigsRequest>();
        $visit::<CreatePartitionsRequest>();
        $visit::<DeleteGroupsRequest>();
        $visit::<AlterConfigsRequest>();
        $visit::<IncrementalAlterConfigsRequest>();
        $visit::<DescribeClusterRequest>();
    };
}
pub(crate) use for_each_api;

/// Segments in one piece.
fn joined(segments: Vec<Bytes>) -> Bytes {
    let mut joined = BytesMut::new();
    segments.iter().for_each(|segment| joined.extend_from_slice(segment));
    joined.freeze()
}

/// The frame without its length, which is checked.
pub(crate) fn unframed(segments: Vec<Bytes>) -> Bytes {
    let mut buffer = BytesMut::from(joined(segments));
    let frame = split_frame(&mut buffer, FRAME_BYTES_MAX).unwrap().unwrap();
    assert!(buffer.is_empty(), "the frame's length is not that of its segments");
    frame
}

/// The body of a message in one piece.
pub(crate) fn written<T: Wire>(api: ApiKey, version: i16, message: &T) -> Bytes {
    let mut writer = Writer::new(version, api.flexible(version));
    message.encode(&mut writer, false);
    joined(writer.segments().unwrap())
}
