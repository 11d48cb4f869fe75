//! The requests that the server refuses. Some of them are repeated.

use std::collections::BTreeMap;

use curator_framework::Error;

use crate::caches::request::Request;

/// The state of a refused request that is repeated without a notification, or not at each of them: its reply is large, or
/// nothing works without it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Repeat {
    /// Nothing asks for the reply.
    Idle,
    /// The request waits for the end of a pause.
    Waiting,
    /// The request is repeated now.
    Begun,
}

/// The reads and listings of cached nodes that were refused, or had replies that cannot be decoded.
#[derive(Default)]
pub(super) struct Refusals {
    errors: BTreeMap<Request, Error>,
    /// The writes of the data that cannot be decoded, by their `mzxid`.
    versions: BTreeMap<Request, i64>,
    /// Those that wait for the end of a pause before they are sent again.
    repeated: BTreeMap<Request, Repeat>,
}

impl Refusals {
    pub(super) const fn errors(&self) -> &BTreeMap<Request, Error> {
        &self.errors
    }

    /// Returns `true` for data that cannot be decoded, and was found before.
    pub(super) fn has_version(&self, request: &Request, mzxid: i64) -> bool {
        self.versions.get(request) == Some(&mzxid)
    }

    /// Records the version of data that cannot be decoded.
    pub(super) fn add_version(&mut self, request: &Request, mzxid: i64) {
        self.versions.insert(request.clone(), mzxid);
    }

    pub(super) fn has(&self, request: &Request) -> bool {
        self.errors.contains_key(request)
    }

    pub(super) fn is_repeated(&self, request: &Request) -> bool {
        self.repeated.contains_key(request)
    }

    /// Adds a refused request. `is_wanted`: it is to be repeated, even without a notification. `lists_leaves`: its watch
    /// was not set.
    pub(super) fn add(&mut self, request: Request, error: Error, is_wanted: bool, lists_leaves: bool) {
        let is_large = matches!(error, Error::ReplyTooLarge { .. });
        let is_data = matches!(error, Error::Compression { .. });
        let repeat = match &request {
            // A listing is repeated because the server does not notify of all that changes it. So is a read without a watch.
            Request::Read(_) if is_large && !is_wanted && !lists_leaves => Some(Repeat::Idle),
            Request::Read(path) | Request::List(path) if is_large || (path.is_empty() && !is_data) => {
                Some(Repeat::Waiting)
            }
            _ => None,
        };
        match repeat {
            Some(repeat) => _ = self.repeated.insert(request.clone(), repeat),
            None => _ = self.repeated.remove(&request),
        }
        self.versions.remove(&request);
        self.errors.insert(request, error);
    }

    /// Removes a request that is no longer refused. Returns `true` if it was.
    pub(super) fn remove(&mut self, request: &Request) -> bool {
        let was_refused = self.errors.remove(request).is_some();
        if was_refused {
            self.repeated.remove(request);
            self.versions.remove(request);
        }
        was_refused
    }

    /// Returns `true` if a request is repeated after pauses.
    pub(super) fn has_repeated(&self) -> bool {
        !self.repeated.is_empty()
    }

    /// Returns `true` if a request waits for the end of the pause.
    pub(super) fn awaits_pause(&self) -> bool {
        self.repeated.values().any(|repeat| *repeat == Repeat::Waiting)
    }

    /// Returns `true` if a request has to wait for the end of the pause.
    pub(super) fn puts_off(&mut self, request: &Request) -> bool {
        let waiting = self.repeated.get_mut(request).filter(|repeat| **repeat != Repeat::Begun);
        waiting.map(|repeat| *repeat = Repeat::Waiting).is_some()
    }

    /// Lets a request be sent without a pause.
    pub(super) fn begin(&mut self, request: &Request) {
        if let Some(repeat) = self.repeated.get_mut(request) {
            *repeat = Repeat::Begun;
        }
    }

    /// Returns the requests that have waited for the end of the pause.
    pub(super) fn pause_ended(&mut self) -> Vec<Request> {
        let waiting = self.repeated.iter_mut().filter(|(_, repeat)| **repeat == Repeat::Waiting);
        waiting.map(|(request, repeat)| (request.clone(), *repeat = Repeat::Begun).0).collect()
    }
}
