//! The one codec of keys. Owns how typed components become bytes that sort like the components;
//! does not own which keys exist: each crate above builds its own.
//!
//! A key is a path of components. Each is a tag and a body, and no encoding of a component is the
//! beginning of another's, so:
//!
//! - two keys are equal exactly when their components are, whatever a user called a topic;
//! - byte order is the order of components: by tag first, then numbers by value, names by bytes;
//! - the keys "under" a key are exactly those that begin with its components.

use std::fmt;
use std::ops::Bound;

/// Tags are on disk: explicit, never reused, zero reserved. All below 0xff, so that one byte of
/// 0xff after a key sorts over everything under it.
const TAG_WORD: u8 = 1;
const TAG_NUMBER: u8 = 2;
const TAG_TEXT: u8 = 3;
const TAG_BYTES: u8 = 4;

/// What stands for a zero inside a body of variable length, and what ends the body.
///
/// SUBTLE: the end needs its own second byte. With a bare zero as the end, the text `a` would be
/// the beginning of the text `a\0b`, and a topic could be found under another one.
const ZERO: u8 = 0;
const AFTER_ZERO_INSIDE: u8 = 0xff;
const AFTER_ZERO_AT_END: u8 = 1;

/// One component of a key.
#[derive(Clone, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum Component {
    /// A word of the program, such as the kind of record. Never equal to a user's text.
    Word(String),
    /// A number; sorts by value.
    Number(u64),
    /// A name chosen by a user.
    Text(String),
    /// Bytes chosen by anybody.
    Bytes(Vec<u8>),
}

/// A key: typed components in their encoded form. Compares in the order of the store.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Key(Vec<u8>);

/// Bytes that are not a key.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("no valid metadata key component at byte {at}")]
pub struct KeyError {
    /// Where the component begins that could not be read.
    pub at: usize,
}

impl Key {
    /// The key without components; every key is under it. It holds no value itself.
    #[must_use]
    pub const fn root() -> Key {
        Key(Vec::new())
    }

    /// A key beginning with a word of the program.
    #[must_use]
    pub fn of(word: &'static str) -> Key {
        Key::root().word(word)
    }

    /// This key with a word of the program added.
    #[must_use]
    pub fn word(self, word: &'static str) -> Key {
        self.delimited(TAG_WORD, word.as_bytes())
    }

    /// This key with a number added.
    #[must_use]
    pub fn number(mut self, number: u64) -> Key {
        self.0.push(TAG_NUMBER);
        self.0.extend_from_slice(&number.to_be_bytes());
        self
    }

    /// This key with a user's name added.
    #[must_use]
    pub fn text(self, text: &str) -> Key {
        self.delimited(TAG_TEXT, text.as_bytes())
    }

    /// This key with bytes added.
    #[must_use]
    pub fn bytes(self, bytes: &[u8]) -> Key {
        self.delimited(TAG_BYTES, bytes)
    }

    fn delimited(mut self, tag: u8, body: &[u8]) -> Key {
        self.0.push(tag);
        for &byte in body {
            self.0.push(byte);
            if byte == ZERO {
                self.0.push(AFTER_ZERO_INSIDE);
            }
        }
        self.0.extend_from_slice(&[ZERO, AFTER_ZERO_AT_END]);
        self
    }

    /// The encoded form.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether this key begins with the components of `prefix`. Every key is under itself.
    #[must_use]
    pub fn is_under(&self, prefix: &Key) -> bool {
        self.0.starts_with(&prefix.0)
    }

    /// Reads an encoded key.
    ///
    /// # Errors
    /// When the bytes are not exactly a sequence of components in their one encoding.
    pub fn decode(bytes: &[u8]) -> Result<Key, KeyError> {
        let mut rest = bytes;
        while !rest.is_empty() {
            rest = split_component(rest).ok_or(KeyError { at: bytes.len() - rest.len() })?.1;
        }
        Ok(Key(bytes.to_vec()))
    }

    /// The components.
    #[must_use]
    pub fn components(&self) -> Vec<Component> {
        let mut found = Vec::new();
        let mut rest = self.0.as_slice();
        while !rest.is_empty() {
            let (component, after) =
                split_component(rest).expect("a key is made of whole components");
            found.push(component);
            rest = after;
        }
        found
    }

    /// The least sequence of bytes that is over every key under this one. Tags are below 0xff, so
    /// one such byte does it.
    pub(crate) fn end_of_children(&self) -> Vec<u8> {
        let mut end = self.0.clone();
        end.push(0xff);
        end
    }
}

/// The first component of `bytes` and what follows it.
fn split_component(bytes: &[u8]) -> Option<(Component, &[u8])> {
    let (&tag, body) = bytes.split_first()?;
    if tag == TAG_NUMBER {
        let (number, rest) = body.split_first_chunk::<8>()?;
        return Some((Component::Number(u64::from_be_bytes(*number)), rest));
    }
    let (text, rest) = split_delimited(body)?;
    let component = match tag {
        TAG_WORD => Component::Word(String::from_utf8(text).ok()?),
        TAG_TEXT => Component::Text(String::from_utf8(text).ok()?),
        TAG_BYTES => Component::Bytes(text),
        _ => return None,
    };
    Some((component, rest))
}

fn split_delimited(body: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut text = Vec::new();
    let mut rest = body;
    loop {
        let zero = rest.iter().position(|&byte| byte == ZERO)?;
        text.extend_from_slice(&rest[..zero]);
        let (&follower, after) = rest[zero + 1..].split_first()?;
        rest = after;
        match follower {
            AFTER_ZERO_INSIDE => text.push(ZERO),
            AFTER_ZERO_AT_END => return Some((text, rest)),
            _ => return None,
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("/");
        }
        for component in self.components() {
            match component {
                Component::Word(word) => write!(f, "/{word}")?,
                Component::Number(number) => write!(f, "/{number}")?,
                Component::Text(text) => write!(f, "/{text:?}")?,
                Component::Bytes(bytes) => write!(f, "/x\"{}\"", bytes.escape_ascii())?,
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Keys under a prefix, from some key on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyRange {
    prefix: Key,
    from: Bound<Key>,
}

impl KeyRange {
    /// All keys under `prefix`, itself included.
    #[must_use]
    pub fn under(prefix: Key) -> KeyRange {
        KeyRange { prefix, from: Bound::Unbounded }
    }

    /// The part of this range that begins at `key`.
    #[must_use]
    pub fn starting_at(self, key: Key) -> KeyRange {
        KeyRange { from: Bound::Included(key), ..self }
    }

    /// The part of this range that comes after `key`.
    #[must_use]
    pub fn after(self, key: Key) -> KeyRange {
        KeyRange { from: Bound::Excluded(key), ..self }
    }

    /// The prefix all keys of the range begin with.
    #[must_use]
    pub fn prefix(&self) -> &Key {
        &self.prefix
    }

    /// Encoded bounds. Never inverted: a start outside the prefix gives what remains inside.
    pub(crate) fn bounds(&self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        let end = self.prefix.end_of_children();
        let start = match &self.from {
            Bound::Included(key) if *key >= self.prefix => Bound::Included(key.0.clone()),
            Bound::Excluded(key) if *key >= self.prefix => Bound::Excluded(key.0.clone()),
            _ => Bound::Included(self.prefix.0.clone()),
        };
        match start {
            Bound::Included(key) | Bound::Excluded(key) if key >= end => {
                (Bound::Included(end.clone()), Bound::Excluded(end))
            }
            start => (start, Bound::Excluded(end)),
        }
    }
}

#[cfg(test)]
#[path = "key_test.rs"]
mod tests;
