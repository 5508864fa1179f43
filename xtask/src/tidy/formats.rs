//! The documents of persisted formats: each has the same headings in the same order, so that a reader
//! finds in every one what may be assumed, what is written and what a crash leaves.

use super::File;

const DIRECTORY: &str = "docs/formats/";
/// A word of each heading, in order. What else the heading says is free.
const HEADINGS: [&str; 9] = [
    "name",
    "assumptions",
    "layout",
    "fields",
    "rules",
    "write order",
    "crash",
    "versions",
    "example",
];

/// Headings that are missing or out of order.
pub(crate) fn check(files: &[File]) -> Vec<String> {
    let document = |file: &&File| {
        file.path.starts_with(DIRECTORY)
            && file.path.ends_with(".md")
            && !file.path.ends_with("/README.md")
    };
    files.iter().filter(document).flat_map(check_one).collect()
}

fn check_one(file: &File) -> Vec<String> {
    let is_heading = |line: &&str| line.starts_with("##");
    let mut headings = file.text.lines().filter(is_heading).map(str::to_lowercase);
    for wanted in HEADINGS {
        if !headings.any(|heading| heading.contains(wanted)) {
            let all = HEADINGS.join(", ");
            let path = &file.path;
            return vec![format!(
                "{path}: no heading {wanted:?} in its place; all, in order: {all}"
            )];
        }
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(headings: &[&str]) -> File {
        let lines = headings.iter().map(|heading| format!("## {heading}\ntext\n"));
        File::new("docs/formats/a.md", &format!("# A\n{}", lines.collect::<String>()))
    }

    #[test]
    fn headings_are_complete_and_in_order() {
        let mut headings = HEADINGS;
        assert_eq!(check(&[document(&headings)]).len(), 0);
        assert_eq!(check(&[document(&headings[1..])]).len(), 1);
        assert_eq!(check(&[document(&headings[..8])]).len(), 1);
        headings.swap(2, 3);
        assert_eq!(check(&[document(&headings)]).len(), 1);
        assert_eq!(check(&[File::new("docs/formats/README.md", "# Formats\n")]).len(), 0);
    }
}
