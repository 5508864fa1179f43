//! Programs that xtask calls: started, shown, and their failures explained. What they are for is the
//! callers' business.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

/// Runs a program with its output on ours; an error if it fails.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let shown = show(command);
    eprintln!("+ {shown}");
    let status = command.stdin(Stdio::null()).status();
    let status = status.with_context(|| format!("could not start `{shown}`"))?;
    if !status.success() {
        bail!("`{shown}` ended with {status}");
    }
    Ok(())
}

/// Runs a program and gives its standard output; an error with its complaints if it fails.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let shown = show(command);
    let output = command.stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("could not start `{shown}`"))?;
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        bail!("`{shown}` ended with {}\n{complaint}", output.status);
    }
    String::from_utf8(output.stdout).with_context(|| format!("`{shown}` did not print UTF-8"))
}

/// Runs a program, hands every line of its standard output and error to `see`, and tells whether it
/// succeeded.
pub(crate) fn watch(command: &mut Command, mut see: impl FnMut(&str)) -> Result<bool> {
    let shown = show(command);
    eprintln!("+ {shown}");
    let (reader, writer) = std::io::pipe()?;
    command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
    let mut child = command.spawn().with_context(|| format!("could not start `{shown}`"))?;
    // The end is seen only when nobody holds the other side of the pipe any more; the command does.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut reader = BufReader::new(reader);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line)? > 0 {
        see(String::from_utf8_lossy(&line).trim_end());
        line.clear();
    }
    Ok(child.wait()?.success())
}

/// Whether a program can be started at all.
pub(crate) fn exists(program: &str) -> bool {
    let probe = Command::new("sh").args(["-c", "command -v \"$0\"", program]).output();
    probe.is_ok_and(|probe| probe.status.success())
}

fn show(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<String> = words.map(|word| word.to_string_lossy().into_owned()).collect();
    words.join(" ")
}
