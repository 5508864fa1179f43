//! The word a user probably meant, for errors that name a remedy.

/// The candidate nearest to `word` by edit distance, if it is near enough to be a slip. The last part
/// of a dotted candidate counts as the whole: people leave out the rest.
#[must_use]
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let allowed = (word.chars().count() / 3).max(2);
    candidates
        .into_iter()
        .map(|candidate| {
            let last = candidate.rsplit('.').next().unwrap_or(candidate);
            (distance(word, candidate).min(distance(word, last)), candidate)
        })
        .filter(|(distance, _)| *distance <= allowed)
        .min()
        .map(|(_, candidate)| candidate)
}

/// Levenshtein distance, in characters.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = i;
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let substitute = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = substitute.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_found_and_strangers_are_not() {
        let known = ["retention.ms", "retention.bytes", "segment.bytes"];
        assert_eq!(nearest("retntion.ms", known), Some("retention.ms"));
        assert_eq!(nearest("retention_bytes", known), Some("retention.bytes"));
        assert_eq!(nearest("bytes", ["retention.ms", "segment.bytes"]), Some("segment.bytes"));
        assert_eq!(nearest("colour", known), None);
        assert_eq!(distance("kitten", "sitting"), 3);
    }
}
