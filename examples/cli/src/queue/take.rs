//! `queue take`: one item, printed and then deleted.

use std::time::{Duration, Instant};

use clap::Args;
use clap::builder::BoolishValueParser;
use curator_cli::fields::DataFields;
use curator_cli::queues::QueueReader;
use curator_cli::text::{now, rfc3339};
use curator_framework::Chain;
use curator_framework::recipe::RecipeClient as _;
use curator_recipes::{Delivery, QueueConsumer, QueueError};
use serde::Serialize;

use super::Source;
use crate::failure::Failure;
use crate::output::{check_standard_output, print, tell, tell_conflict};
use crate::show::line;
use crate::site::Site;
use crate::values::{Access, duration};
use crate::waiting::PACE;

/// The options of `queue take`.
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub(crate) struct Take {
    /// Give up when no item has come in this time, which includes connecting; 0 takes an item only if one is ready
    /// [default: never]
    #[arg(long, short = 'w', visible_alias = "wait", value_parser = duration, env = "CURATOR_TIMEOUT")]
    timeout: Option<Duration>,
    /// The exit status without an item
    #[arg(long, short = 'E', default_value_t = 75, value_name = "STATUS", env = "CURATOR_CONFLICT_EXIT_CODE")]
    conflict_exit_code: u8,
    /// Print JSON, in one line
    #[arg(long, value_parser = BoolishValueParser::new(), env = "CURATOR_JSON")]
    json: bool,
    #[command(flatten)]
    pub(super) access: Access,
    #[command(flatten)]
    source: Source,
}

const NOTES: &str = "\
The item is printed byte for byte, and deleted after that. If this program ends in between, the item is delivered again. The
items of one put are taken together: without --json they follow each other without a mark between.

Exit status:
    0  the item was printed and deleted
   74  the item was lost after it was printed: it is delivered again
   75  no item came in time (see -E)
    2, 69, 70, 77  an error, as in `curator --help`";

/// Takes one item, prints it, and returns the exit status.
pub(super) async fn take(site: &Site, take: &Take) -> Result<u8, Failure> {
    check_standard_output()?;
    let (begin, source) = (Instant::now(), &take.source);
    let mut consumer = source.consumer(site)?;
    site.first_session(take.timeout).await?;
    site.check_chroot().await?;
    let taken = match take.timeout {
        None => Some(next(&mut consumer).await?),
        Some(Duration::ZERO) => ready(site, source, &mut consumer).await?,
        Some(budget) => {
            let left = budget.saturating_sub(begin.elapsed());
            match tokio::time::timeout(left, next(&mut consumer)).await {
                Ok(taken) => Some(taken?),
                Err(_too_long) if !site.client.is_connected() => {
                    return Err(site.client.no_answer("the wait for an item").into());
                }
                Err(_too_long) => None,
            }
        }
    };
    let Some(delivery) = taken else {
        let text = format!("no item of {0} is ready: curator queue ls {0} shows the queue", source.paths.path);
        tell_conflict(take.conflict_exit_code, &text);
        return Ok(take.conflict_exit_code);
    };
    source.check(delivery.name(), delivery.sequence())?;
    let text = if take.json { line(&Taken::of(&delivery))?.into_bytes() } else { delivery.items().concat() };
    if !print(text).await? {
        return Err(Failure(70, "cannot print: the reader of the pipe has closed it; the item stays".to_owned()));
    }
    delivery.complete().await?;
    Ok(0)
}

/// Returns the next delivery. Names each item that cannot be delivered.
async fn next(consumer: &mut QueueConsumer<Vec<u8>>) -> Result<Delivery<Vec<u8>>, Failure> {
    loop {
        match consumer.next().await {
            Some(Ok(delivery)) => return Ok(delivery),
            Some(Err(error)) if error.is_of_one_item() => tell(&Chain(&error).to_string()),
            Some(Err(error)) => return Err(error.into()),
            None => return Err(QueueError::from(curator_framework::Error::Closed).into()),
        }
    }
}

/// Returns a delivery, unless no item is ready.
async fn ready(
    site: &Site,
    source: &Source,
    consumer: &mut QueueConsumer<Vec<u8>>,
) -> Result<Option<Delivery<Vec<u8>>>, Failure> {
    let paths = &source.paths;
    let mut reader = QueueReader::new(&paths.path, paths.locks(), paths.dead());
    let has_ready = reader.read(&site.client).await?.is_some_and(|queue| queue.items > queue.in_work);
    if !has_ready {
        return Ok(None);
    }
    // Another consumer may take it, and the items of a delay queue may not be due.
    match tokio::time::timeout(PACE, next(consumer)).await {
        Ok(taken) => taken.map(Some),
        Err(_too_long) => Ok(None),
    }
}

/// The JSON of a delivery.
#[derive(Serialize)]
pub(super) struct Taken<'a> {
    time: String,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    due: Option<String>,
    created: String,
    key: i64,
    attempt: u32,
    items: Vec<DataFields<'a>>,
}

impl<'a> Taken<'a> {
    pub(super) fn of(delivery: &'a Delivery<Vec<u8>>) -> Self {
        Self {
            time: now(),
            name: delivery.name(),
            id: delivery.id(),
            priority: delivery.priority(),
            due: delivery.due().map(rfc3339),
            created: rfc3339(delivery.created()),
            key: delivery.key().get(),
            attempt: delivery.attempt(),
            items: delivery.items().iter().map(|item| DataFields::new(item)).collect(),
        }
    }
}
