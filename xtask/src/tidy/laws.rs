//! The laws of ARCHITECTURE.md: every id stands in the code of a crate, so that no law is only prose.

use super::File;

const ARCHITECTURE: &str = "ARCHITECTURE.md";
/// Letters of the shortest id; a shorter word in capitals heads some other table.
const ID_LETTERS_MIN: usize = 4;

/// Laws that no code names; the file itself must be there.
pub(crate) fn check(files: &[File]) -> Vec<String> {
    let Some(architecture) = files.iter().find(|file| file.path == ARCHITECTURE) else {
        return vec![format!("{ARCHITECTURE} is missing: it holds the table of the laws")];
    };
    let laws = laws(&architecture.text);
    if laws.is_empty() {
        return vec![format!("{ARCHITECTURE} has no table whose first column holds the laws' ids")];
    }
    let code = |file: &&File| file.is_rust() && file.path.starts_with("crates/");
    let missing = |law: &&String| !files.iter().filter(code).any(|file| names(&file.text, law));
    let report = |law: &String| format!("{ARCHITECTURE}: no code under crates/ names {law}");
    laws.iter().filter(missing).map(report).collect()
}

/// The ids in the first cells of table rows: capitals and hyphens.
fn laws(text: &str) -> Vec<String> {
    let cells = text.lines().filter_map(|line| line.trim().strip_prefix('|')?.split('|').next());
    let bare = |cell: &str| cell.trim().trim_matches(['`', '*']).to_owned();
    let is_id = |cell: &String| {
        let letters = cell.chars().filter(char::is_ascii_uppercase).count();
        letters >= ID_LETTERS_MIN && cell.chars().all(|one| one.is_ascii_uppercase() || one == '-')
    };
    cells.map(bare).filter(is_id).collect()
}

/// Whether the id stands there by itself, not as a part of a longer one.
fn names(text: &str, law: &str) -> bool {
    let part = |one: char| one.is_ascii_uppercase() || one == '-' || one == '_';
    text.match_indices(law)
        .any(|(at, _)| !text[..at].ends_with(part) && !text[at + law.len()..].starts_with(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "| id | law |\n|---|---|\n| `ONE-HEAD` | a |\n| DENSE | b |\n| TLS | c |\n";

    #[test]
    fn every_law_needs_code() {
        let architecture = File::new(ARCHITECTURE, TABLE);
        assert_eq!(laws(TABLE), ["ONE-HEAD", "DENSE"]);
        let code = File::new("crates/stream/src/a.rs", "// INVARIANT(ONE-HEAD): x\n// DENSE-SET\n");
        let findings = check(&[architecture, code]);
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert!(findings[0].ends_with("DENSE"));
    }

    #[test]
    fn without_laws_it_fails() {
        assert_eq!(check(&[]).len(), 1);
        assert_eq!(check(&[File::new(ARCHITECTURE, "prose\n")]).len(), 1);
        let elsewhere = File::new("xtask/src/a.rs", "// ONE-HEAD DENSE\n");
        assert_eq!(check(&[File::new(ARCHITECTURE, TABLE), elsewhere]).len(), 2);
    }
}
