//! The errors of the recipes in their retry loops.

use curator_framework::Error;
use curator_framework::recipe::RecipeError;

use crate::barriers::error::BarrierError;
use crate::caches::error::CacheError;
use crate::counters::error::CounterError;
use crate::engine::error::LockError;
use crate::leader::error::LeaderError;
use crate::nodes::error::NodeError;
use crate::queues::error::QueueError;
use crate::shared::error::SharedError;

macro_rules! recipe_errors {
    ($($error:ident),*) => {
        $(impl RecipeError for $error {
            fn into_framework(self) -> Result<Error, Self> {
                match self {
                    Self::Framework(error) => Ok(error),
                    other => Err(other),
                }
            }
        })*
    };
}

recipe_errors!(BarrierError, CacheError, CounterError, LeaderError, LockError, NodeError, QueueError, SharedError);
