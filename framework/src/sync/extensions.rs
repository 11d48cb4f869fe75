//! Values that recipes keep in a client or in a session.
//!
//! For example, the locks keep a table here in which a holder reports that it is first. The framework knows nothing of
//! queues.

use std::any::{Any, TypeId};
use std::sync::Arc;

use foldhash::HashMap;
use parking_lot::Mutex;

/// One value of each type.
#[derive(Debug, Default)]
pub(crate) struct Extensions(Mutex<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>);

impl Extensions {
    /// Returns the value of this type. The first call creates it.
    pub(crate) fn get<T: Default + Send + Sync + 'static>(&self) -> Arc<T> {
        let mut extensions = self.0.lock();
        let kept = extensions.entry(TypeId::of::<T>()).or_insert_with(|| Arc::new(T::default()));
        // The key is the value's type, so the downcast succeeds.
        Arc::clone(kept).downcast().unwrap_or_default()
    }
}
