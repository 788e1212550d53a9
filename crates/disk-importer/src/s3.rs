//! Object stores: what a url means there, where a bucket is, and the signature of a request. The
//! url is taken as it is written, so that every style works: the bucket in the path or in the
//! host, FIPS and dual-stack endpoints, and stores of any name.

mod refusal;

use std::time::SystemTime;

use aws_credential_types::Credentials as Identity;
use aws_sigv4::http_request::{
    PayloadChecksumKind, PercentEncodingMode, SignableBody, SignableRequest, SigningSettings,
    UriPathNormalizationMode, sign,
};
use aws_sigv4::sign::v4::SigningParams;
use http::{HeaderMap, Request, StatusCode};
use otctl_types::import::ImportReason;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};
use secrecy::ExposeSecret as _;
use url::Url;

use crate::credentials::{Credentials, Keys};
use crate::failure::Failure;

/// Everything that a signature spells as a percent code in a path; servers decode a key and
/// encode it again by this rule before they compare signatures.
const ENCODED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

/// Where a bucket is when nothing says so.
const DEFAULT_REGION: &str = "us-east-1";

/// One store as it is asked: by whom, and where.
pub struct Store {
    url: Url,
    keys: Option<Keys>,
    region: String,
}

/// `url` with its path spelt the one way that signatures are made over. The object is the same:
/// `+` is a plus, and `%2F` is what `/` is.
#[must_use]
pub fn address(mut url: Url) -> Url {
    let key: Vec<u8> = percent_decode_str(url.path()).collect();
    url.set_path(&percent_encode(&key, ENCODED).to_string());
    url.set_fragment(None);
    url
}

/// The region in a host of Amazon's: `s3.REGION`, `s3-REGION`, `BUCKET.s3.REGION`, with `-fips`
/// and `dualstack`, in every partition.
#[must_use]
pub fn region(host: &str) -> Option<&str> {
    let host = host.strip_suffix(".amazonaws.com").or(host.strip_suffix(".amazonaws.com.cn"))?;
    let host = host.strip_suffix(".vpce").unwrap_or(host);
    let last = host.rsplit('.').next()?;
    let old_style = last.strip_prefix("s3-").map(|rest| rest.strip_prefix("fips-").unwrap_or(rest));
    [Some(last), old_style].into_iter().flatten().find(|name| is_region(name))
}

/// `us-gov-west-1` and its like.
fn is_region(name: &str) -> bool {
    let mut parts = name.split('-');
    let is_word = |part: &str| part.bytes().all(|byte| byte.is_ascii_lowercase());
    let continent = parts.next().is_some_and(|part| part.len() == 2 && is_word(part));
    let number = parts.next_back().is_some_and(|part| part.parse::<u8>().is_ok());
    let mut middle = parts.peekable();
    continent && number && middle.peek().is_some() && middle.all(is_word)
}

impl Store {
    /// The store at `url`, asked with what its Secret holds. A url that is signed already is
    /// asked as it is.
    #[must_use]
    pub fn new(url: &Url, credentials: &Credentials) -> Self {
        let is_signed =
            url.query_pairs().any(|(name, _)| name.eq_ignore_ascii_case("x-amz-signature"));
        let of_host = url.host_str().and_then(region).map(str::to_owned);
        let region = credentials.region.clone().or(of_host);
        Self {
            url: url.clone(),
            keys: credentials.keys.clone().filter(|_| !is_signed),
            region: region.unwrap_or_else(|| DEFAULT_REGION.to_owned()),
        }
    }

    /// Signs a request for the store's url as of `now`, unless anybody may ask.
    ///
    /// # Errors
    /// `Internal`, when the request is none that can be signed.
    pub fn sign<B>(&self, request: &mut Request<B>, now: SystemTime) -> Result<(), Failure> {
        let Some(keys) = &self.keys else { return Ok(()) };
        let identity = identity(keys).into();
        let params = SigningParams::builder()
            .identity(&identity)
            .region(&self.region)
            .name("s3")
            .time(now)
            .settings(settings())
            .build()
            .map_err(|_| unsigned())?
            .into();
        // The host is signed because it is in the url; other headers may be changed on the way.
        let none = std::iter::empty();
        let signable =
            SignableRequest::new("GET", self.url.as_str(), none, SignableBody::Bytes(&[]));
        let (instructions, _) =
            sign(signable.map_err(|_| unsigned())?, &params).map_err(|_| unsigned())?.into_parts();
        instructions.apply_to_request_http1x(request);
        for name in ["authorization", "x-amz-security-token"] {
            if let Some(value) = request.headers_mut().get_mut(name) {
                value.set_sensitive(true);
            }
        }
        Ok(())
    }

    /// Why an answer of this head and this beginning of a body carries nothing.
    #[must_use]
    pub fn refusal(&self, status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Failure {
        refusal::Refusal { url: &self.url, status, headers, body, is_signed: self.keys.is_some() }
            .into_failure()
    }
}

fn identity(keys: &Keys) -> Identity {
    let token = keys.session_token.as_ref().map(|token| token.expose_secret().to_owned());
    Identity::new(keys.id.expose_secret(), keys.secret.expose_secret(), token, None, "secret")
}

fn settings() -> SigningSettings {
    let mut settings = SigningSettings::default();
    settings.percent_encoding_mode = PercentEncodingMode::Single;
    settings.payload_checksum_kind = PayloadChecksumKind::XAmzSha256;
    settings.uri_path_normalization_mode = UriPathNormalizationMode::Disabled;
    settings
}

/// Nothing of the cause: it might hold the request, and so the session token.
fn unsigned() -> Failure {
    Failure::new(ImportReason::Internal, "the request cannot be signed")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    #[test]
    fn regions_are_read_from_every_form_of_host() {
        let table = [
            ("s3.eu-west-1.amazonaws.com", Some("eu-west-1")),
            ("bucket.s3.eu-west-1.amazonaws.com", Some("eu-west-1")),
            ("my.dotted.bucket.s3.us-gov-west-1.amazonaws.com", Some("us-gov-west-1")),
            ("s3-us-gov-west-1.amazonaws.com", Some("us-gov-west-1")),
            ("bucket.s3-eu-central-1.amazonaws.com", Some("eu-central-1")),
            ("s3-fips.us-gov-east-1.amazonaws.com", Some("us-gov-east-1")),
            ("s3-fips-us-gov-west-1.amazonaws.com", Some("us-gov-west-1")),
            ("s3.dualstack.ap-southeast-2.amazonaws.com", Some("ap-southeast-2")),
            ("bucket.s3-fips.dualstack.us-east-2.amazonaws.com", Some("us-east-2")),
            ("s3.cn-north-1.amazonaws.com.cn", Some("cn-north-1")),
            ("bucket.vpce-1a2b.s3.us-east-2.vpce.amazonaws.com", Some("us-east-2")),
            ("point-123456789012.s3-accesspoint.us-west-2.amazonaws.com", Some("us-west-2")),
            ("s3.amazonaws.com", None),
            ("bucket.s3.amazonaws.com", None),
            ("s3-external-1.amazonaws.com", None),
            ("bucket.s3-accelerate.amazonaws.com", None),
            ("minio.example:9000", None),
            ("eu-west-1.example", None),
            ("127.0.0.1", None),
        ];
        for (host, expected) in table {
            assert_eq!(region(host), expected, "{host}");
        }
    }

    #[test]
    fn the_secrets_region_is_asked_before_the_hosts() {
        let host = url("https://s3.eu-west-1.amazonaws.com/b/k");
        let store = |url: &Url, region: Option<&str>| {
            let region = region.map(str::to_owned);
            Store::new(url, &Credentials { region, ..Credentials::default() }).region
        };
        assert_eq!(store(&host, None), "eu-west-1");
        assert_eq!(store(&host, Some("garage")), "garage");
        assert_eq!(store(&url("https://minio.example/b/k"), None), "us-east-1");
    }

    #[test]
    fn paths_are_spelt_as_signatures_spell_them() {
        let table = [
            ("http://h/b/plain.qcow2", "/b/plain.qcow2"),
            ("http://h/b/a b+c", "/b/a%20b%2Bc"),
            ("http://h/b/a%20b%2bc", "/b/a%20b%2Bc"),
            ("http://h/b/\u{e9}t\u{e9}", "/b/%C3%A9t%C3%A9"),
            ("http://h/b/a%2Fb", "/b/a/b"),
            ("http://h/b/a%252Fb", "/b/a%252Fb"),
            ("http://h/b//twice", "/b//twice"),
            ("http://h/b/~_-.(1)'*!@$,;:=&", "/b/~_-.%281%29%27%2A%21%40%24%2C%3B%3A%3D%26"),
        ];
        for (text, expected) in table {
            let address = address(url(text));
            assert_eq!(address.path(), expected, "{text}");
            assert_eq!(super::address(address.clone()), address, "{text}");
        }
        assert_eq!(
            address(url("http://h/k?versionId=a%2Bb#f")).as_str(),
            "http://h/k?versionId=a%2Bb"
        );
    }

    /// The example of Amazon's documentation of this signature: GET of an object, without the
    /// range that is signed there too.
    #[test]
    fn a_signature_covers_host_date_payload_and_token() {
        let mut keys =
            Keys::new("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY");
        keys.session_token = Some("token".into());
        let credentials = Credentials { keys: Some(keys), ..Credentials::default() };
        let url = url("https://examplebucket.s3.amazonaws.com/test.txt");
        let mut request = Request::get("/test.txt").body(()).unwrap();
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_369_353_600);
        Store::new(&url, &credentials).sign(&mut request, time).unwrap();
        let header = |name: &str| request.headers()[name].to_str().unwrap().to_owned();
        assert_eq!(header("x-amz-date"), "20130524T000000Z");
        assert_eq!(header("x-amz-security-token"), "token");
        let authorization = header("authorization");
        let scope = "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, \
                     SignedHeaders=host;x-amz-content-sha256;x-amz-date;x-amz-security-token, ";
        assert!(authorization.starts_with(scope), "{authorization}");
        assert!(request.headers()["authorization"].is_sensitive());
        assert!(request.headers()["x-amz-security-token"].is_sensitive());
    }

    #[test]
    fn without_keys_or_with_a_signed_url_nothing_is_signed() {
        let keys = Credentials { keys: Some(Keys::new("a", "b")), ..Credentials::default() };
        for (text, credentials) in [
            ("https://h.example/b/k", &Credentials::default()),
            ("https://h.example/b/k?X-Amz-Signature=s", &keys),
        ] {
            let mut request = Request::get("/b/k").body(()).unwrap();
            Store::new(&url(text), credentials).sign(&mut request, SystemTime::now()).unwrap();
            assert!(request.headers().is_empty(), "{text}");
        }
    }
}
