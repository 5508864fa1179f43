//! `thetis topic`: create, list, describe, delete. Owns arguments and printing; the talking is the
//! client's.

use std::collections::BTreeMap;
use std::path::Path;

use clap::{Args, Subcommand};
use serde::Serialize;
use thetis_kafka::wire::{EARLIEST_TIMESTAMP, LATEST_TIMESTAMP};
use thetis_types::limits::TOPIC_NAME_BYTES_MAX;

use crate::client::NewTopic;
use crate::exit::{Exit, Failure};
use crate::output::{self, Table};
use crate::server::ServerArgs;

/// Subcommands of `thetis topic`.
#[derive(Subcommand, Debug)]
pub(crate) enum TopicCommand {
    /// Create a topic.
    Create(CreateArgs),
    /// List the topics and how many partitions each has.
    List(ListArgs),
    /// Show the partitions of a topic, their offsets and the topic's own settings.
    Describe(DescribeArgs),
    /// Delete a topic and every record in it.
    Delete(DeleteArgs),
}

/// Arguments of `thetis topic create`.
#[derive(Args, Debug)]
pub(crate) struct CreateArgs {
    /// Name: letters, digits, dot, underscore and dash; at most 249 of them.
    #[arg(value_parser = topic_name)]
    name: String,
    /// Number of partitions [default: the server's topic.partitions].
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(i32).range(1..))]
    partitions: Option<i32>,
    /// A setting of the topic by its Kafka name, such as retention.ms=3600000; repeatable.
    #[arg(long, value_name = "NAME=VALUE", value_parser = name_and_value)]
    set: Vec<(String, String)>,
    /// Print one line of JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

/// Arguments of `thetis topic list`.
#[derive(Args, Debug)]
pub(crate) struct ListArgs {
    /// Also list the topics in which the cluster keeps its own state.
    #[arg(long)]
    internal: bool,
    /// Print one line of JSON for each topic.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

/// Arguments of `thetis topic describe`.
#[derive(Args, Debug)]
pub(crate) struct DescribeArgs {
    /// Name of the topic.
    name: String,
    /// Print one line of JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

/// Arguments of `thetis topic delete`.
#[derive(Args, Debug)]
pub(crate) struct DeleteArgs {
    /// Name of the topic.
    name: String,
    /// Print one line of JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

/// What `create` and `delete` print under `--json`. Fields are only added.
#[derive(Serialize)]
struct Changed<'a> {
    topic: &'a str,
    change: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    partitions: Option<i32>,
}

/// A line of `list --json`. Fields are only added.
#[derive(Serialize)]
struct Listed<'a> {
    topic: &'a str,
    partitions: usize,
    internal: bool,
}

/// What `describe --json` prints. Fields are only added.
#[derive(Serialize)]
struct Described<'a> {
    topic: &'a str,
    internal: bool,
    partitions: Vec<DescribedPartition<'a>>,
    settings: BTreeMap<String, String>,
}

#[derive(Serialize)]
struct DescribedPartition<'a> {
    partition: i32,
    leader: i32,
    replicas: &'a [i32],
    /// First offset there.
    start: i64,
    /// First offset not there yet.
    end: i64,
}

/// Runs one of the subcommands.
pub(crate) fn run(config: Option<&Path>, command: &TopicCommand) -> Result<Exit, Failure> {
    match command {
        TopicCommand::Create(args) => create(config, args),
        TopicCommand::List(args) => list(config, args),
        TopicCommand::Describe(args) => describe(config, args),
        TopicCommand::Delete(args) => delete(config, args),
    }
}

fn create(config: Option<&Path>, args: &CreateArgs) -> Result<Exit, Failure> {
    let mut client = args.server.connect(config)?;
    let partitions = client.create_topic(&NewTopic {
        name: args.name.clone(),
        partitions: args.partitions,
        configs: args.set.clone(),
    })?;
    let partitions = Some(partitions).filter(|count| *count > 0).or(args.partitions);
    if args.json {
        output::json([Changed { topic: &args.name, change: "created", partitions }])?;
    } else {
        let with = match partitions {
            Some(1) => " with 1 partition".to_owned(),
            Some(count) => format!(" with {count} partitions"),
            None => String::new(),
        };
        output::text(&format!("created {}{with}\n", args.name))?;
    }
    Ok(Exit::Done)
}

fn list(config: Option<&Path>, args: &ListArgs) -> Result<Exit, Failure> {
    let topics = args.server.connect(config)?.topics()?;
    let shown = topics.iter().filter(|topic| args.internal || !topic.internal);
    let rows: Vec<Listed<'_>> = shown
        .map(|topic| Listed {
            topic: &topic.name,
            partitions: topic.partitions.len(),
            internal: topic.internal,
        })
        .collect();
    if args.json {
        output::json(rows)?;
    } else if rows.is_empty() {
        eprintln!("there are no topics; create one with `thetis topic create NAME`");
    } else {
        let mut table = Table::new(&["TOPIC", "PARTITIONS"]);
        for row in rows {
            table.row([row.topic.to_owned(), row.partitions.to_string()]);
        }
        output::text(&table.text())?;
    }
    Ok(Exit::Done)
}

fn describe(config: Option<&Path>, args: &DescribeArgs) -> Result<Exit, Failure> {
    let mut client = args.server.connect(config)?;
    let topic = client.topic(&args.name, false)?;
    let all: Vec<i32> = topic.partitions.iter().map(|partition| partition.index).collect();
    let starts = client.offsets_at(&topic, &all, EARLIEST_TIMESTAMP)?;
    let ends = client.offsets_at(&topic, &all, LATEST_TIMESTAMP)?;
    let described = Described {
        topic: &topic.name,
        internal: topic.internal,
        partitions: topic
            .partitions
            .iter()
            .map(|partition| DescribedPartition {
                partition: partition.index,
                leader: partition.leader,
                replicas: &partition.replicas,
                start: starts.get(&partition.index).copied().unwrap_or(-1),
                end: ends.get(&partition.index).copied().unwrap_or(-1),
            })
            .collect(),
        settings: client.topic_configs(&args.name)?,
    };
    if args.json {
        output::json([described])?;
        return Ok(Exit::Done);
    }
    let mut table = Table::new(&["PARTITION", "LEADER", "START", "END", "RECORDS"]);
    for row in &described.partitions {
        let records = row.end.saturating_sub(row.start);
        let cells = [i64::from(row.partition), i64::from(row.leader), row.start, row.end, records];
        table.row(cells.map(|cell| cell.to_string()));
    }
    let mut text = table.text();
    if !described.settings.is_empty() {
        let mut table = Table::new(&["SETTING", "VALUE"]);
        for (name, value) in described.settings {
            table.row([name, value]);
        }
        text.push('\n');
        text.push_str(&table.text());
    }
    output::text(&text)?;
    Ok(Exit::Done)
}

fn delete(config: Option<&Path>, args: &DeleteArgs) -> Result<Exit, Failure> {
    args.server.connect(config)?.delete_topic(&args.name)?;
    if args.json {
        output::json([Changed { topic: &args.name, change: "deleted", partitions: None }])?;
    } else {
        output::text(&format!("deleted {}\n", args.name))?;
    }
    Ok(Exit::Done)
}

/// Refuses a name before the server does, with the rule it breaks.
fn topic_name(name: &str) -> Result<String, String> {
    let strange = |c: char| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'));
    if name.is_empty() || name == "." || name == ".." {
        return Err("a topic needs a name other than . and ..".to_owned());
    }
    if let Some(c) = name.chars().find(|c| strange(*c)) {
        return Err(format!("{c:?} is not allowed; use letters, digits, dot, underscore and dash"));
    }
    if name.len() > TOPIC_NAME_BYTES_MAX {
        return Err(format!("{} letters; at most {TOPIC_NAME_BYTES_MAX} are allowed", name.len()));
    }
    Ok(name.to_owned())
}

fn name_and_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write NAME=VALUE, such as retention.ms=3600000".to_owned()),
    }
}
