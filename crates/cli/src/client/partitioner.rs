//! Which partition a key belongs to: the hash that Kafka's own clients use, so that records of one
//! key meet in one partition whichever client sends them.

/// Partition of `key` among `count`.
pub(super) fn partition_of(key: &[u8], count: usize) -> usize {
    // The clients mask the sign bit off rather than taking the absolute value.
    let hash = murmur2(key) & 0x7fff_ffff;
    usize::try_from(hash).map_or(0, |hash| hash % count.max(1))
}

/// MurmurHash2, 32 bits, with the seed of Kafka's clients.
fn murmur2(data: &[u8]) -> u32 {
    const SEED: u32 = 0x9747_b28c;
    const M: u32 = 0x5bd1_e995;
    const R: u32 = 24;
    // The algorithm mixes the length in modulo 2^32.
    let length = u32::try_from(data.len() & 0xffff_ffff).unwrap_or(0);
    let mut hash = SEED ^ length;
    let (words, tail) = data.as_chunks::<4>();
    for word in words {
        let mut k = u32::from_le_bytes(*word).wrapping_mul(M);
        k = (k ^ (k >> R)).wrapping_mul(M);
        hash = hash.wrapping_mul(M) ^ k;
    }
    for (index, byte) in tail.iter().enumerate().rev() {
        hash ^= u32::from(*byte) << (8 * index);
    }
    if !tail.is_empty() {
        hash = hash.wrapping_mul(M);
    }
    hash = (hash ^ (hash >> 13)).wrapping_mul(M);
    hash ^ (hash >> 15)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values that Kafka's own clients give, as signed 32-bit numbers.
    #[test]
    fn the_hash_is_the_one_of_other_clients() {
        let known: [(&str, i32); 5] = [
            ("21", -973_932_308),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
        ];
        for (key, hash) in known {
            assert_eq!(murmur2(key.as_bytes()).cast_signed(), hash, "{key}");
        }
    }

    #[test]
    fn every_partition_is_in_range() {
        for count in 1..9 {
            assert!((0..100_u32).all(|key| partition_of(&key.to_be_bytes(), count) < count));
        }
    }
}
