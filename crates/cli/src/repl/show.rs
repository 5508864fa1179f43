//! Replies for people and for programs. Pure.

use bytes::Bytes;
use serde_json::{Value, json};
use thetis_text::reply::records;

/// A reply as it is printed, every line ended.
pub(super) fn reply(request: &[u8], body: &Bytes, is_json: bool) -> String {
    let has_records = request.starts_with(b"READ ") || request.starts_with(b"FOLLOW ");
    let found = if has_records { records(body) } else { None };
    let offsets = found.iter().flat_map(|found| (found.first.0..).zip(&found.values));
    if is_json {
        let object = match &found {
            Some(found) => {
                let records: Vec<Value> = offsets.map(|(at, value)| record(at, value)).collect();
                json!({ "status": "OK", "next": found.first.0 + records.len() as u64, "records": records })
            }
            None => plain(body),
        };
        return format!("{object}\n");
    }
    match &found {
        Some(_) => offsets.map(|(at, value)| format!("{at:>8}  {}\n", text(value))).collect(),
        None => match json_of(body) {
            Some(value) => format!("{value:#}\n"),
            None => format!("{}\n", text(body)),
        },
    }
}

/// A reply that is JSON, as STATE and METRICS answer.
fn json_of(body: &Bytes) -> Option<Value> {
    if body.starts_with(b"{") { serde_json::from_slice(body).ok() } else { None }
}

/// Status and rest; a reply that is JSON already stays what it is.
fn plain(body: &Bytes) -> Value {
    if let Some(value) = json_of(body) {
        return json!({ "status": "OK", "value": value });
    }
    let end = body.iter().position(|byte| *byte == b' ' || *byte == b'\n').unwrap_or(body.len());
    let status = String::from_utf8_lossy(&body[..end]);
    let rest = body.slice((end + 1).min(body.len())..);
    let mut object = json!({ "status": status });
    if !rest.is_empty() {
        let (name, value) = bytes(&rest);
        object[name] = value;
    }
    object
}

fn record(offset: u64, value: &Bytes) -> Value {
    let (name, value) = bytes(value);
    let mut object = json!({ "offset": offset });
    object[name] = value;
    object
}

/// Text as text, other bytes as hexadecimal digits under another name.
fn bytes(value: &Bytes) -> (&'static str, Value) {
    match std::str::from_utf8(value) {
        Ok(text) => ("value", json!(text)),
        Err(_) => {
            let digits: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
            ("value_hex", json!(digits))
        }
    }
}

/// Text for a terminal: what would steer it is escaped, but for line breaks and tabs.
fn text(value: &[u8]) -> String {
    let text = String::from_utf8_lossy(value);
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() && !matches!(character, '\n' | '\t') {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(request: &str, body: &'static [u8], is_json: bool) -> String {
        reply(request.as_bytes(), &Bytes::from_static(body), is_json)
    }

    #[test]
    fn replies_are_shown_for_people_and_for_programs() {
        assert_eq!(shown("GET t", b"OK a\x1b[2J", false), "OK a\\u{1b}[2J\n");
        assert_eq!(shown("READ t 4", b"OK 4 6 1 2\nabc", false), "       4  a\n       5  bc\n");
        assert_eq!(
            shown("READ t 4", b"OK 4 5 1\n\xff", true),
            "{\"next\":5,\"records\":[{\"offset\":4,\"value_hex\":\"ff\"}],\"status\":\"OK\"}\n"
        );
        assert_eq!(shown("STATE t", b"{\"end\":3}", false), "{\n  \"end\": 3\n}\n");
        assert_eq!(shown("GET t", b"EMPTY", true), "{\"status\":\"EMPTY\"}\n");
        assert_eq!(shown("GET t", b"OK a b", true), "{\"status\":\"OK\",\"value\":\"a b\"}\n");
        assert_eq!(
            shown("STATE t", b"{\"end\":3}", true),
            "{\"status\":\"OK\",\"value\":{\"end\":3}}\n"
        );
    }
}
