//! Rust source without its comments and literals: enough of a lexer that braces and words can be
//! counted. It does not parse.

/// The text with every comment and the inside of every string and character blanked out. Line ends
/// stay, so that line numbers hold.
pub(crate) fn blank(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let end = match (chars[at], chars.get(at + 1)) {
            ('/', Some('/')) => line_end(&chars, at),
            ('/', Some('*')) => block_comment_end(&chars, at),
            ('"', _) => string_end(&chars, at),
            ('r', Some('"' | '#')) if !in_word(&chars, at) => raw_string_end(&chars, at),
            ('b', Some('r')) if !in_word(&chars, at) => raw_string_end(&chars, at + 1),
            ('\'', _) => character_end(&chars, at),
            _ => None,
        };
        match end {
            Some(end) => {
                let end = end.min(chars.len());
                let blanked = |one: &char| if *one == '\n' { '\n' } else { ' ' };
                out.extend(chars[at..end].iter().map(blanked));
                at = end;
            }
            None => {
                out.push(chars[at]);
                at += 1;
            }
        }
    }
    out
}

fn in_word(chars: &[char], at: usize) -> bool {
    at > 0 && (chars[at - 1].is_alphanumeric() || chars[at - 1] == '_')
}

fn line_end(chars: &[char], at: usize) -> Option<usize> {
    let length = chars[at..].iter().position(|one| *one == '\n');
    Some(length.map_or(chars.len(), |length| at + length))
}

/// Block comments nest.
fn block_comment_end(chars: &[char], at: usize) -> Option<usize> {
    let mut depth = 0_u32;
    let mut position = at;
    while position < chars.len() {
        match (chars[position], chars.get(position + 1)) {
            ('/', Some('*')) => {
                depth += 1;
                position += 2;
            }
            ('*', Some('/')) => {
                depth -= 1;
                position += 2;
                if depth == 0 {
                    return Some(position);
                }
            }
            _ => position += 1,
        }
    }
    Some(chars.len())
}

fn string_end(chars: &[char], at: usize) -> Option<usize> {
    let mut position = at + 1;
    while position < chars.len() {
        match chars[position] {
            '\\' => position += 2,
            '"' => return Some(position + 1),
            _ => position += 1,
        }
    }
    Some(chars.len())
}

/// `at` is the `r`; a raw identifier such as `r#type` is no string.
fn raw_string_end(chars: &[char], at: usize) -> Option<usize> {
    let hashes = chars[at + 1..].iter().take_while(|one| **one == '#').count();
    let open = at + 1 + hashes;
    if chars.get(open) != Some(&'"') {
        return None;
    }
    let close = |position: usize| {
        chars[position] == '"'
            && chars[position + 1..].iter().take(hashes).filter(|one| **one == '#').count()
                == hashes
    };
    let end = (open + 1..chars.len()).find(|position| close(*position));
    Some(end.map_or(chars.len(), |end| end + 1 + hashes))
}

/// A lifetime is no character.
fn character_end(chars: &[char], at: usize) -> Option<usize> {
    match chars.get(at + 1)? {
        '\\' => {
            let end = chars.get(at + 3..)?.iter().position(|one| *one == '\'')?;
            Some(at + 3 + end + 1)
        }
        _ => (chars.get(at + 2) == Some(&'\'')).then_some(at + 3),
    }
}

/// A function: its name, the line of its `fn` counted from 1, and its lines of code.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) line: usize,
    pub(crate) code_lines: usize,
}

/// The functions with bodies in a blanked text, inner ones too.
pub(crate) fn functions(blanked: &str) -> Vec<Function> {
    let mut found = Vec::new();
    for (start, name) in declarations(blanked, "fn") {
        let Some(open) = body_start(&blanked[start..]) else { continue };
        let body = &blanked[start..start + open];
        let whole = start + open + body_length(&blanked[start + open..]);
        let line = blanked[..start].matches('\n').count() + 1;
        debug_assert!(body.len() <= whole);
        let lines = blanked[start..whole].lines().filter(|line| !line.trim().is_empty());
        found.push(Function { name, line, code_lines: lines.count() });
    }
    found
}

/// Where an item is declared with a keyword, and its name.
pub(crate) fn declarations(blanked: &str, keyword: &str) -> Vec<(usize, String)> {
    let is_word = |one: char| one.is_alphanumeric() || one == '_';
    let mut found = Vec::new();
    for (at, _) in blanked.match_indices(keyword) {
        let starts = !blanked[..at].ends_with(is_word);
        let after = &blanked[at + keyword.len()..];
        if starts && after.starts_with([' ', '\n']) {
            let name: String = after.trim_start().chars().take_while(|one| is_word(*one)).collect();
            if !name.is_empty() {
                found.push((at, name));
            }
        }
    }
    found
}

/// The first brace that opens a body, unless the declaration ends before it.
fn body_start(blanked: &str) -> Option<usize> {
    let mut depth = 0_i32;
    for (at, one) in blanked.char_indices() {
        match one {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            '{' if depth == 0 => return Some(at),
            ';' if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

/// Bytes from an opening brace past its closing one.
fn body_length(blanked: &str) -> usize {
    let mut depth = 0_i32;
    for (at, one) in blanked.char_indices() {
        match one {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + one.len_utf8();
        }
    }
    blanked.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_and_comments_go() {
        let text = "a \"{\\\"}\" b // {\nc /* { /* } */ \n */ d r#\"{\"}\"# e '{' f '\\'' g 'x";
        let blanked = blank(text);
        let words: Vec<&str> = blanked.split_whitespace().collect();
        assert_eq!(words, ["a", "b", "c", "d", "e", "f", "g", "'x"]);
        assert_eq!(blanked.matches('\n').count(), text.matches('\n').count());
    }

    #[test]
    fn raw_names_and_byte_strings() {
        let words = blank("r#type br\"{\" b'{' for r in bar");
        let words: Vec<&str> = words.split_whitespace().collect();
        assert_eq!(words, ["r#type", "b", "for", "r", "in", "bar"]);
    }

    #[test]
    fn functions_are_measured() {
        let text = "fn one() {}\ntrait T { fn none(&self); }\n\nfn two<'a>(\n    x: [u8; 2],\n) -> u8 {\n\n    // why\n    if x { 1 } else { 2 }\n}\n";
        let found = functions(&blank(text));
        let expected = [
            Function { name: "one".to_owned(), line: 1, code_lines: 1 },
            Function { name: "two".to_owned(), line: 4, code_lines: 5 },
        ];
        assert_eq!(found, expected);
    }
}
