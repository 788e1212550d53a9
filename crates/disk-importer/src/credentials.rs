//! The mounted Secret: a directory with one file per key. Read once, never printed.

use std::fs;
use std::io;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::HeaderValue;
use otctl_types::import::ImportReason;

use crate::failure::Failure;

/// The names under which the two halves of a key pair are accepted, in order.
const ACCESS_KEY_NAMES: [&str; 2] = ["accessKeyId", "AWS_ACCESS_KEY_ID"];
const SECRET_KEY_NAMES: [&str; 2] = ["secretKey", "AWS_SECRET_ACCESS_KEY"];
const AUTHORITY_NAME: &str = "ca.crt";

/// What the Secret of an image holds for an http source.
#[derive(Clone, Default)]
pub struct Credentials {
    /// The `authorization` header for the source's own host.
    pub authorization: Option<HeaderValue>,
    /// PEM text with certificate authorities to trust besides the system's.
    pub authority: Option<Vec<u8>>,
}

impl Credentials {
    /// Reads the Secret mounted at `directory`. The mount is optional, so an absent or empty
    /// directory is an absent Secret. A Secret that holds nothing but `ca.crt` is there for that.
    ///
    /// # Errors
    /// `SecretNotFound`, `SecretKeyMissing`, or `Internal` when the directory cannot be read.
    pub fn read(directory: &Path) -> Result<Self, Failure> {
        let names = key_names(directory)?;
        if names.is_empty() {
            let message = "the Secret of secretRef does not exist, or is empty";
            return Err(Failure::new(ImportReason::SecretNotFound, message));
        }
        let authority = read_key(directory, AUTHORITY_NAME)?;
        if names == [AUTHORITY_NAME] {
            return Ok(Self { authorization: None, authority });
        }
        let user = read_first(directory, ACCESS_KEY_NAMES)?;
        let password = read_first(directory, SECRET_KEY_NAMES)?;
        Ok(Self { authorization: Some(basic_authorization(&user, &password)?), authority })
    }
}

/// Names of the mounted keys, sorted; a kubelet's own `..data` and its like left out.
fn key_names(directory: &Path) -> Result<Vec<String>, Failure> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Failure::of_volume("read the mounted Secret", &error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| Failure::of_volume("read the mounted Secret", &error))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.starts_with("..") {
            names.push(name);
        }
    }
    names.sort_unstable();
    Ok(names)
}

fn read_first(directory: &Path, names: [&str; 2]) -> Result<Vec<u8>, Failure> {
    for name in names {
        if let Some(value) = read_key(directory, name)? {
            return Ok(value);
        }
    }
    let message = format!("the Secret of secretRef has no key {} (or {})", names[0], names[1]);
    Err(Failure::new(ImportReason::SecretKeyMissing, message))
}

/// The value of a key without the line end that editors and `echo` leave; an empty one is absent.
fn read_key(directory: &Path, name: &str) -> Result<Option<Vec<u8>>, Failure> {
    let mut value = match fs::read(directory.join(name)) {
        Ok(value) => value,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Failure::of_volume("read the mounted Secret", &error)),
    };
    while value.ends_with(b"\n") || value.ends_with(b"\r") {
        value.pop();
    }
    Ok(Some(value).filter(|value| !value.is_empty()))
}

fn basic_authorization(user: &[u8], password: &[u8]) -> Result<HeaderValue, Failure> {
    let pair = [user, b":", password].concat();
    let mut value = HeaderValue::from_str(&format!("Basic {}", BASE64.encode(pair)))
        .map_err(|error| Failure::new(ImportReason::Internal, error.to_string()))?;
    value.set_sensitive(true);
    Ok(value)
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

    fn reason(keys: &[(&str, &str)]) -> ImportReason {
        Credentials::read(secret(keys).path()).err().expect("must fail").reason
    }

    #[test]
    fn absent_or_empty_mount_is_an_absent_secret() {
        assert_eq!(reason(&[]), ImportReason::SecretNotFound);
        let absent = Credentials::read(Path::new("/nonexistent/secret")).err().unwrap();
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
    }

    #[test]
    fn both_spellings_give_basic_authorization() {
        for (user, password) in
            [(ACCESS_KEY_NAMES[0], SECRET_KEY_NAMES[0]), (ACCESS_KEY_NAMES[1], SECRET_KEY_NAMES[1])]
        {
            let directory = secret(&[(user, "lab\n"), (password, "open sesame")]);
            let authorization = Credentials::read(directory.path()).unwrap().authorization.unwrap();
            assert_eq!(authorization, "Basic bGFiOm9wZW4gc2VzYW1l");
            assert!(!format!("{authorization:?}").contains("bGFi"));
        }
    }

    #[test]
    fn a_certificate_authority_alone_needs_no_keys() {
        let credentials = Credentials::read(secret(&[("ca.crt", "pem")]).path()).unwrap();
        assert!(credentials.authorization.is_none());
        assert_eq!(credentials.authority.unwrap(), b"pem");
    }
}
