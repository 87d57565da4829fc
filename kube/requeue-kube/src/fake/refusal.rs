//! [`Refusal`]: error answers of the server.

use super::kinds::Kind;
use serde_json::{Value, json};

/// An answer that is an error.
#[derive(Clone, Debug)]
pub(super) struct Refusal {
    pub(super) code: u16,
    pub(super) reason: &'static str,
    pub(super) message: String,
    pub(super) details: Option<Value>,
    /// Seconds.
    pub(super) retry_after: Option<u64>,
}

impl Refusal {
    pub(super) fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: None, retry_after: None }
    }

    /// Adds details. Servers name the kind in some errors by its plural, in others by its kind.
    fn about(self, group: &str, kind: &str, name: &str) -> Self {
        let mut details = json!({"kind": kind});
        for (field, value) in
            [("group", group), ("name", name)].into_iter().filter(|(_, value)| !value.is_empty())
        {
            details[field] = json!(value);
        }
        Self { details: Some(details), ..self }
    }

    /// An error with empty details.
    pub(super) fn without_object(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { details: Some(json!({})), ..Self::new(code, reason, message) }
    }

    /// The parameters of a request contradict each other.
    pub(super) fn invalid_options(kind: &str, why: &str) -> Self {
        let message = format!("{kind}.meta.k8s.io \"\" is invalid: {why}");
        Self::new(422, "Invalid", message).about("meta.k8s.io", kind, "")
    }

    /// The error with this code, when a test asks the server to fail.
    pub(super) fn asked_for(code: u16) -> Self {
        let reason = match code {
            400 => "BadRequest",
            401 => "Unauthorized",
            403 => "Forbidden",
            404 => "NotFound",
            409 => "Conflict",
            410 => "Expired",
            422 => "Invalid",
            429 => "TooManyRequests",
            500 => "InternalError",
            503 => "ServiceUnavailable",
            504 => "Timeout",
            _ => "",
        };
        let refusal = Self::new(code, reason, format!("the test asked the fake server to answer {code}"));
        match code {
            429 => Self { retry_after: Some(1), details: Some(json!({"retryAfterSeconds": 1})), ..refusal },
            _ => refusal,
        }
    }

    pub(super) fn no_such_path(path: &str) -> Self {
        Self::without_object(
            404,
            "NotFound",
            format!("the fake server knows no kind with the path {path}: was it registered?"),
        )
    }

    pub(super) fn not_found(kind: &Kind, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{} {name:?} not found", kind.full_name())).about(
            &kind.group,
            &kind.plural,
            name,
        )
    }

    pub(super) fn exists(kind: &Kind, name: &str) -> Self {
        Self::new(409, "AlreadyExists", format!("{} {name:?} already exists", kind.full_name())).about(
            &kind.group,
            &kind.plural,
            name,
        )
    }

    pub(super) fn conflict(kind: &Kind, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {} {name:?}: {why}", kind.full_name());
        Self::new(409, "Conflict", message).about(&kind.group, &kind.plural, name)
    }

    /// The refusal of a deletion whose precondition does not hold.
    pub(super) fn precondition(kind: &Kind, name: &str, why: &str) -> Self {
        Self::conflict(kind, name, why).about(&kind.group, &kind.kind, name)
    }

    pub(super) fn stale(kind: &Kind, name: &str) -> Self {
        Self::conflict(
            kind,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    pub(super) fn invalid(kind: &Kind, name: &str, why: &str) -> Self {
        let of =
            if kind.group.is_empty() { kind.kind.clone() } else { format!("{}.{}", kind.kind, kind.group) };
        Self::new(422, "Invalid", format!("{of} {name:?} is invalid: {why}")).about(
            &kind.group,
            &kind.kind,
            name,
        )
    }

    /// The refusal of a replacement without the version that it must name.
    pub(super) fn no_version(kind: &Kind, name: &str) -> Self {
        let why = "metadata.resourceVersion: Invalid value: 0: must be specified for an update";
        Self::invalid(kind, name, why).about(&kind.group, &kind.plural, name)
    }

    pub(super) fn bad_request(why: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", why)
    }

    pub(super) fn not_allowed() -> Self {
        let why = "the server does not allow this method on the requested resource";
        Self::without_object(405, "MethodNotAllowed", why)
    }

    pub(super) fn expired(why: impl Into<String>) -> Self {
        Self::new(410, "Expired", why)
    }

    /// The body of the answer.
    pub(super) fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "code": self.code,
        });
        if !self.reason.is_empty() {
            status["reason"] = json!(self.reason);
        }
        if let Some(details) = &self.details {
            status["details"] = details.clone();
        }
        status
    }
}
