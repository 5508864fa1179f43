//! `cargo xtask tidy`: the house rules that no compiler checks. Each module looks at one kind of thing
//! and returns findings; this one finds the files, runs the checks and prints what they found.

mod edges;
mod formats;
mod laws;
mod licences;
mod shape;
mod source;
mod words;

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::command;

/// Directories that hold nothing of ours.
const FOREIGN: [&str; 6] = [".git", ".tools", "data", "node_modules", "target", "__pycache__"];

/// A file of the repository: its path from the root, and its text.
#[derive(Debug)]
pub(crate) struct File {
    path: String,
    text: String,
}

impl File {
    #[cfg(test)]
    fn new(path: &str, text: &str) -> File {
        File { path: path.to_owned(), text: text.to_owned() }
    }

    fn is_rust(&self) -> bool {
        has_extension(&self.path, &["rs"])
    }

    /// Whether the file holds nothing but tests, by its place or name.
    fn is_test(&self) -> bool {
        self.path.ends_with("_test.rs")
            || ["/tests/", "/benches/", "tests/e2e/"].iter().any(|part| self.path.contains(part))
    }
}

/// Runs all checks, prints each finding on a line, and tells whether there was none.
pub(crate) fn run(repository: &Path) -> Result<bool> {
    let mut files = Vec::new();
    collect(repository, "", &mut files)?;
    let metadata = metadata(repository)?;
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        findings.extend(shape::check(file));
        findings.extend(words::check_names(file));
    }
    findings.extend(shape::stale_exceptions(&files));
    for file in &files {
        findings.extend(words::check_text(file));
    }
    findings.extend(edges::check(&metadata));
    findings.extend(licences::check(&metadata, &text_of(&files, "deny.toml")?)?);
    findings.extend(laws::check(&files));
    findings.extend(formats::check(&files));
    for finding in &findings {
        println!("tidy: {finding}");
    }
    println!("tidy: {} files, {} findings", files.len(), findings.len());
    Ok(findings.is_empty())
}

fn collect(root: &Path, below: &str, files: &mut Vec<File>) -> Result<()> {
    let directory = root.join(below);
    let entries = fs::read_dir(&directory);
    let entries = entries.with_context(|| format!("could not list {}", directory.display()))?;
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry?;
        names.push((entry.file_name().to_string_lossy().into_owned(), entry.file_type()?));
    }
    names.sort_by(|one, other| one.0.cmp(&other.0));
    for (name, kind) in names {
        let path = if below.is_empty() { name.clone() } else { format!("{below}/{name}") };
        if kind.is_dir() && !FOREIGN.contains(&name.as_str()) {
            collect(root, &path, files)?;
        } else if kind.is_file() && is_ours_to_read(&path) {
            let text = fs::read_to_string(root.join(&path));
            let text = text.with_context(|| format!("could not read {path} as UTF-8"))?;
            files.push(File { path, text });
        }
    }
    Ok(())
}

fn is_ours_to_read(path: &str) -> bool {
    path == ".ci/run" || has_extension(path, &["rs", "md", "toml", "py", "js", "sh", "yaml", "yml"])
}

fn has_extension(path: &str, extensions: &[&str]) -> bool {
    Path::new(path).extension().is_some_and(|found| extensions.iter().any(|one| found == *one))
}

fn text_of(files: &[File], path: &str) -> Result<String> {
    let found = files.iter().find(|file| file.path == path);
    Ok(found.with_context(|| format!("{path} is missing"))?.text.clone())
}

/// What cargo knows of the workspace and all it depends on.
pub(crate) fn metadata(repository: &Path) -> Result<Value> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["metadata", "--format-version", "1", "--locked"]).current_dir(repository);
    serde_json::from_str(&command::output(&mut cargo)?).context("cargo metadata is not JSON")
}
