//! Tasks that notify each other, and user code that is called apart from them.

pub(crate) mod budget;
pub(crate) mod changes;
pub(crate) mod extensions;
pub(crate) mod job_queue;
pub(crate) mod listeners;
pub(crate) mod panics;
pub(crate) mod report;
pub(crate) mod report_metric;
pub(crate) mod safe_notify;
pub(crate) mod user_code;
pub(crate) mod watch_cell;
