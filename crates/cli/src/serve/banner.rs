//! What `thetis serve` says on stderr when it is up: how durable, by which I/O path, where, and
//! what to paste next. Pure text.

use thetis_types::Durability;

use super::node::Facts;
use crate::config::settings::Settings;

/// The banner, every line ended.
pub(super) fn text(settings: &Settings, facts: &Facts) -> String {
    let survives = match settings.durability {
        Durability::Disk => "an acknowledged record survives loss of power".to_owned(),
        Durability::Os => format!(
            "an acknowledged record survives the process; flushed every {} ms",
            settings.journal_os_flush_interval.as_millis()
        ),
        Durability::Memory => "an acknowledged record is lost when the process ends".to_owned(),
    };
    let at = &facts.advertised;
    format!(
        "\
thetis {version}
  data        {data}
  durability  {durability}: {survives}
  i/o         {io}
  kafka       {kafka}, clients come back to {at}
{text}
Next:
  echo hello | kcat -P -b {at} -t greetings
  kcat -C -b {at} -t greetings -o beginning -e
  python3 -c \"from confluent_kafka import Producer as P; \\
    p = P({{'bootstrap.servers': '{at}'}}); p.produce('greetings', 'hi'); p.flush()\"

",
        version = env!("CARGO_PKG_VERSION"),
        data = settings.data_dir.display(),
        durability = settings.durability,
        io = facts.io_path,
        kafka = facts.kafka,
        text = facts.text.map_or_else(String::new, |at| {
            format!("  text        {at}, such as thetis repl --addr {at}\n")
        }),
    )
}
