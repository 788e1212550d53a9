//! The mounted Secret: a directory with one file per key. Read once, never printed, wiped when it
//! is dropped.

use std::fs;
use std::io;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::HeaderValue;
use otctl_types::import::ImportReason;
use secrecy::zeroize::Zeroizing;
use secrecy::{ExposeSecret as _, SecretString};

use crate::failure::Failure;

/// The names under which a key is accepted, in order.
const ACCESS_KEY_NAMES: [&str; 2] = ["accessKeyId", "AWS_ACCESS_KEY_ID"];
const SECRET_KEY_NAMES: [&str; 2] = ["secretKey", "AWS_SECRET_ACCESS_KEY"];
const SESSION_TOKEN_NAMES: [&str; 2] = ["sessionToken", "AWS_SESSION_TOKEN"];
const REGION_NAMES: [&str; 2] = ["region", "AWS_REGION"];
const AUTHORITY_NAME: &str = "ca.crt";

/// What the Secret of an image holds.
#[derive(Clone, Debug, Default)]
pub struct Credentials {
    /// Who asks; absent: anybody.
    pub keys: Option<Keys>,
    /// The region that requests to an object store are signed for.
    pub region: Option<String>,
    /// PEM text with certificate authorities to trust besides the system's.
    pub authority: Option<Vec<u8>>,
}

/// A key pair: user and password of a web server, the access key of an object store.
#[derive(Clone, Debug)]
pub struct Keys {
    /// The public half, or the user.
    pub id: SecretString,
    /// The secret half, or the password.
    pub secret: SecretString,
    /// What goes with keys that were issued for a while.
    pub session_token: Option<SecretString>,
}

impl Credentials {
    /// Reads the Secret mounted at `directory`. The mount is optional, so an absent or empty
    /// directory is an absent Secret. A Secret that holds nothing but `ca.crt` and `region` is
    /// there for that.
    ///
    /// # Errors
    /// `SecretNotFound`, `SecretKeyMissing`, or `Internal` when the directory cannot be read.
    pub fn read(directory: &Path) -> Result<Self, Failure> {
        let names = key_names(directory)?;
        if names.is_empty() {
            let message = "the Secret of secretRef does not exist, or is empty";
            return Err(Failure::new(ImportReason::SecretNotFound, message));
        }
        let authority = read_key(directory, AUTHORITY_NAME)?.map(|value| value.to_vec());
        let region = read_text(directory, REGION_NAMES)?.map(|region| region.to_string());
        let is_key = |name: &String| name != AUTHORITY_NAME && !REGION_NAMES.contains(&&**name);
        let keys = names.iter().any(is_key).then(|| Keys::read(directory)).transpose()?;
        Ok(Self { keys, region, authority })
    }
}

impl Credentials {
    /// Whether `text` repeats one of them.
    #[must_use]
    pub fn are_in(&self, text: &str) -> bool {
        self.secrets().any(|secret| text.contains(secret))
    }

    /// `text` with nothing of them in it.
    #[must_use]
    pub fn redact(&self, text: String) -> String {
        self.secrets().fold(text, |text, secret| text.replace(secret, "[redacted]"))
    }

    /// What must be shown nowhere. Shorter ones are in every other text by chance, and say nothing there.
    fn secrets(&self) -> impl Iterator<Item = &str> {
        const SHORTEST: usize = 4;
        let keys = self.keys.iter();
        let texts =
            keys.flat_map(|keys| [Some(&keys.id), Some(&keys.secret), keys.session_token.as_ref()]);
        texts.flatten().map(|text| text.expose_secret()).filter(|text| text.len() >= SHORTEST)
    }
}

impl Keys {
    /// A user and a password.
    #[must_use]
    pub fn new(id: &str, secret: &str) -> Self {
        Self { id: id.into(), secret: secret.into(), session_token: None }
    }

    fn read(directory: &Path) -> Result<Self, Failure> {
        let secret = |names: [&str; 2]| {
            Ok::<_, Failure>(read_text(directory, names)?.map(|text| SecretString::from(&**text)))
        };
        let required = |names: [&str; 2]| secret(names)?.ok_or_else(|| missing(names));
        Ok(Self {
            id: required(ACCESS_KEY_NAMES)?,
            secret: required(SECRET_KEY_NAMES)?,
            session_token: secret(SESSION_TOKEN_NAMES)?,
        })
    }

    /// The `authorization` header by which a web server knows us.
    ///
    /// # Errors
    /// `Internal`, which base64 text never is.
    pub fn basic_authorization(&self) -> Result<HeaderValue, Failure> {
        let (user, password) = (self.id.expose_secret(), self.secret.expose_secret());
        let pair = Zeroizing::new(format!("{user}:{password}"));
        let header = Zeroizing::new(format!("Basic {}", BASE64.encode(&*pair)));
        let mut value = HeaderValue::from_str(&header)
            .map_err(|error| Failure::new(ImportReason::Internal, error.to_string()))?;
        value.set_sensitive(true);
        Ok(value)
    }
}

/// Names of the mounted keys; a kubelet's own `..data` and its like left out.
fn key_names(directory: &Path) -> Result<Vec<String>, Failure> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(unreadable(&error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| unreadable(&error))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.starts_with("..") {
            names.push(name);
        }
    }
    Ok(names)
}

/// The value under the first of `names` that has one, as text.
fn read_text(directory: &Path, names: [&str; 2]) -> Result<Option<Zeroizing<String>>, Failure> {
    for name in names {
        let Some(value) = read_key(directory, name)? else { continue };
        return match std::str::from_utf8(&value) {
            Ok(text) => Ok(Some(Zeroizing::new(text.to_owned()))),
            Err(_) => {
                let message = format!("its key {name} is no text");
                Err(Failure::new(ImportReason::SecretKeyMissing, message))
            }
        };
    }
    Ok(None)
}

/// The value of a key without the line end that editors and `echo` leave; an empty one is absent.
fn read_key(directory: &Path, name: &str) -> Result<Option<Zeroizing<Vec<u8>>>, Failure> {
    let mut value = match fs::read(directory.join(name)) {
        Ok(value) => Zeroizing::new(value),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable(&error)),
    };
    while value.ends_with(b"\n") || value.ends_with(b"\r") {
        value.pop();
    }
    Ok(Some(value).filter(|value| !value.is_empty()))
}

fn missing(names: [&str; 2]) -> Failure {
    let message = format!("it has no key {} (or {})", names[0], names[1]);
    Failure::new(ImportReason::SecretKeyMissing, message)
}

fn unreadable(error: &io::Error) -> Failure {
    Failure::of_volume("read the mounted Secret", error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(keys: &[(&str, &str)]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        for (name, value) in keys {
            fs::write(directory.path().join(name), value).unwrap();
        }
        directory
    }

    fn read(keys: &[(&str, &str)]) -> Credentials {
        Credentials::read(secret(keys).path()).unwrap()
    }

    fn reason(keys: &[(&str, &str)]) -> ImportReason {
        Credentials::read(secret(keys).path()).expect_err("must fail").reason
    }

    #[test]
    fn absent_or_empty_mount_is_an_absent_secret() {
        assert_eq!(reason(&[]), ImportReason::SecretNotFound);
        let absent = Credentials::read(Path::new("/nonexistent/secret")).unwrap_err();
        assert_eq!(absent.reason, ImportReason::SecretNotFound);
    }

    #[test]
    fn misspelt_or_empty_keys_are_missing() {
        assert_eq!(
            reason(&[("accessKeyID", "a"), ("secretKey", "b")]),
            ImportReason::SecretKeyMissing
        );
        assert_eq!(
            reason(&[("accessKeyId", "a"), ("secretKey", "\n")]),
            ImportReason::SecretKeyMissing
        );
        assert_eq!(reason(&[("ca.crt", "x"), ("user", "y")]), ImportReason::SecretKeyMissing);
        let directory = secret(&[("secretKey", "b")]);
        fs::write(directory.path().join("accessKeyId"), [0xff]).unwrap();
        let failure = Credentials::read(directory.path()).unwrap_err();
        assert_eq!(failure.reason, ImportReason::SecretKeyMissing);
    }

    #[test]
    fn both_spellings_are_read() {
        let ours = [
            ("accessKeyId", "lab\n"),
            ("secretKey", "open sesame"),
            ("sessionToken", "token\r\n"),
            ("region", "eu-west-1\n"),
        ];
        let theirs = [
            ("AWS_ACCESS_KEY_ID", "lab"),
            ("AWS_SECRET_ACCESS_KEY", "open sesame"),
            ("AWS_SESSION_TOKEN", "token"),
            ("AWS_REGION", "eu-west-1"),
        ];
        for names in [ours, theirs] {
            let credentials = read(&names);
            let keys = credentials.keys.unwrap();
            assert_eq!(keys.id.expose_secret(), "lab");
            assert_eq!(keys.secret.expose_secret(), "open sesame");
            assert_eq!(keys.session_token.unwrap().expose_secret(), "token");
            assert_eq!(credentials.region.as_deref(), Some("eu-west-1"));
        }
    }

    #[test]
    fn nothing_secret_is_shown_or_formatted() {
        let credentials = read(&[
            ("accessKeyId", "lab-canary"),
            ("secretKey", "sesame-canary"),
            ("sessionToken", "token-canary"),
        ]);
        let shown = format!("{credentials:?}");
        assert!(shown.contains("REDACTED") && !shown.contains("canary"), "{shown}");
        let header = Keys::new("lab", "open sesame").basic_authorization().unwrap();
        assert_eq!(header, "Basic bGFiOm9wZW4gc2VzYW1l");
        assert!(!format!("{header:?}").contains("bGFi"));
    }

    #[test]
    fn what_repeats_a_secret_is_told_without_it() {
        let keys = [("accessKeyId", "lab"), ("secretKey", "sesame"), ("sessionToken", "token-7")];
        let credentials = read(&keys);
        assert!(credentials.are_in("\"lab:sesame\"") && credentials.are_in("xtoken-7"));
        assert!(!credentials.are_in("\"5d8c72a5\""));
        let told = credentials.redact("/lab/sesame/token-7 and sesame answered 404".to_owned());
        assert_eq!(told, "/lab/[redacted]/[redacted] and [redacted] answered 404");
    }

    #[test]
    fn an_authority_and_a_region_need_no_keys() {
        let credentials = read(&[("ca.crt", "pem"), ("region", "eu-west-1")]);
        assert!(credentials.keys.is_none());
        assert_eq!(credentials.authority.unwrap(), b"pem");
        assert_eq!(credentials.region.unwrap(), "eu-west-1");
    }
}
