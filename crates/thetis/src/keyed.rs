//! Directories by key: several stores side by side under one root. Owns the names of their
//! directories; opening one is `crate::open`'s.

use std::path::{Path, PathBuf};

use crate::error::Error;

/// Bytes of a directory name: what file systems take, with room for a suffix.
const NAME_BYTES_MAX: usize = 240;
/// Keeps a key's directory apart from everything else in the root, and `.` and `..` harmless.
const PREFIX: &str = "key-";

/// The directory of `key` under `root`.
///
/// Different keys have different directories, on file systems that ignore case as well: lower case
/// letters, digits, `-` and `_` stand for themselves, every other byte is `%` and two hex digits.
///
/// # Errors
/// [`Error::Key`] when the name would be longer than 240 bytes.
pub fn keyed_dir(root: impl AsRef<Path>, key: &str) -> Result<PathBuf, Error> {
    let mut name = String::from(PREFIX);
    for byte in key.bytes() {
        match byte {
            b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' => name.push(char::from(byte)),
            other => name.push_str(&format!("%{other:02x}")),
        }
        if name.len() > NAME_BYTES_MAX {
            return Err(Error::Key { key: key.into(), max: NAME_BYTES_MAX });
        }
    }
    Ok(root.as_ref().join(name))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn different_keys_never_share_a_directory_and_none_escapes() {
        let keys = [
            "",
            ".",
            "..",
            "a/b",
            "a_b",
            "a%2fb",
            "A",
            "a",
            "/",
            "//",
            "../x",
            "\0",
            "ä",
            "journal",
            "meta.redb",
            "con",
            "a b",
            "a\\b",
        ];
        let mut seen = HashSet::new();
        for key in keys {
            let dir = keyed_dir("root", key).unwrap();
            assert_eq!(dir.parent(), Some(Path::new("root")), "{key:?}");
            let name = dir.file_name().unwrap().to_str().unwrap().to_string();
            assert!(name.starts_with(PREFIX));
            assert!(seen.insert(name.to_lowercase()), "{key:?} shares {name:?}");
        }
        assert!(keyed_dir("root", &"x".repeat(236)).is_ok());
        assert!(matches!(keyed_dir("root", &"x".repeat(237)), Err(Error::Key { .. })));
        assert!(keyed_dir("root", &"/".repeat(80)).is_err());
    }
}
