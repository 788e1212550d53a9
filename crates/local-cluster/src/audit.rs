//! The API server's audit log, as values: who did what to which object, and what came of it.
//!
//! The policy (`control_plane/audit-policy.yaml`) records writes with their objects and reads without. The server
//! writes a line before it ends the response, so whoever has an answer finds its line in the log.

use std::{
    fs::File,
    io,
    io::{Read as _, Seek as _, SeekFrom},
    path::PathBuf,
    time::Duration,
};

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;

/// How often a waiting reader looks again.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// More than any line has: a request is at most 3 MiB, and its line holds it and its answer.
const LONGEST_LINE: u64 = 8 << 20;

/// One request and its outcome.
#[derive(Debug, Clone)]
pub struct AuditEntry {
    /// The user, such as `system:serviceaccount:lab:controller`.
    pub user: String,
    /// The program, as it named itself.
    pub user_agent: String,
    /// The verb, as RBAC has it: `create`, `patch`, `deletecollection`, …
    pub verb: String,
    /// The path and query of the request.
    pub uri: String,
    /// API group, empty for the core group and for what is not a resource.
    pub group: String,
    /// Resource, plural; empty for what is not a resource.
    pub resource: String,
    /// Subresource, such as `status`; empty without one.
    pub subresource: String,
    /// Namespace, empty for what has none.
    pub namespace: String,
    /// Name, empty for lists, and for a create that leaves the name to the server.
    pub name: String,
    /// HTTP status code of the answer, 0 if there was none.
    pub code: u16,
    /// The body of a write.
    pub request_object: Option<Value>,
    /// The object that the server answered a write with.
    pub response_object: Option<Value>,
    /// When the request arrived.
    pub received_at: Timestamp,
    /// When the answer was complete.
    pub answered_at: Timestamp,
}

impl AuditEntry {
    /// Whether the request asked for a change. A dry run is none.
    pub fn is_write(&self) -> bool {
        let verbs = ["create", "update", "patch", "delete", "deletecollection"];
        verbs.contains(&self.verb.as_str()) && !self.uri.contains("dryRun=")
    }

    /// Whether the user lacked the right.
    pub fn is_forbidden(&self) -> bool {
        self.code == 403
    }

    /// Whether the server did what was asked.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.code)
    }

    /// `resource` or `resource/subresource`.
    pub fn target(&self) -> String {
        match self.subresource.as_str() {
            "" => self.resource.clone(),
            subresource => format!("{}/{subresource}", self.resource),
        }
    }
}

/// The user name of a service account.
pub fn service_account_user(namespace: &str, name: &str) -> String {
    format!("system:serviceaccount:{namespace}:{name}")
}

/// A place in the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark(u64);

/// Why the log cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// The file cannot be read.
    #[error("cannot read the audit log '{}'", path.display())]
    ReadLog {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A line is not an audit event.
    #[error("cannot parse the audit log's line '{line}'")]
    ParseLine {
        /// The line.
        line: String,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// What was waited for did not come.
    #[error("the audit log has no such entry after {within:?}")]
    AwaitEntry {
        /// How long was waited.
        within: Duration,
    },
}

/// The audit log of one cluster.
#[derive(Debug, Clone)]
pub struct AuditLog {
    path: PathBuf,
}

impl AuditLog {
    pub(crate) fn at(path: PathBuf) -> Self {
        Self { path }
    }

    /// The end of the log, to read from there later: the end of its last complete line.
    pub fn mark(&self) -> Result<Mark, AuditError> {
        let metadata = std::fs::metadata(&self.path).map_err(|source| self.unreadable(source))?;
        let before_last_line = metadata.len().saturating_sub(LONGEST_LINE);
        let complete = self.complete_lines(Mark(before_last_line))?;
        Ok(Mark(before_last_line + complete.len() as u64))
    }

    /// All entries.
    pub fn entries(&self) -> Result<Vec<AuditEntry>, AuditError> {
        self.since(Mark::default())
    }

    /// All entries of one user.
    pub fn of_user(&self, user: &str) -> Result<Vec<AuditEntry>, AuditError> {
        let mut entries = self.entries()?;
        entries.retain(|entry| entry.user == user);
        Ok(entries)
    }

    /// The entries after a mark.
    pub fn since(&self, mark: Mark) -> Result<Vec<AuditEntry>, AuditError> {
        let lines = self.complete_lines(mark)?;
        String::from_utf8_lossy(&lines).lines().map(parse).collect()
    }

    /// Waits until an entry after the mark is what is looked for.
    pub async fn wait_for(
        &self,
        mark: Mark,
        within: Duration,
        is_wanted: impl Fn(&AuditEntry) -> bool,
    ) -> Result<AuditEntry, AuditError> {
        let deadline = Instant::now() + within;
        loop {
            if let Some(entry) = self.since(mark)?.into_iter().find(&is_wanted) {
                return Ok(entry);
            }
            if Instant::now() >= deadline {
                return Err(AuditError::AwaitEntry { within });
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// What stands after the mark, without a last line that is still being written.
    fn complete_lines(&self, mark: Mark) -> Result<Vec<u8>, AuditError> {
        let mut bytes = self.bytes_since(mark).map_err(|source| self.unreadable(source))?;
        let complete = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        bytes.truncate(complete);
        Ok(bytes)
    }

    fn bytes_since(&self, mark: Mark) -> io::Result<Vec<u8>> {
        let mut file = File::open(&self.path)?;
        file.seek(SeekFrom::Start(mark.0))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn unreadable(&self, source: io::Error) -> AuditError {
        AuditError::ReadLog { path: self.path.clone(), source }
    }
}

fn parse(line: &str) -> Result<AuditEntry, AuditError> {
    match serde_json::from_str::<Event>(line) {
        Ok(event) => Ok(event.into()),
        Err(source) => Err(AuditError::ParseLine { line: line.to_owned(), source }),
    }
}

/// An `audit.k8s.io/v1` Event, as far as it is used.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    verb: String,
    #[serde(rename = "requestURI")]
    uri: String,
    user: User,
    #[serde(default)]
    user_agent: String,
    #[serde(default)]
    object_ref: ObjectRef,
    response_status: Option<ResponseStatus>,
    request_object: Option<Value>,
    response_object: Option<Value>,
    request_received_timestamp: Timestamp,
    stage_timestamp: Timestamp,
}

#[derive(Deserialize)]
struct User {
    #[serde(default)]
    username: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ObjectRef {
    api_group: String,
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
}

#[derive(Deserialize)]
struct ResponseStatus {
    #[serde(default)]
    code: u16,
}

impl From<Event> for AuditEntry {
    fn from(event: Event) -> Self {
        Self {
            user: event.user.username,
            user_agent: event.user_agent,
            verb: event.verb,
            uri: event.uri,
            group: event.object_ref.api_group,
            resource: event.object_ref.resource,
            subresource: event.object_ref.subresource,
            namespace: event.object_ref.namespace,
            name: event.object_ref.name,
            code: event.response_status.map_or(0, |status| status.code),
            request_object: event.request_object,
            response_object: event.response_object,
            received_at: event.request_received_timestamp,
            answered_at: event.stage_timestamp,
        }
    }
}

#[cfg(test)]
mod tests;
