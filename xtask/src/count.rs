//! The reckoning: what passed, what failed, what was skipped and why. Reads the summaries of cargo's
//! test runner, counts each step of ours as one, and prints the last line.

/// What has been seen so far.
#[derive(Debug, Default)]
pub(crate) struct Count {
    passed: u64,
    failed: u64,
    failures: Vec<String>,
    skipped: Vec<String>,
}

impl Count {
    /// Counts one step of ours.
    pub(crate) fn step(&mut self, name: &str, passed: bool) {
        if passed {
            self.passed += 1;
        } else {
            self.fail(name);
        }
    }

    /// Counts one failure.
    pub(crate) fn fail(&mut self, name: &str) {
        self.failed += 1;
        self.failures.push(name.to_owned());
    }

    /// Remembers what was not run, and why; the same words once.
    pub(crate) fn skip(&mut self, what: &str) {
        if !self.skipped.iter().any(|known| known == what) {
            self.skipped.push(what.to_owned());
        }
    }

    /// How many have failed so far.
    pub(crate) fn failed(&self) -> u64 {
        self.failed
    }

    /// Takes in one line of a test run.
    pub(crate) fn test_line(&mut self, line: &str) {
        if let Some((_, summary)) = line.split_once("test result: ") {
            self.passed += number_before(summary, " passed");
            self.failed += number_before(summary, " failed");
        }
        // The heading of a failed test's output: it stands on a line of its own, whatever the test wrote.
        let failed = line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----"));
        self.failures.extend(failed.map(str::to_owned));
        if let Some(what) = line.strip_prefix("SKIPPED ") {
            self.skip(what);
        }
    }

    /// Prints what failed and was skipped, and as the last line how many; true when nothing failed.
    pub(crate) fn conclude(&self) -> bool {
        for what in &self.skipped {
            println!("skipped: {what}");
        }
        for name in &self.failures {
            println!("failed: {name}");
        }
        println!("{} passed, {} failed", self.passed, self.failed);
        self.failed == 0
    }
}

fn number_before(summary: &str, unit: &str) -> u64 {
    let before = summary.split(unit).next().unwrap_or_default();
    let digits = before.rsplit(' ').next().unwrap_or_default();
    digits.parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries_are_added() {
        let mut count = Count::default();
        let line = "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 3 filtered out";
        count.test_line(line);
        count.test_line("test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured");
        count.test_line("test a::b ... FAILED");
        count.test_line("---- a::b stdout ----");
        count.step("tidy", true);
        assert_eq!((count.passed, count.failed()), (15, 1));
        assert_eq!(count.failures, ["a::b"]);
        assert!(!count.conclude());
    }

    #[test]
    fn skipped_is_neither_passed_nor_failed() {
        let mut count = Count::default();
        count.test_line("SKIPPED a restart: not ours");
        count.test_line("SKIPPED a restart: not ours");
        assert_eq!((count.passed, count.failed()), (0, 0));
        assert_eq!(count.skipped, ["a restart: not ours"]);
        assert!(count.conclude());
    }
}
