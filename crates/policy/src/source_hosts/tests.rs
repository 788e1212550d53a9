use proptest::prelude::*;

use super::*;

const PUBLIC: &str = "1.1.1.1";
const PRIVATE: &str = "10.0.0.9";
const LOOPBACK: &str = "127.0.0.1";
const API_SERVER: &str = "10.96.0.1";

fn hosts(text: &str) -> SourceHosts {
    text.parse().unwrap()
}

/// `scheme://host:port` taken apart, as a URL library would.
fn target(url: &str) -> Target<'_> {
    let (scheme, rest) = url.split_once("://").unwrap();
    let (host, port) = rest.rsplit_once(':').unwrap();
    Target { scheme, host, port: port.parse().unwrap() }
}

fn permits(policy: &str, url: &str, address: &str) -> bool {
    hosts(policy)
        .permits(&target(url), address.parse().unwrap(), &[API_SERVER.parse().unwrap()])
        .is_ok()
}

fn check_yes(policy: &str, url: &str, address: &str) {
    assert!(permits(policy, url, address), "{policy} should permit {url} at {address}");
}

fn check_no(policy: &str, url: &str, address: &str) {
    assert!(!permits(policy, url, address), "{policy} should refuse {url} at {address}");
}

#[test]
fn any_host_means_any_but_the_dangerous_places() {
    check_yes("*", "https://a.example:443", PUBLIC);
    check_yes("*", "http://a.example:8080", PRIVATE);
    check_yes("*", "http://10.0.0.9:8080", PRIVATE);
    check_yes("*", "http://[fd00::1]:80", "fd00::1");
    let dangerous =
        [LOOPBACK, "::1", "169.254.169.254", "fe80::1", "224.0.0.1", "0.0.0.0", "::", API_SERVER];
    for address in dangerous {
        check_no("*", "https://a.example:443", address);
    }
    for address in ["::ffff:127.0.0.1", "::ffff:10.96.0.1", "64:ff9b::a9fe:a9fe", "fd00:ec2::254"] {
        check_no("*", "https://a.example:443", address);
    }
}

#[test]
fn a_host_listed_by_name_may_be_anywhere() {
    for address in [PUBLIC, PRIVATE, LOOPBACK, "169.254.1.1", API_SERVER, "fd00::1"] {
        check_yes("b.example,a.example", "https://a.example:443", address);
    }
    check_yes("http://127.0.0.1:8080", "http://127.0.0.1:8080", LOOPBACK);
    check_yes("http://[::1]:8080", "http://[::1]:8080", "::1");
    check_yes("http://[::1]:8080", "http://[0:0:0:0:0:0:0:1]:8080", "::1");
}

#[test]
fn a_host_matched_by_a_star_may_be_public_only() {
    check_yes("*.example", "https://a.example:443", PUBLIC);
    check_yes("*.example", "https://a.b.example:443", PUBLIC);
    for address in [PRIVATE, "100.64.0.1", "fd00::1", LOOPBACK, API_SERVER] {
        check_no("*.example", "https://a.example:443", address);
        check_no("*,b.example", "https://a.example:443", address);
    }
}

#[test]
fn the_full_name_wins_over_a_star_wherever_it_stands() {
    check_yes("*.example,a.example", "https://a.example:443", PRIVATE);
    check_yes("a.example,*.example", "https://a.example:443", PRIVATE);
    check_no("*.example,http://a.example", "https://a.example:443", PRIVATE);
}

#[test]
fn a_host_in_no_entry_is_refused_before_it_is_resolved() {
    for url in ["https://example:443", "https://a.example.evil:443", "https://b:443"] {
        assert!(hosts("*.example").permits_host(&target(url)).is_err(), "{url}");
        check_no("*.example", url, PUBLIC);
    }
    assert_eq!(hosts("*.example").permits_host(&target("https://a.example:443")), Ok(()));
}

#[test]
fn scheme_and_port_belong_to_an_entry() {
    check_yes("a.example", "https://a.example:443", PUBLIC);
    check_no("a.example", "http://a.example:80", PUBLIC);
    check_no("a.example", "https://a.example:8443", PUBLIC);
    check_yes("a.example:8443", "https://a.example:8443", PUBLIC);
    check_no("a.example:8443", "https://a.example:443", PUBLIC);
    check_yes("http://a.example", "http://a.example:80", PUBLIC);
    check_no("http://a.example", "https://a.example:443", PUBLIC);
    check_no("*,b.example", "ftp://a.example:443", PUBLIC);
}

#[test]
fn hosts_have_one_spelling() {
    check_yes("A.Example", "HTTPS://a.eXample.:443", PUBLIC);
    check_yes("a.example.", "https://a.example:443", PUBLIC);
    check_yes("https://[2001:DB8:0::1]", "https://2001:db8::1:443", PUBLIC);
}

#[test]
fn an_address_that_is_listed_does_not_open_names_that_point_to_it() {
    check_no("10.0.0.9,*", "https://a.example:443", PRIVATE);
}

#[test]
fn a_refusal_says_why_and_which_entry_would_permit_it() {
    let check = |policy: &str, url: &str, address: &str, because: &str| {
        let allowed = hosts(policy);
        let refusal = allowed.permits(&target(url), address.parse().unwrap(), &[]).unwrap_err();
        assert_eq!(refusal.to_string(), because, "{policy} {url}");
    };
    check(
        "*",
        "http://127.0.0.1:18999",
        LOOPBACK,
        "127.0.0.1 is at 127.0.0.1, a loopback address, which no entry with a * permits: only http://127.0.0.1:18999, the \
         full name, in allowedSourceHosts does",
    );
    let nowhere = |entry: &str| {
        format!(
            "no entry of allowedSourceHosts has {entry}, which would permit it; an entry without a scheme means https"
        )
    };
    let listed = "*,http://127.0.0.1:18999";
    check(listed, "http://nosuch.invalid:80", PUBLIC, &nowhere("http://nosuch.invalid"));
    check("b", "HTTPS://A.example.:443", PUBLIC, &nowhere("https://a.example"));
    check("b", "https://[::1]:8443", "::1", &nowhere("https://[::1]:8443"));
}

#[test]
fn the_entry_that_a_refusal_names_permits_what_was_refused() {
    for url in ["http://a.example:80", "https://b:8443", "http://[::1]:8080", "https://10.0.0.9:1"]
    {
        for policy in ["*", "c.example", "http://*"] {
            let allowed = hosts(policy);
            let refusal = allowed.permits(&target(url), LOOPBACK.parse().unwrap(), &[]);
            let (Refusal::MatchHost { entry } | Refusal::ReachAddress { entry, .. }) =
                refusal.unwrap_err();
            check_yes(&entry, url, LOOPBACK);
        }
    }
}

/// `*` alone is another rule than `*` in a list, so they are never shown alike.
#[test]
fn what_a_star_means_is_shown() {
    check_yes("*", "http://a.example:8080", PUBLIC);
    for text in ["https://*", "*,https://b", "https://b,*"] {
        check_no(text, "http://a.example:80", PUBLIC);
        check_no(text, "https://a.example:8443", PUBLIC);
        check_yes(text, "https://a.example:443", PUBLIC);
        assert!(hosts(text).to_string().contains("https://*"), "{text}");
    }
}

#[test]
fn text_is_read_and_shown() {
    let check = |text: &str, shown: &str| {
        assert_eq!(hosts(text).to_string(), shown);
        assert_eq!(hosts(shown), hosts(text));
    };
    check("*", "*");
    check("https://*", "https://*");
    check("*:443", "https://*");
    check("http://*", "http://*");
    check("*,a", "https://*,https://a");
    check("*,http://127.0.0.1:18999", "https://*,http://127.0.0.1:18999");
    check(
        " *.amazonaws.com ,\n http://minio.local:9000",
        "https://*.amazonaws.com,http://minio.local:9000",
    );
    check("https://a.example:443,http://b:80", "https://a.example,http://b");
    check("http://[::1]:8080,[2001:db8:0::1]", "http://[::1]:8080,https://[2001:db8::1]");
    check("s3-*.example,my_bucket.example", "https://s3-*.example,https://my_bucket.example");
}

#[test]
fn an_entry_that_cannot_be_read_is_told_apart() {
    let check = |text: &str, words: &str| {
        let error = text.parse::<SourceHosts>().unwrap_err().to_string();
        assert!(error.contains(words), "{text}: {error}");
    };
    for text in ["http://127.0.0.1:18999/images", "a.example/", "a?b", "https://a#b", "b,a:80/x"] {
        check(text, "has a path; an entry ends with its host or its port");
    }
    check("http://a:99999", "has a port that is not a number from 1 to 65535");
    check("ftp://a", "has a scheme other than http and https");
    check("user@a", "has no valid host");
    check("a,", "an entry is empty");
}

#[test]
fn what_is_no_entry_is_refused() {
    let texts = [
        "",
        ",",
        "a,",
        ",a",
        " ",
        "ftp://a",
        "://a",
        "https://",
        "http://a/path",
        "a/",
        "a?b",
        "user@a",
        "a b",
        "ä.example",
        "a:",
        "a:0",
        "a:65536",
        "a:http",
        "a:+80",
        "a:80:80",
        "a:*",
        "::1",
        "2001:db8::1",
        "[::1",
        "::1]",
        "[a]",
        "[]",
        "[::1]x",
        "[::1]x:80",
        "x[::1]:80",
        "[127.0.0.1]",
        "[fe80::1%eth0]",
        "..",
        ".example",
        "a..b",
        ".",
        "http://http://a",
    ];
    for text in texts {
        assert!(text.parse::<SourceHosts>().is_err(), "{text:?}");
    }
}

#[test]
fn globs() {
    let check = |glob: &str, text: &str, is_match| {
        assert_eq!(glob_matches(glob.as_bytes(), text.as_bytes()), is_match, "{glob} {text}")
    };
    check("", "", true);
    check("", "a", false);
    check("*", "", true);
    check("*", "a.b", true);
    check("a*b", "ab", true);
    check("a*b", "axxb", true);
    check("a*b", "axxbc", false);
    check("*a*b*", "xaxbx", true);
    check("*ab", "aab", true);
    check("*aab", "aaab", true);
    check("a**b", "ab", true);
    check("*.b", "b", false);
}

/// The obvious definition, exponential in the number of stars.
fn glob_matches_by_definition(glob: &[u8], text: &[u8]) -> bool {
    match glob.split_first() {
        None => text.is_empty(),
        Some((b'*', rest)) => {
            (0..=text.len()).any(|skipped| glob_matches_by_definition(rest, &text[skipped..]))
        }
        Some((byte, rest)) => {
            text.first() == Some(byte) && glob_matches_by_definition(rest, &text[1..])
        }
    }
}

proptest! {
    #[test]
    fn globs_match_as_defined(glob in "[ab*]{0,6}", text in "[ab]{0,8}") {
        let expected = glob_matches_by_definition(glob.as_bytes(), text.as_bytes());
        prop_assert_eq!(glob_matches(glob.as_bytes(), text.as_bytes()), expected);
    }

    #[test]
    fn any_text_is_read_back_the_same_or_refused(text in "\\PC*", near in "((https?://)?[a-c*.\\[\\]:1]{0,6}(:[0-9]{1,5})?,?){0,3}") {
        for text in [text, near] {
            if let Ok(hosts) = text.parse::<SourceHosts>() {
                prop_assert_eq!(hosts.to_string().parse(), Ok(hosts));
            }
        }
    }

    #[test]
    fn only_a_full_name_opens_every_place(address in any_address(), host in "[a-c]{1,3}", star in 0..3_usize) {
        let class = classify(address, &[]);
        let permits = |policy: &str| {
            let target = Target { scheme: "https", host: &host, port: 443 };
            hosts(policy).permits(&target, address, &[]).is_ok()
        };
        let glob = format!("{}*", &host[..star.min(host.len())]);
        prop_assert!(permits(&host));
        prop_assert_eq!(permits(&format!("https://{glob}")), class == AddressClass::Public);
        prop_assert_eq!(permits("*"), !class.is_dangerous());
        prop_assert!(!permits("d*"));
    }
}

fn any_address() -> impl Strategy<Value = IpAddr> {
    let v4 = prop_oneof![
        any::<[u8; 4]>(),
        (prop_oneof![Just(0), Just(10), Just(127), 224..=255_u8], any::<[u8; 3]>())
            .prop_map(|(a, [b, c, d])| [a, b, c, d]),
        any::<[u8; 2]>().prop_map(|[c, d]| [169, 254, c, d]),
        any::<[u8; 2]>().prop_map(|[c, d]| [192, 168, c, d]),
    ];
    let v6 = prop_oneof![
        any::<[u16; 8]>(),
        (0xfc00..=0xffff_u16).prop_map(|high| [high, 0, 0, 0, 0, 0, 0, 1])
    ];
    prop_oneof![v4.prop_map(IpAddr::from), v6.prop_map(IpAddr::from)]
}

/// A longer one could not be kept, and the ledger with it. It is kept with the scheme of each entry.
#[test]
fn a_list_is_as_long_as_a_status_keeps() {
    let list = |count: usize| vec!["https://img123.example"; count].join(",");
    let (longest, longer) = (list(178), list(179));
    assert!(longest.len() <= 4096 && longer.len() > 4096);
    assert!(longest.parse::<SourceHosts>().is_ok());
    assert_eq!(longer.parse::<SourceHosts>(), Err(SourceHostsError::FitList));
}
