//! Words that the house does not use: in names, because they say nothing about what a thing is; in
//! text, because they mark what is unfinished or speak of history.

use super::File;
use super::shape::production;
use super::source::{blank, declarations};

/// Parts of names that fit everything and therefore tell nothing.
const EMPTY_NAMES: [&str; 6] = ["manager", "helper", "helpers", "util", "utils", "common"];
/// Keywords after which a name is declared.
const KEYWORDS: [&str; 7] = ["mod", "struct", "enum", "trait", "fn", "type", "const"];
/// What no text of ours contains. `TODO` is checked apart.
const UNFINISHED: [&str; 4] = ["FIXME", "XXX", "as discussed", "blazing"];
/// This file must name them.
const SELF: &str = "xtask/src/tidy/words.rs";

/// Names that say nothing, in declarations and in the file's own name.
pub(crate) fn check_names(file: &File) -> Vec<String> {
    let mut findings = Vec::new();
    let stem = file.path.rsplit('/').next().unwrap_or_default().trim_end_matches(".rs");
    if let Some(word) = empty_word(stem) {
        findings.push(format!("{}: a file named {word:?} says nothing about it", file.path));
    }
    // A test's name is a sentence, in which these words may stand.
    let production = if file.is_test() { "" } else { production(&file.text) };
    let blanked = blank(production);
    for keyword in KEYWORDS {
        for (at, name) in declarations(&blanked, keyword) {
            if let Some(word) = empty_word(&name) {
                let line = blanked[..at].matches('\n').count() + 1;
                findings.push(format!("{}:{line}: {word:?} in {name} says nothing", file.path));
            }
        }
    }
    findings
}

/// Marks of what is unfinished, in any text.
pub(crate) fn check_text(file: &File) -> Vec<String> {
    let mut findings = Vec::new();
    if file.path == SELF {
        return findings;
    }
    for (index, line) in file.text.lines().enumerate() {
        let mut report = |what: &str| {
            findings.push(format!("{}:{}: {what}", file.path, index + 1));
        };
        for word in UNFINISHED {
            if has_word(line, word) {
                report(&format!("{word:?} is not a word of the house"));
            }
        }
        if has_word(line, "TODO") && !line.contains("TODO(#") {
            report("a TODO names its issue: `TODO(#n):`");
        }
    }
    findings
}

fn has_word(line: &str, word: &str) -> bool {
    let part = |one: char| one.is_alphanumeric() || one == '_';
    line.match_indices(word)
        .any(|(at, _)| !line[..at].ends_with(part) && !line[at + word.len()..].starts_with(part))
}

/// The first empty word among the parts of a name in snake or camel case.
fn empty_word(name: &str) -> Option<&'static str> {
    let mut parts = vec![String::new()];
    for one in name.chars() {
        if one == '_' || one.is_uppercase() {
            parts.push(String::new());
        }
        if let Some(last) = parts.last_mut() {
            last.extend(one.to_lowercase().filter(|one| *one != '_'));
        }
    }
    EMPTY_NAMES.into_iter().find(|word| parts.iter().any(|part| part == word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_names_are_found() {
        for name in ["StreamManager", "util", "read_helper", "common_prefix"] {
            assert!(empty_word(name).is_some(), "{name}");
        }
        for name in ["Utility", "uncommon", "Commons", "managers_of"] {
            assert!(empty_word(name).is_none(), "{name}");
        }
        let text = "//! A.\n// struct FooManager\nstruct FooManager;\nfn go(helper: u8) {}\n";
        let findings = check_names(&File::new("crates/a/src/a.rs", text));
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert!(findings[0].starts_with("crates/a/src/a.rs:3:"));
        assert_eq!(check_names(&File::new("crates/a/src/util.rs", "//! A.\n")).len(), 1);
        let tests = "//! A.\n#[cfg(test)]\nmod tests {\n    fn what_is_common_to_all() {}\n}\n";
        assert_eq!(check_names(&File::new("crates/a/src/a.rs", tests)).len(), 0);
    }

    #[test]
    fn unfinished_text_is_found() {
        let text = "fine\n# TODO later\n# TODO(#7): later\n// FIXME\nPREFIXME\n";
        let findings = check_text(&File::new("a.py", text));
        assert_eq!(findings.len(), 2, "{findings:?}");
        assert!(findings[0].starts_with("a.py:2:") && findings[1].starts_with("a.py:4:"));
    }
}
