//! Why a pass failed: by the phase in which it did, and by what can be done about it.

use crate::cluster::ApiError;
use crate::commit::{CommitError, WriteError};

/// Why a pass failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A fact could not be read.
    #[error("could not observe")]
    Observe(#[source] ApiError),
    /// A write was refused or its outcome is not known.
    #[error("could not commit")]
    Commit(#[source] Box<CommitError>),
    /// A defect of ours. The object is put aside, the others go on.
    #[error("panicked: {message}")]
    Panic {
        /// What the panic said.
        message: String,
    },
}

/// What can be done about a failed pass: the label of its metric and the reason of its Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Category {
    /// The object changed since it was read: look again at once.
    Conflict,
    /// The server or the way to it failed: try again with backoff.
    Transient,
    /// The server asked to slow down: not before it said so.
    Throttled,
    /// Not permitted, by rights, quota or admission.
    Forbidden,
    /// The server refused the content.
    Invalid,
    /// The name is taken by an object that is not ours.
    Foreign,
    /// A plan that may not be, or an answer that we cannot read.
    Internal,
    /// A defect of ours that ended the pass.
    Panicked,
}

impl Category {
    /// Every category.
    pub const ALL: [Self; 8] = [
        Self::Conflict,
        Self::Transient,
        Self::Throttled,
        Self::Forbidden,
        Self::Invalid,
        Self::Foreign,
        Self::Internal,
        Self::Panicked,
    ];

    /// The metric's label.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Conflict => "conflict",
            Self::Transient => "transient",
            Self::Throttled => "throttled",
            Self::Forbidden => "forbidden",
            Self::Invalid => "invalid",
            Self::Foreign => "foreign",
            Self::Internal => "internal",
            Self::Panicked => "panicked",
        }
    }

    /// The Event's reason.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::Conflict => "Conflict",
            Self::Transient => "ApiUnavailable",
            Self::Throttled => "ApiThrottled",
            Self::Forbidden => "Forbidden",
            Self::Invalid => "RefusedAsInvalid",
            Self::Foreign => "NameConflict",
            Self::Internal | Self::Panicked => "InternalError",
        }
    }

    /// Whether it ends by itself; the others want a person.
    #[must_use]
    pub fn is_transient(self) -> bool {
        matches!(self, Self::Conflict | Self::Transient | Self::Throttled)
    }
}

impl Error {
    /// What can be done about it.
    #[must_use]
    pub fn category(&self) -> Category {
        match self {
            Self::Observe(error) => category_of(error),
            Self::Commit(error) => match &error.cause {
                WriteError::Refused(error) => category_of(error),
                WriteError::Foreign { .. } => Category::Foreign,
                WriteError::Gone => Category::Conflict,
                WriteError::Unsound { .. } => Category::Internal,
            },
            Self::Panic { .. } => Category::Panicked,
        }
    }

    /// Whether it ends by itself.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        self.category().is_transient()
    }

    /// The failed request, if one failed.
    #[must_use]
    pub fn api(&self) -> Option<&ApiError> {
        match self {
            Self::Observe(error) => Some(error),
            Self::Commit(error) => match &error.cause {
                WriteError::Refused(error) => Some(error),
                WriteError::Foreign { .. } | WriteError::Gone | WriteError::Unsound { .. } => None,
            },
            Self::Panic { .. } => None,
        }
    }

    /// The message with those of its causes, outermost first.
    #[must_use]
    pub fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            text.push_str(": ");
            text.push_str(&error.to_string());
            cause = error.source();
        }
        text
    }
}

/// A missing object or kind is transient: a later look finds it gone for good, or there.
fn category_of(error: &ApiError) -> Category {
    match error {
        ApiError::Conflict { .. } => Category::Conflict,
        ApiError::NotFound { .. } | ApiError::Unknown { .. } | ApiError::WebhookFailed { .. } => {
            Category::Transient
        }
        ApiError::Throttled { .. } => Category::Throttled,
        ApiError::Forbidden { .. } => Category::Forbidden,
        ApiError::Invalid { .. } => Category::Invalid,
        ApiError::AlreadyExists => Category::Foreign,
        ApiError::Unreadable { .. } => Category::Internal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commit::Made;

    #[test]
    fn the_chain_tells_each_cause_once() {
        let cause =
            WriteError::Refused(ApiError::Invalid { detail: "spec.x: too long".to_owned() });
        let error = CommitError {
            number: 2,
            is_after_status: false,
            total: 3,
            write: "create Job lab/a because admitted".to_owned(),
            target: None,
            done: Made::default(),
            subject: None,
            cause,
            others: Vec::new(),
            undone: Vec::new(),
        };
        let error = Error::Commit(Box::new(error));
        let told = "could not commit: write 2 of 3 failed, create Job lab/a because admitted: refused as invalid: spec.x: too long";
        assert_eq!(error.chain(), told);
        assert_eq!(error.category(), Category::Invalid);
        assert!(!error.is_transient());
    }

    #[test]
    fn an_unknown_outcome_is_tried_again_and_a_refusal_is_not_called_transient() {
        let unknown = Error::Observe(ApiError::Unknown { detail: String::new() });
        assert_eq!(unknown.category(), Category::Transient);
        assert!(unknown.is_transient());
        let forbidden = ApiError::Forbidden {
            detail: String::new(),
            quota: true,
            namespace_terminating: false,
        };
        assert!(!Error::Observe(forbidden).is_transient());
    }
}
