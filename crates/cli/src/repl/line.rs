//! What a typed line asks for. Pure. Lines are requests as they are, but for two comforts: commands
//! may be in lower case, and the records of APPEND are counted here.

use thetis_text::command::COMMANDS;

/// A line as understood.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Typed {
    /// Blank, or a comment.
    Nothing,
    /// `quit`, `exit` or `q`.
    Quit,
    /// `help`.
    Help,
    /// The body of a request.
    Request(Vec<u8>),
}

/// Reads a line.
pub(super) fn read(line: &str) -> Typed {
    let line = line.trim_start();
    let (word, rest) = line.split_once(' ').unwrap_or((line.trim_end(), ""));
    match word {
        "" => return Typed::Nothing,
        _ if word.starts_with('#') => return Typed::Nothing,
        "quit" | "exit" | "q" => return Typed::Quit,
        "help" | "?" => return Typed::Help,
        _ => {}
    }
    let upper = word.to_ascii_uppercase();
    let known = COMMANDS.iter().any(|spec| spec.word == upper);
    let word = if known { upper } else { word.to_owned() };
    if word == "APPEND" {
        return Typed::Request(append(rest));
    }
    Typed::Request(format!("{word} {rest}").trim_end().as_bytes().to_vec())
}

/// Topic and options as typed, then the length of the text, then the text.
fn append(rest: &str) -> Vec<u8> {
    const OPTIONS: [&str; 3] = ["expect=", "session=", "attempt="];
    let (topic, mut text) = rest.split_once(' ').unwrap_or((rest, ""));
    let mut header = format!("APPEND {topic}");
    while let Some((option, after)) = text.split_once(' ')
        && OPTIONS.iter().any(|name| option.starts_with(name))
    {
        header.push(' ');
        header.push_str(option);
        text = after;
    }
    format!("{header} {}\n{text}", text.len()).into_bytes()
}

/// The table of commands.
pub(super) fn help() -> String {
    let mut text = String::new();
    for spec in COMMANDS {
        let arguments = match spec.word {
            "APPEND" => "<topic> [expect=<offset>] [session=<session>] [attempt=<attempt>] <text>",
            _ => spec.arguments,
        };
        text.push_str(&format!("{} {arguments}\n    {}\n", spec.word, spec.about));
    }
    text.push_str("A <place> is an offset, start or end.\nFOLLOW prints until the topic is gone or Ctrl-C.\nhelp, quit\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(line: &str) -> String {
        match read(line) {
            Typed::Request(body) => String::from_utf8(body).unwrap(),
            other => panic!("{line:?} is {other:?}"),
        }
    }

    #[test]
    fn lines_are_requests_with_two_comforts() {
        assert_eq!(request("put t  a b "), "PUT t  a b");
        assert_eq!(request("nonsense x"), "nonsense x");
        assert_eq!(request("append t a = b"), "APPEND t 5\na = b");
        assert_eq!(request("append t expect=3 é "), "APPEND t expect=3 3\né ");
        assert_eq!(request("TOPICS"), "TOPICS");
        assert_eq!(read("  "), Typed::Nothing);
        assert_eq!(read("# note"), Typed::Nothing);
        assert_eq!(read("quit"), Typed::Quit);
    }
}
