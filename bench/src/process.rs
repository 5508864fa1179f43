//! A server as a process: started, told to stop or killed, and what it costs by `/proc`. Owns no
//! protocol.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::figures::Watch;

/// How long a server may take until it is ready.
const START_WAIT: Duration = Duration::from_secs(120);
/// How long a server may take to stop when asked to.
const STOP_WAIT: Duration = Duration::from_secs(60);
/// How often it is looked whether it is ready or has stopped: the precision of a start.
const LOOK: Duration = Duration::from_millis(1);
/// Lines of the log that are shown when a server does not start.
const LOG_LINES_SHOWN: usize = 20;
/// Where the user and system time stand in `/proc/PID/stat`, counted after the name.
const STAT_TIMES: [usize; 2] = [11, 12];

/// A running server; killed when dropped.
pub(crate) struct Process {
    child: Child,
    log: PathBuf,
    /// From the start to readiness.
    pub(crate) start: Duration,
}

impl Process {
    /// Starts `command`, whose output goes to `log`, and asks `ready` until it gives something.
    pub(crate) fn start<T>(
        command: &mut Command,
        log: &Path,
        mut ready: impl FnMut(&str) -> Option<T>,
    ) -> Result<(Process, T)> {
        let watch = Watch::default();
        let output = File::create(log)?;
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let child = command.spawn().with_context(|| format!("could not start {command:?}"))?;
        let mut process = Process { child, log: log.to_owned(), start: Duration::ZERO };
        while watch.elapsed() < START_WAIT && process.child.try_wait()?.is_none() {
            if let Some(found) = ready(&fs::read_to_string(log)?) {
                process.start = watch.elapsed();
                return Ok((process, found));
            }
            thread::sleep(LOOK);
        }
        bail!("{command:?} did not become ready:\n{}", process.log_tail())
    }

    /// Asks it to stop and waits until it has.
    pub(crate) fn stop(mut self) -> Result<()> {
        kill_process(self.pid()?, Signal::TERM)?;
        let watch = Watch::default();
        while watch.elapsed() < STOP_WAIT {
            if let Some(status) = self.child.try_wait()? {
                // A JVM that obeys says 143.
                if status.success() || status.code() == Some(143) {
                    return Ok(());
                }
                bail!("the server ended with {status}:\n{}", self.log_tail());
            }
            thread::sleep(LOOK);
        }
        bail!("the server does not stop:\n{}", self.log_tail())
    }

    /// Ends it as a crash would.
    pub(crate) fn kill(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Memory it holds now, bytes.
    pub(crate) fn resident_bytes(&self) -> Result<f64> {
        self.status_bytes("VmRSS:")
    }

    /// Most memory it ever held, bytes.
    pub(crate) fn resident_peak_bytes(&self) -> Result<f64> {
        self.status_bytes("VmHWM:")
    }

    fn status_bytes(&self, field: &str) -> Result<f64> {
        let status = self.proc_file("status")?;
        let line = status.lines().find_map(|line| line.strip_prefix(field));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
        Ok(kib.with_context(|| format!("no {field} in the status"))? * 1024.0)
    }

    /// CPU time it has used, seconds.
    pub(crate) fn cpu_seconds(&self) -> Result<f64> {
        let stat = self.proc_file("stat")?;
        // The name stands in parentheses and may hold anything.
        let after = stat.rsplit(')').next().unwrap_or_default();
        let fields: Vec<&str> = after.split_whitespace().collect();
        let mut ticks = 0.0;
        for at in STAT_TIMES {
            let field = fields.get(at).and_then(|field| field.parse::<f64>().ok());
            ticks += field.context("no times in the stat")?;
        }
        Ok(ticks / rustix::param::clock_ticks_per_second() as f64)
    }

    fn proc_file(&self, name: &str) -> Result<String> {
        Ok(fs::read_to_string(format!("/proc/{}/{name}", self.child.id()))?)
    }

    fn pid(&self) -> Result<Pid> {
        let id = i32::try_from(self.child.id())?;
        Pid::from_raw(id).context("a process has an id")
    }

    fn log_tail(&self) -> String {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..].join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Already ended is as good as killed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
