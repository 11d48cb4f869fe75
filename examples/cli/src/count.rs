//! `count`: a counter that processes share, and unique numbers.

use std::time::Duration;

use clap::Args;
use clap::builder::BoolishValueParser;
use curator_framework::{CuratorFramework, RetryForever};
use curator_recipes::{AtomicNumber, Compared, CounterError, DistributedAtomicNumber, UniqueIds};
use serde::Serialize;

use crate::failure::Failure;
use crate::output::{check_standard_output, print, print_change};
use crate::show::line;
use crate::site::Site;
use crate::values::{Access, at_least_one};

/// The options of `curator count`.
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub(crate) struct Count {
    /// Add this number, which may be negative, and print the new value
    #[arg(long, value_name = "N", allow_negative_numbers = true, group = "change")]
    add: Option<i64>,
    /// Set the counter to this number, whatever its value, and print it
    #[arg(long, value_name = "N", allow_negative_numbers = true, group = "change")]
    set: Option<i64>,
    /// With --set: overwrite data that is not a number of this size
    #[arg(long, requires = "set")]
    force: bool,
    /// Set the counter to NEW if its value is OLD, and print NEW; otherwise end with the status of -E
    #[arg(long, num_args = 2, value_names = ["OLD", "NEW"], allow_negative_numbers = true, group = "change")]
    cas: Option<Vec<i64>>,
    /// Print COUNT numbers that no other process gets, one a line; they rise, with gaps
    #[arg(long, value_name = "COUNT", num_args = 0..=1, require_equals = true, default_missing_value = "1")]
    #[arg(value_parser = at_least_one, conflicts_with = "change")]
    pub(crate) id: Option<usize>,
    /// The counter has 4 bytes, as `DistributedAtomicInteger` and `SharedCount` [default: 8 bytes]
    #[arg(long, value_parser = BoolishValueParser::new(), env = "CURATOR_INTEGER")]
    pub(crate) integer: bool,
    /// The exit status if the value is not OLD
    #[arg(long, short = 'E', default_value_t = 75, value_name = "STATUS", env = "CURATOR_CONFLICT_EXIT_CODE")]
    conflict_exit_code: u8,
    /// Print JSON, in one line
    #[arg(long, value_parser = BoolishValueParser::new(), env = "CURATOR_JSON")]
    json: bool,
    #[command(flatten)]
    pub(crate) access: Access,
    /// The counter's path, or that of the unique numbers
    path: String,
}

const NOTES: &str = "\
Exit status:
    0  the value was read or changed, and is printed
    1  no such counter; only --add and --set create it
    2  wrong options, a number that needs more than 4 bytes, or the node's data is not a number of this size
   75  --cas: the value is not OLD (see -E)
   76  the connection was lost, and the value may have been changed: read it before you repeat the command;
       or it was changed, and could not be printed
    69, 70, 77  an error, as in `curator --help`; 70 also if a sum does not fit into the number

The value is that of Curator's DistributedAtomicLong, in Java too. A change counts once, also if the reply to it is lost.
A change that does not fit into the number is an error.";

/// The longest pause between tries while other clients change the counter.
const PAUSE: Duration = Duration::from_millis(10);
/// The exit status if no counter exists.
const NO_COUNTER: u8 = 1;

/// The JSON of `count`.
#[derive(Serialize)]
struct Shot<'a> {
    path: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<i64>,
    value: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
}

/// The JSON of `count --id`.
#[derive(Serialize)]
struct Ids<'a> {
    path: &'a str,
    ids: &'a [u64],
}

/// The number of unique numbers that are printed at once.
const IDS_AT_ONCE: usize = 1000;

/// The outcome of a read or a change.
enum Counted {
    Value { before: Option<i64>, value: i64 },
    Differs { expected: i64, value: i64 },
    Missing,
}

/// Reads or changes the counter, prints it, and returns the exit status.
pub(crate) async fn count(site: &Site, count: &Count) -> Result<u8, Failure> {
    let client = &site.client;
    if count.id.is_some() {
        check_standard_output()?;
    }
    site.first_session(None).await?;
    site.check(None, &count.path).await?;
    if let Some(number) = count.id {
        return ids(client, count, number).await;
    }
    let counted =
        if count.integer { counted::<i32>(client, count).await? } else { counted::<i64>(client, count).await? };
    let path = &count.path;
    let (value, Failure(code, reason)) = match counted {
        Counted::Value { before, value } => {
            let text = match count.json {
                true => line(&Shot { path, before, value: Some(value), reason: None })?,
                false => format!("{value}\n"),
            };
            match count.add.is_some() || count.set.is_some() || count.cas.is_some() {
                true => print_change(text, &value.to_string()).await?,
                false => _ = print(text).await?,
            }
            return Ok(0);
        }
        Counted::Differs { expected, value } => {
            (Some(value), Failure(count.conflict_exit_code, format!("{path} is {value}, not {expected}")))
        }
        Counted::Missing => (None, Failure(NO_COUNTER, format!("no counter {path}: --add or --set creates it"))),
    };
    if count.json {
        print(line(&Shot { path, before: None, value, reason: Some(&reason) })?).await?;
        return Ok(code);
    }
    Err(Failure(code, reason))
}

/// Reads or changes a counter of this size.
async fn counted<N>(client: &CuratorFramework, count: &Count) -> Result<Counted, Failure>
where
    N: AtomicNumber + TryFrom<i64> + Into<i64>,
{
    let number = |number: i64| {
        N::try_from(number).map_err(|_too_large| Failure(2, format!("{number} does not fit into a counter of 4 bytes")))
    };
    let counter = DistributedAtomicNumber::<N>::new(client.clone(), &count.path, RetryForever::new(PAUSE)?)?;
    let change = if let Some(delta) = count.add {
        counter.add(number(delta)?).await?
    } else if let Some(value) = count.set {
        let new = number(value)?;
        match count.force {
            true => counter.force_set(new).await?,
            false => _ = counter.try_set(new).await.map_err(with_force)?,
        }
        return Ok(Counted::Value { before: None, value });
    } else if let Some([expected, new]) = count.cas.as_deref() {
        match counter.compare_and_set(number(*expected)?, number(*new)?).await? {
            Compared::Set(change) => change,
            Compared::Differs(value) => {
                return Ok(Counted::Differs { expected: *expected, value: value.into() });
            }
            Compared::Missing => return Ok(Counted::Missing),
        }
    } else {
        let value = counter.get().await?.into();
        // The recipe reads a node that does not exist as zero.
        let exists = value != 0 || client.check_exists().for_path(&count.path).await?.is_some();
        return Ok(if exists { Counted::Value { before: None, value } } else { Counted::Missing });
    };
    Ok(Counted::Value { before: Some((change.pre_value).into()), value: (change.post_value).into() })
}

/// Names the option with which `--set` overwrites other data.
fn with_force(error: CounterError) -> Failure {
    let is_foreign = matches!(error, CounterError::NotANumber { .. });
    let Failure(code, text) = error.into();
    Failure(code, if is_foreign { format!("{text}; --force overwrites it") } else { text })
}

/// Prints unique numbers.
async fn ids(client: &CuratorFramework, count: &Count, number: usize) -> Result<u8, Failure> {
    let (unique, mut left) = (UniqueIds::new(client.clone(), &count.path)?, number);
    while left > 0 {
        let ids = unique.take(left.min(IDS_AT_ONCE)).await?;
        left -= ids.len();
        let printed = print(match count.json {
            true => line(&Ids { path: &count.path, ids: &ids })?,
            false => ids.iter().map(|id| format!("{id}\n")).collect(),
        });
        if !printed.await? {
            break;
        }
    }
    Ok(0)
}
