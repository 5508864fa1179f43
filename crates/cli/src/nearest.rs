//! The nearest known name to a misspelt one. Knows nothing of settings.

/// The candidate a user probably meant by `name`, if one is near enough to be worth saying: at most
/// a third of the name away (and two letters in short names), else one that ends in the same word
/// (`listen` for `kafka.listen`).
pub(crate) fn nearest<'a>(
    name: &str,
    candidates: impl Iterator<Item = &'a str>,
) -> Option<&'a str> {
    let separators = ['.', '_'];
    let last = |text: &str| text.rsplit(separators).next().map(str::to_owned);
    let mut best: Option<(usize, &str)> = None;
    let mut same_ending = None;
    for candidate in candidates {
        let distance = distance(name, candidate);
        if best.is_none_or(|(least, _)| distance < least) {
            best = Some((distance, candidate));
        }
        if same_ending.is_none() && last(name) == last(candidate) {
            same_ending = Some(candidate);
        }
    }
    let allowed = (name.chars().count() / 3).max(2);
    best.filter(|(distance, _)| *distance <= allowed).map(|(_, name)| name).or(same_ending)
}

/// Edits between two names: insertions, deletions, substitutions and swaps of neighbours, each
/// counted once. Case and the difference of `-`, `_` and `.` count nothing.
fn distance(a: &str, b: &str) -> usize {
    let fold = |c: char| match c {
        '-' | '.' => '_',
        c => c.to_ascii_lowercase(),
    };
    let a: Vec<char> = a.chars().map(fold).collect();
    let b: Vec<char> = b.chars().map(fold).collect();
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let changed = usize::from(a[i - 1] != b[j - 1]);
            row[j] = (last[j] + 1).min(row[j - 1] + 1).min(last[j - 1] + changed);
            let swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if swapped {
                row[j] = row[j].min(before_last[j - 2] + 1);
            }
        }
        before_last = last;
        last = row;
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: [&str; 4] = ["data.dir", "kafka.listen", "durability", "topic.partitions"];

    #[test]
    fn distance_counts_edits() {
        assert_eq!(distance("listen", "listen"), 0);
        assert_eq!(distance("kafka-listen", "kafka.Listen"), 0);
        assert_eq!(distance("kafak", "kafka"), 1);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("durabilty", "durability"), 1);
    }

    #[test]
    fn a_misspelt_name_finds_its_neighbour_and_a_strange_one_none() {
        assert_eq!(nearest("kafak.listen", KEYS.into_iter()), Some("kafka.listen"));
        assert_eq!(nearest("listen", KEYS.into_iter()), Some("kafka.listen"));
        assert_eq!(nearest("durable", KEYS.into_iter()), None);
        assert_eq!(nearest("colour", KEYS.into_iter()), None);
    }
}
