//! What a hostile source can do, through the whole import: a reason as the tables say, few bytes,
//! little time, no crash, and nothing of what it sent in what a person reads.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use disk_importer::connection::Resolver;
use disk_importer::credentials::Keys;
use disk_importer::settings::Source;
use image_server::{Behaviour, Content, Fault, ImageServer, On, fixtures};
use otctl_types::import::{Compression, FailureClass, ImportOutcome, ImportReason, ImportReport};

use crate::canned::{Canned, Saying};
use crate::compressed::pack;
use crate::lab::{Lab, MIB, PATH, assert_failed, run_import, run_probe};

/// What the receive buffers of both ends hold beyond what was read.
const IN_FLIGHT: u64 = 8 * MIB;

fn source_at(lab: &Lab, canned: &Canned) -> Source {
    let mut source = lab.source();
    source.url = canned.url().parse().unwrap();
    source.access.hosts = format!("http://{}", canned.address).parse().unwrap();
    source.timing.stall = Duration::from_millis(500);
    source
}

async fn lab() -> Lab {
    Lab::serving(Content::bytes(fixtures::PLAIN.bytes)).await
}

/// Probe and import of what `canned` says: both fail as said, and say nothing of it.
async fn both(canned: &Canned, reason: ImportReason) -> [ImportReport; 2] {
    let lab = lab().await;
    let source = source_at(&lab, canned);
    let reports = [run_probe(&source).await, run_import(&source, lab.target(MIB)).await];
    for report in &reports {
        assert_failed(report, reason);
        let json = report.to_termination_message();
        assert!(!json.contains("canary"), "{json}");
        assert!(json.len() <= 4096);
    }
    assert!(!lab.disk().exists());
    reports
}

#[tokio::test]
async fn redirects_to_places_of_the_node_are_refused_unasked() {
    let places = [
        "http://169.254.169.254/latest/meta-data/iam/security-credentials/",
        "http://[fe80::1]/",
        "http://[::ffff:169.254.169.254]/",
        "http://2852039166/",
        "http://0xa9fea9fe/",
        "http://0/",
        "http://127.0.0.1:10250/pods",
        "http://[::1]/",
        "http://[::]/",
        "http://224.0.0.1/",
        "http://100.100.100.200/",
        "https://192.0.0.192/",
    ];
    for to in places {
        let redirect = Fault::Redirect { to: to.to_owned() };
        let behaviour = Behaviour::new().always(redirect.on(On::Any));
        let lab = Lab::misbehaving(Content::bytes(fixtures::PLAIN.bytes), behaviour).await;
        // The most open rule there is: any host, besides the one of the test.
        for rule in
            [lab.hosts(), format!("{},http://*:80,https://*:443,http://*:10250", lab.hosts())]
        {
            let mut source = lab.source();
            source.access.hosts = rule.parse().unwrap();
            assert_failed(&run_probe(&source).await, ImportReason::AddressRefused);
        }
        assert_eq!(lab.counts().requests, 2, "{to}");
    }
}

/// A name that is judged at one address is connected at that address, whatever it leads to when
/// somebody asks again.
#[tokio::test]
async fn a_name_that_leads_elsewhere_a_moment_later_gains_nothing() {
    let lab = lab().await;
    let elsewhere = ImageServer::start().await.unwrap();
    elsewhere.add(PATH, Content::bytes(fixtures::PLAIN.bytes));
    let (here, there) = (lab.server.address(), elsewhere.address());
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let mut source = lab.source();
    source.url = format!("http://images.example:{}{PATH}", here.port()).parse().unwrap();
    source.access.hosts = format!("http://images.example:{}", here.port()).parse().unwrap();
    source.access.resolver = Resolver::new(move |_, _| {
        let address = if count.fetch_add(1, Ordering::Relaxed) == 0 { here } else { there };
        Box::pin(async move { Ok(vec![address]) })
    });
    assert_eq!(run_probe(&source).await.outcome, ImportOutcome::Complete);
    assert_eq!(asked.load(Ordering::Relaxed), 1, "asked once per connection");
    assert_eq!((lab.counts().requests, elsewhere.counts(PATH).requests), (1, 0));
}

#[tokio::test]
async fn a_name_with_one_bad_address_among_good_ones_is_not_connected_there() {
    let lab = lab().await;
    let port = lab.server.address().port();
    let mut source = lab.source();
    source.url = format!("http://images.example:{port}{PATH}").parse().unwrap();
    source.access.hosts = format!("http://*.example:{port}").parse().unwrap();
    source.access.resolver = Resolver::new(move |_, port| {
        let addresses: [IpAddr; 2] = ["127.0.0.1".parse().unwrap(), "::1".parse().unwrap()];
        let all = addresses.map(|address| SocketAddr::new(address, port)).to_vec();
        Box::pin(async move { Ok(all) })
    });
    let report = run_probe(&source).await;
    assert_failed(&report, ImportReason::AddressRefused);
    // What only the cluster's name service knows stays there.
    assert!(!report.message.contains("127.0.0.1"), "{}", report.message);
    assert_eq!(lab.counts().requests, 0);
}

#[tokio::test]
async fn an_endless_body_ends_with_us() {
    let chunk = b"10000\r\n".iter().copied().chain([7; 0x10000]).chain(*b"\r\n");
    let chunk: Vec<u8> = chunk.collect();
    let table = [
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", ImportReason::SizeUnknown),
        ("HTTP/1.1 200 OK\r\n\r\n", ImportReason::SizeUnknown),
    ];
    for (head, reason) in table {
        let canned = Canned::saying(vec![Saying::endlessly(head, chunk.clone())]).await;
        both(&canned, reason).await;
        assert!(canned.written() <= 2 * IN_FLIGHT, "{} bytes", canned.written());
    }
    let lab = lab().await;
    let head = "HTTP/1.1 206 Partial Content\r\ncontent-range: bytes 0-1048575/1048576\r\n\
                transfer-encoding: chunked\r\netag: \"a\"\r\n\r\n";
    let canned = Canned::saying(vec![Saying::endlessly(head, chunk)]).await;
    let report = run_import(&source_at(&lab, &canned), lab.target(MIB)).await;
    assert_failed(&report, ImportReason::LengthMismatch);
    assert!(report.bytes <= MIB + 64 * 1024, "{report:?}");
    assert!(canned.written() <= IN_FLIGHT + MIB, "{} bytes", canned.written());
}

#[tokio::test]
async fn heads_without_end_and_answers_that_are_none_are_lost_connections() {
    let head = Saying::endlessly("HTTP/1.1 200 OK\r\n", "x-canary: canary-canary\r\n".repeat(100));
    let canned = Canned::saying(vec![head]).await;
    both(&canned, ImportReason::ConnectionLost).await;
    assert!(canned.written() <= 2 * IN_FLIGHT, "{} bytes", canned.written());
    for garbage in ["canary\r\n\r\n", "HTTP/1.1 canary\r\n\r\n", "\0\0\0\0", ""] {
        both(&Canned::once(garbage).await, ImportReason::ConnectionLost).await;
    }
}

/// A source of which a byte comes now and then.
async fn dripping(every: Duration) -> Lab {
    let slow = Fault::Drip { bytes: 1, every };
    let behaviour = Behaviour::new().always(slow.on(On::Any));
    Lab::misbehaving(Content::bytes(fixtures::PLAIN.bytes), behaviour).await
}

/// A byte now and then is progress; none for a while is not.
#[tokio::test]
async fn a_drip_is_cut_when_it_dries_up() {
    let lab = dripping(Duration::from_millis(700)).await;
    let mut source = lab.source();
    source.timing.stall = Duration::from_millis(200);
    assert_failed(&run_probe(&source).await, ImportReason::NoProgress);
    let report = run_import(&source, lab.target(MIB)).await;
    assert_failed(&report, ImportReason::NoProgress);
    assert!(report.bytes <= 2, "{report:?}");
}

/// However steadily it drips: the source is told to be the cause, before the Job of a probe ends it.
#[tokio::test]
async fn a_first_look_that_drips_ends_by_itself() {
    let lab = dripping(Duration::from_millis(50)).await;
    let mut source = lab.source();
    source.timing.look = Duration::from_millis(600);
    let report = run_probe(&source).await;
    assert_failed(&report, ImportReason::NoProgress);
    assert!(report.message.contains("first bytes"), "{report:?}");
}

#[tokio::test]
async fn a_length_that_is_wrong_either_way_is_never_a_disk() {
    let long = 2 * fixtures::PLAIN.bytes.len() as u64;
    let behaviour = Behaviour::new().always(Fault::WrongLength { announced: long });
    let lab = Lab::misbehaving(Content::bytes(fixtures::PLAIN.bytes), behaviour).await;
    assert_failed(&lab.import(MIB).await, ImportReason::LengthMismatch);
    assert!(!lab.disk().exists());
    // Shorter than it is: what was announced is all there is, and the image ends in its middle.
    let short = fixtures::PLAIN.bytes.len() as u64 / 2;
    let behaviour = Behaviour::new().always(Fault::WrongLength { announced: short });
    let lab = Lab::misbehaving(Content::bytes(fixtures::PLAIN.bytes), behaviour).await;
    assert_failed(&lab.import(MIB).await, ImportReason::BadFormat);
    assert!(!lab.disk().exists());
    // More in one part than the whole has.
    let body = "c".repeat(3000);
    let part = format!(
        "HTTP/1.1 206 Partial Content\r\ncontent-range: bytes 0-999/1000\r\n\
         content-length: 3000\r\n\r\n{body}"
    );
    let lab = crate::hostile::lab().await;
    let canned = Canned::once(part).await;
    let report = run_import(&source_at(&lab, &canned), lab.target(MIB)).await;
    assert_failed(&report, ImportReason::LengthMismatch);
    assert!(!lab.disk().exists());
}

#[tokio::test]
async fn refusals_carry_no_body_and_no_query() {
    for (status, reason) in [
        ("403 canary", ImportReason::Forbidden),
        ("404 Not Found", ImportReason::SourceNotFound),
        ("500 Internal Server Error", ImportReason::ServerError),
        ("503 Service Unavailable", ImportReason::ServerError),
        ("201 Created", ImportReason::BadFormat),
    ] {
        let answer =
            format!("HTTP/1.1 {status}\r\nx-reason: canary\r\ncontent-length: 6\r\n\r\ncanary");
        both(&Canned::once(answer).await, reason).await;
    }
    for location in ["http://u:canary@h.example/", "canary:canary", "//u:canary@h.example"] {
        let answer =
            format!("HTTP/1.1 302 Found\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n");
        both(&Canned::once(answer).await, ImportReason::AddressRefused).await;
    }
}

/// A server that says what it was told, where that ends on record.
#[tokio::test]
async fn what_a_source_repeats_of_its_keys_is_not_on_record() {
    let answers = [
        "200 OK\r\netag: \"lab:sesame-canary\"\r\nlast-modified: sesame-canary\r\ncontent-length: 512",
        "302 Found\r\nlocation: /x/sesame-canary\r\ncontent-length: 0",
    ];
    for head in answers {
        let lab = lab().await;
        let said = [b"HTTP/1.1 ", head.as_bytes(), b"\r\n\r\n", &[7; 512]].concat();
        let canned = Canned::once(said).await;
        let mut source = source_at(&lab, &canned);
        source.credentials.keys = Some(Keys::new("lab", "sesame-canary"));
        for report in [run_probe(&source).await, run_import(&source, lab.target(MIB)).await] {
            let json = report.to_termination_message();
            assert!(!json.contains("canary"), "{json}");
            let (is_kept, is_redirect) = (report.source.is_some(), head.starts_with("302"));
            assert!(is_kept != is_redirect, "{json}");
        }
        let kept = fs::read_dir(lab.scratch())
            .unwrap()
            .map(|entry| fs::read(entry.unwrap().path()).unwrap());
        kept.for_each(|bytes| assert!(!String::from_utf8_lossy(&bytes).contains("canary")));
    }
}

/// Servers that say 200 and send an error, or something that stands for the image.
#[tokio::test]
async fn what_is_no_disk_is_none_whatever_its_length() {
    let text = r#"{"error":"canary"}"#.as_bytes();
    let archive = [&[b'x'; 257], b"ustar\x0000".as_slice(), &[0; 760]].concat();
    let page = [text, &[b' '; 1024 - 18]].concat();
    let packed = |bytes: &[u8]| pack(Compression::Gzip, bytes);
    for (body, reason) in [
        (text.to_vec(), ImportReason::BadFormat),
        (page.clone(), ImportReason::BadFormat),
        (vec![0; 513], ImportReason::BadFormat),
        (archive.clone(), ImportReason::UnsupportedFormat),
        (packed(&page), ImportReason::BadFormat),
        (packed(&archive), ImportReason::UnsupportedFormat),
    ] {
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
        let said = [head.as_bytes(), &body].concat();
        both(&Canned::once(said).await, reason).await;
    }
    // Only unpacking it tells that it ends within a sector.
    let lab = Lab::serving(Content::bytes(packed(&[0; 5000]))).await;
    assert_failed(&lab.import(MIB).await, ImportReason::BadFormat);
    assert!(!lab.disk().exists());
}

/// Numbers that no server means.
#[tokio::test]
async fn lengths_and_ranges_out_of_this_world_are_survived() {
    let most = u64::MAX;
    for head in [
        format!("206 P\r\ncontent-range: bytes 0-{most}/{most}\r\ncontent-length: 3\r\n"),
        "206 P\r\ncontent-range: bytes 99999999999999999999-1/1\r\ncontent-length: 3\r\n"
            .to_owned(),
        "206 P\r\ncontent-range: bytes 5-1/0\r\ncontent-length: 3\r\n".to_owned(),
        "206 P\r\ncontent-range: canary\r\ncontent-length: 3\r\n".to_owned(),
        "416 P\r\ncontent-range: bytes */99999999999999999999\r\ncontent-length: 3\r\n".to_owned(),
        format!("200 O\r\ncontent-length: {}\r\n", most - 2),
        "200 O\r\ncontent-length: -1\r\n".to_owned(),
    ] {
        let lab = lab().await;
        let canned = Canned::once(format!("HTTP/1.1 {head}\r\nabc")).await;
        let source = source_at(&lab, &canned);
        for report in [run_probe(&source).await, run_import(&source, lab.target(MIB)).await] {
            assert_eq!(report.outcome, ImportOutcome::Failed, "{head}: {report:?}");
            assert!(report.bytes <= 3, "{head}: {report:?}");
            assert!(!report.message.contains("canary"), "{report:?}");
        }
        let kept = lab.scratch().join("source");
        assert!(fs::metadata(kept).map_or(0, |file| file.len()) <= 3, "{head}");
    }
}

fn put_u64(image: &mut [u8], offset: usize, value: u64) {
    image[offset..offset + 8].copy_from_slice(&value.to_be_bytes());
}

/// A qcow2 image of which one field is what an attacker would write, as served.
#[tokio::test]
async fn images_that_lead_astray_are_terminal() {
    let get = |image: &[u8], at: usize| u64::from_be_bytes(image[at..at + 8].try_into().unwrap());
    let plain = fixtures::PLAIN.bytes;
    let l1 = usize::try_from(get(plain, 40)).unwrap();
    let l2_offset = get(plain, l1) & 0x00ff_ffff_ffff_fe00;
    let l2 = usize::try_from(l2_offset).unwrap();
    let used = (l2..).step_by(8).find(|at| get(plain, *at) != 0).unwrap();
    let copied = 1u64 << 63;
    let end = (plain.len() as u64).next_multiple_of(65_536);
    let table = [
        ("the first-level table in itself", l1, copied | l1 as u64),
        ("a second-level table in the header", l1, copied | 512),
        ("a second-level table behind the end", l1, copied | end),
        ("a second-level table at the end of all", l1, copied | 0x00ff_ffff_ffff_0000),
        ("a cluster that is its own table", used, copied | l2_offset),
        ("a cluster that is the first-level table", used, copied | l1 as u64),
        ("a cluster behind the end", used, copied | end),
        ("a compressed cluster behind the end", used, (1 << 62) | (end + 512)),
        ("refcounts in the first-level table", 48, !0xffff),
        ("a disk of 8 EiB", 24, i64::MAX as u64),
    ];
    for (what, offset, value) in table {
        let mut image = plain.to_vec();
        put_u64(&mut image, offset, value);
        let lab = Lab::serving(Content::bytes(image)).await;
        let report = lab.import(MIB).await;
        assert_eq!(report.outcome, ImportOutcome::Failed, "{what}");
        let reason = report.reason.unwrap();
        assert_eq!(reason.class(), FailureClass::Terminal, "{what}: {report:?}");
        assert!(!report.message.contains("unforeseen"), "{what}: {report:?}");
        assert!(!lab.disk().exists(), "{what}");
    }
}
