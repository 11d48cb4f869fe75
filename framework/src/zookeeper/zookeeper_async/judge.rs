//! The check that a reply of the crate belongs to its request.

use zookeeper_async::ZkError;

use super::convert::translate_error;
use super::window::Shared;
use crate::error::{Error, Result};
use crate::sync::report::report;
use crate::zookeeper::{Request, Response, SessionEnd};

impl Shared {
    /// Checks a reply, and records an ephemeral create without a known outcome.
    pub(super) fn judge(&self, answer: Result<Response, ZkError>, epoch: u64, request: &Request) -> Result<Response> {
        let result = self.judge_answer(answer, epoch, request);
        if let (Request::Create { path, mode, .. }, Err(error)) = (request, &result) {
            if mode.is_ephemeral() && error.outcome_unknown() {
                self.ephemerals.lock().outcome_unknown(path);
            }
        }
        result
    }

    fn judge_answer(&self, answer: Result<Response, ZkError>, epoch: u64, request: &Request) -> Result<Response> {
        let expired = || Err(Error::SessionExpired { request: request.to_string().into() });
        if self.has_ended() {
            return expired();
        }
        if self.epoch() != epoch {
            // Across a reconnect the crate may match a reply with another request.
            return Err(Error::ConnectionLoss { request: request.to_string().into(), sent: true, cause: None });
        }
        match answer {
            Ok(response) if self.is_expected(request, &response) => Ok(response),
            Ok(response) => {
                self.end_because(SessionEnd::Inconsistent);
                let (asked, answer) = (request.to_string(), response.kind());
                report(move || tracing::error!(request = asked, answer, "another request's answer: the handle ends"));
                expired()
            }
            Err(ZkError::SessionExpired) => {
                self.end_because(SessionEnd::Expired);
                expired()
            }
            // The reply does not decode as one to this request.
            Err(ZkError::MarshallingError) => {
                self.end_because(SessionEnd::Inconsistent);
                expired()
            }
            Err(error) => {
                if error == ZkError::NoNode {
                    self.forget_ephemeral(request);
                }
                Err(translate_error(error, request))
            }
        }
    }

    /// Returns `true` if a reply matches its request. Records the session's ephemeral nodes.
    fn is_expected(&self, request: &Request, response: &Response) -> bool {
        match (request, response) {
            (Request::Create { path: asked, mode, .. }, Response::Created { path, stat }) => {
                let named = if mode.is_sequential() {
                    path.strip_prefix(&**asked).is_some_and(is_sequence)
                } else {
                    path == asked
                };
                if !named || mode.is_ephemeral() != (stat.ephemeral_owner != 0) {
                    return false;
                }
                !mode.is_ephemeral() || self.ephemerals.lock().created(path, stat.ephemeral_owner)
            }
            (Request::Delete { .. }, Response::Deleted) => {
                self.forget_ephemeral(request);
                true
            }
            (Request::Create { .. } | Request::Delete { .. }, _) => false,
            _ => true,
        }
    }

    fn forget_ephemeral(&self, request: &Request) {
        if let Request::Delete { path, .. } = request {
            self.ephemerals.lock().deleted(path);
        }
    }
}

/// Returns `true` if a server may have appended this to a sequential name: ten digits, or a minus sign and nine or
/// ten digits after the counter's overflow.
fn is_sequence(suffix: &str) -> bool {
    let (digits, fewest) = suffix.strip_prefix('-').map_or((suffix, 10), |digits| (digits, 9));
    (fewest..=10).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_appends_to_a_sequential_name() {
        for suffix in ["0000000000", "2147483647", "-2147483648", "-2147483638", "-000000001"] {
            assert!(is_sequence(suffix), "{suffix}");
        }
        for suffix in ["", "1", "000000001", "lock-0000000001", "00000000001", "x000000001"] {
            assert!(!is_sequence(suffix), "{suffix}");
        }
    }
}
