//! What an address says: its host, and why it cannot be asked at all.

use url::{ParseError, Url};

/// The host of an address, the lane of `concurrencyPerHost`: without regard to case, to a dot at its end, or to a port
/// that is its scheme's own. Another port is another server.
pub fn host(address: &str) -> Option<String> {
    let url = Url::parse(address).ok()?;
    let host = url.host_str()?.trim_end_matches('.');
    // The parser makes hosts of http and https lower-case, and leaves their default ports out.
    Some(url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}")))
}

/// Why nothing can ever be asked of an address: what only an edit changes. The schema has seen its form already.
pub fn problem(address: &str) -> Option<String> {
    let url = match Url::parse(address) {
        Ok(url) => url,
        Err(ParseError::InvalidPort) => return Some(port_problem(address)),
        Err(error) => return Some(error.to_string()),
    };
    if !matches!(url.scheme(), "http" | "https") {
        return Some("it is no http or https address".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Some("a user and a password go into the Secret of secretRef".to_owned());
    }
    (url.port() == Some(0)).then(|| "port 0 is nobody's".to_owned())
}

fn port_problem(address: &str) -> String {
    /// Nobody writes a longer one by mistake.
    const SHOWN: usize = 20;
    let rest = address.split_once("://").map_or(address, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#', '\\']).next().unwrap_or_default();
    let port = authority.rsplit(':').next().unwrap_or_default();
    let is_number = port.bytes().all(|byte| byte.is_ascii_digit());
    let port: String = port.chars().take(SHOWN).collect();
    if is_number {
        format!("port {port} is above 65535")
    } else {
        format!("port '{port}' is no number")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_cannot_be_asked_says_why() {
        for (address, why) in [
            ("http://127.0.0.1:99999/x", "port 99999 is above 65535"),
            ("http://[::1]:65536?x=a:b", "port 65536 is above 65535"),
            ("http://host:8o80/x:1", "port '8o80' is no number"),
            ("http://host:0/x", "port 0 is nobody's"),
            ("http://[::1/x", "invalid IPv6 address"),
            ("http://1.2.3.999/x", "invalid IPv4 address"),
            ("http://a%00b/x", "invalid international domain name"),
            ("s3://bucket/key", "it is no http or https address"),
            ("http://user:word@host/x", "a user and a password go into the Secret of secretRef"),
            ("no address", "relative URL without a base"),
        ] {
            assert_eq!(problem(address).as_deref(), Some(why), "{address}");
        }
        for address in
            ["http://h", "https://h:65535/a?b#c", "http://[2001:db8::1]:80/", "http://10.0.0.1"]
        {
            assert_eq!(problem(address), None, "{address}");
        }
    }

    #[test]
    fn one_server_is_one_lane_however_it_is_written() {
        for address in [
            "https://Images.Example/a.qcow2",
            "https://images.example:443/b?x=1",
            "http://images.example:80/a",
            "http://IMAGES.EXAMPLE./a",
        ] {
            assert_eq!(host(address).as_deref(), Some("images.example"), "{address}");
        }
        assert_eq!(host("http://images.example:8080/a").as_deref(), Some("images.example:8080"));
        assert_eq!(host("https://[2001:DB8::1]/a").as_deref(), Some("[2001:db8::1]"));
        assert_eq!(host("no address"), None);
    }
}
