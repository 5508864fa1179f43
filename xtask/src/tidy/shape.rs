//! The shape of a Rust file: it says what it owns, and neither it nor its functions are too long.

use super::File;
use super::source::{blank, functions};

/// Lines of a file before its tests.
const FILE_LINES_MAX: usize = 600;
/// Lines of code of a function, without blank lines and comments.
const FUNCTION_LINES_MAX: usize = 70;

/// What may be longer, how long, and why. The name is a function's, or empty for the whole file.
struct Exception {
    path: &'static str,
    name: &'static str,
    lines_max: usize,
    reason: &'static str,
}

/// The exceptions. One that is not needed any more is itself a finding.
const EXCEPTIONS: &[Exception] = &[];

/// What is wrong with one Rust file.
pub(crate) fn check(file: &File) -> Vec<String> {
    let mut findings = Vec::new();
    if !file.text.starts_with("//! ") {
        findings
            .push(format!("{}:1: open with `//!`: what it owns and what it does not", file.path));
    }
    if file.is_test() {
        return findings;
    }
    let lines = production_lines(&file.text);
    let lines_max = allowed(EXCEPTIONS, &file.path, "").unwrap_or(FILE_LINES_MAX);
    if lines > lines_max {
        findings
            .push(format!("{}: {lines} lines before its tests, more than {lines_max}", file.path));
    }
    for function in functions(&blank(production(&file.text))) {
        let lines_max = allowed(EXCEPTIONS, &file.path, &function.name);
        let lines_max = lines_max.unwrap_or(FUNCTION_LINES_MAX);
        if function.code_lines > lines_max {
            findings.push(format!(
                "{}:{}: fn {} has {} lines of code, more than {lines_max}",
                file.path, function.line, function.name, function.code_lines
            ));
        }
    }
    findings
}

/// Exceptions without a reason, and those that nothing needs.
pub(crate) fn stale_exceptions(files: &[File]) -> Vec<String> {
    stale(EXCEPTIONS, files)
}

fn stale(exceptions: &[Exception], files: &[File]) -> Vec<String> {
    let mut findings = Vec::new();
    for Exception { path, name, reason, .. } in exceptions {
        let file = files.iter().find(|file| file.path == *path);
        let needed = file.is_some_and(|file| {
            if name.is_empty() {
                return production_lines(&file.text) > FILE_LINES_MAX;
            }
            let functions = functions(&blank(production(&file.text)));
            let mut same = functions.iter().filter(|function| function.name == *name);
            same.any(|function| function.code_lines > FUNCTION_LINES_MAX)
        });
        if reason.is_empty() || !needed {
            findings
                .push(format!("the exception for {path} {name} is not needed or has no reason"));
        }
    }
    findings
}

fn allowed(exceptions: &[Exception], path: &str, name: &str) -> Option<usize> {
    let mut same = exceptions.iter().filter(|one| one.path == path && one.name == name);
    same.next().map(|one| one.lines_max)
}

/// The text before the tests at its end.
pub(super) fn production(text: &str) -> &str {
    let tests = text.match_indices("#[cfg(test)]\nmod ").find(|(at, _)| {
        // A declaration of a sibling test file is not the beginning of the tests.
        let line = text[*at..].lines().nth(1).unwrap_or_default();
        line.ends_with('{') && (*at == 0 || text[..*at].ends_with('\n'))
    });
    tests.map_or(text, |(at, _)| &text[..at])
}

fn production_lines(text: &str) -> usize {
    production(text).lines().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function_of(lines: usize) -> String {
        format!("fn long() {{\n{}}}\n", "    work();\n".repeat(lines - 2))
    }

    #[test]
    fn a_file_must_say_what_it_owns() {
        assert_eq!(check(&File::new("crates/a/src/lib.rs", "//! A.\n")).len(), 0);
        assert_eq!(check(&File::new("crates/a/src/lib.rs", "use x;\n//! A.\n")).len(), 1);
        assert_eq!(check(&File::new("crates/a/tests/it.rs", "")).len(), 1);
    }

    #[test]
    fn length_is_counted_before_the_tests() {
        let body = "// line\n".repeat(FILE_LINES_MAX - 1);
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "// line\n".repeat(900));
        let fits = File::new("crates/a/src/a.rs", &format!("//! A.\n{body}{tests}"));
        assert_eq!(check(&fits).len(), 0);
        let long = File::new("crates/a/src/a.rs", &format!("//! A.\n{body}// one\n{tests}"));
        assert_eq!(check(&long).len(), 1);
        let elsewhere = File::new("crates/a/src/a_test.rs", &long.text);
        assert_eq!(check(&elsewhere).len(), 0);
        let sibling = format!("//! A.\n#[cfg(test)]\nmod a_test;\n{body}");
        assert_eq!(check(&File::new("crates/a/src/a.rs", &sibling)).len(), 1);
    }

    #[test]
    fn functions_have_a_limit() {
        let at_limit = format!("//! A.\n{}", function_of(FUNCTION_LINES_MAX));
        assert_eq!(check(&File::new("crates/a/src/a.rs", &at_limit)).len(), 0);
        let beyond = format!("//! A.\n{}", function_of(FUNCTION_LINES_MAX + 1));
        let findings = check(&File::new("crates/a/src/a.rs", &beyond));
        assert_eq!(findings.len(), 1);
        assert!(findings[0].starts_with("crates/a/src/a.rs:2: fn long has 71"), "{findings:?}");
    }

    #[test]
    fn an_exception_must_be_needed_and_argued() {
        let text = format!("//! A.\n{}", function_of(FUNCTION_LINES_MAX + 1));
        let files = [File::new("a.rs", &text)];
        let exception = |name, reason| Exception { path: "a.rs", name, lines_max: 80, reason };
        assert_eq!(stale(&[exception("long", "one table")], &files).len(), 0);
        assert_eq!(stale(&[exception("long", "")], &files).len(), 1);
        assert_eq!(stale(&[exception("", "one table")], &files).len(), 1);
        assert_eq!(stale(&[exception("gone", "one table")], &files).len(), 1);
        assert_eq!(allowed(&[exception("long", "one table")], "a.rs", "long"), Some(80));
        assert_eq!(allowed(&[exception("long", "one table")], "b.rs", "long"), None);
    }
}
