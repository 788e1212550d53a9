//! The rules of `VMDiskImage`, one by one, judged as an API server judges them.

use serde_json::{Value, json};

use crate::judge::{self, merge};

const FROZEN: &str = "cannot change any more";
const DISK_SIZE: &str = "diskSize is a size above 0 and at most 64Ti";

/// An image as it is stored, with every field of what makes the data, changed by a merge.
fn image(change: &Value) -> Value {
    let mut image = json!({
        "apiVersion": "pelotech.ot/v1alpha1", "kind": "VMDiskImage", "metadata": {"name": "debian"},
        "spec": {
            "url": "https://images.example.com/debian.qcow2", "sourceType": "http", "name": "debian",
            "checksum": format!("sha256:{}", "0".repeat(64)), "diskSize": "24Gi", "storageClass": "fast",
            "snapshotClass": "fast-snapshots", "volumeMode": "Filesystem", "accessModes": ["ReadWriteOnce"],
            "refresh": "1", "suspend": false, "secretRef": "keys", "keepVolume": false,
        },
    });
    merge(&mut image, change);
    image
}

fn synced(change: &Value) -> Value {
    let mut image = image(change);
    merge(&mut image, &json!({"status": {"phase": "Succeeded", "current": {"revision": "r1"}}}));
    image
}

/// The messages of the rules that `new` breaks.
fn broken(new: &Value, old: Option<&Value>) -> Vec<String> {
    judge::broken("VMDiskImage", new, old)
}

/// Every field that makes the data, another value, and whether it may be absent.
fn frozen() -> Vec<(&'static str, Value, bool)> {
    vec![
        ("url", json!("https://images.example.com/other.qcow2"), false),
        ("sourceType", json!("s3"), false),
        ("checksum", json!(format!("sha256:{}", "1".repeat(64))), true),
        ("diskSize", json!("25Gi"), true),
        ("storageClass", json!("slow"), true),
        ("snapshotClass", json!("slow-snapshots"), true),
        ("volumeMode", json!("Block"), false),
        ("accessModes", json!(["ReadWriteMany"]), false),
        ("refresh", json!("2"), true),
    ]
}

fn is_frozen(broken: &[String]) -> bool {
    matches!(broken, [only] if only.contains(FROZEN))
}

#[test]
fn what_makes_the_data_is_frozen_once_there_is_data() {
    let old = synced(&json!({}));
    for (field, value, may_be_absent) in frozen() {
        let changed = broken(&synced(&json!({"spec": {field: value}})), Some(&old));
        assert!(is_frozen(&changed), "{field} changed: {changed:?}");
        if may_be_absent {
            let without = synced(&json!({"spec": {field: null}}));
            let removed = broken(&without, Some(&old));
            assert!(is_frozen(&removed), "{field} removed: {removed:?}");
            let added = broken(&old, Some(&without));
            assert!(is_frozen(&added), "{field} added: {added:?}");
            assert_eq!(
                broken(&without, Some(&without)),
                Vec::<String>::new(),
                "{field} absent, unchanged"
            );
        }
    }
}

#[test]
fn everything_may_be_edited_until_there_is_data() {
    let states = [
        json!({}),
        json!({"status": {}}),
        json!({"status": {"phase": "Failed", "lastAttempt": 3}}),
    ];
    for state in states {
        let mut old = image(&json!({}));
        merge(&mut old, &state);
        for (field, value, _) in frozen() {
            let mut new = old.clone();
            new["spec"][field] = value;
            assert_eq!(broken(&new, Some(&old)), Vec::<String>::new(), "{field} in {state}");
        }
    }
}

#[test]
fn credentials_in_the_address_are_refused_with_where_they_go() {
    for url in ["https://user:password@images.example.com/a", "http://user@images.example.com"] {
        let refused = broken(&image(&json!({"spec": {"url": url}})), None);
        assert!(matches!(&*refused, [only] if only.contains("secretRef")), "{url}: {refused:?}");
    }
    for url in ["https://images.example.com/a@b", "https://images.example.com?to=a@b"] {
        let refused = broken(&image(&json!({"spec": {"url": url}})), None);
        assert_eq!(refused, Vec::<String>::new(), "{url}");
    }
}

#[test]
fn what_has_another_form_is_refused_with_a_sentence() {
    let sentences = [
        ("url", "for S3 write https://BUCKET.s3.REGION.amazonaws.com/KEY", "s3://bucket/key"),
        ("url", "is an http or https address", "ftp://x/y"),
        ("url", "is an http or https address", ""),
        ("url", "without spaces", "https://images.example.com/de bian.qcow2"),
        ("checksum", "64 hexadecimal digits in lower case", "md5:00"),
        ("checksum", "as sha256sum prints them", &format!("sha512:{}", "a".repeat(128))),
        ("checksum", "in lower case", &format!("sha256:{}", "A".repeat(64))),
        ("secretRef", "is the name of a Secret in the namespace of the image", "other/keys"),
        ("secretRef", "lower-case letters", "Keys"),
        ("storageClass", "leave it out for the default", ""),
        ("snapshotClass", "see kubectl get volumesnapshotclass", "Snap"),
    ];
    for (field, sentence, value) in sentences {
        let found = broken(&image(&json!({"spec": {field: value}})), None);
        assert!(
            matches!(&found[..], [only] if only.starts_with(field) && only.contains(sentence)),
            "{field} = {value:?}: {found:?}"
        );
    }
    for url in ["http://a", "https://a", "https://[::1]:8443/a?b#c", "http://127.0.0.1:99999/x"] {
        let found = broken(&image(&json!({"spec": {"url": url}})), None);
        assert_eq!(found, Vec::<String>::new(), "{url}");
    }
}

#[test]
fn the_rest_may_be_edited_at_any_time() {
    let old = synced(&json!({}));
    let edits = [
        json!({"spec": {"name": "other"}}),
        json!({"spec": {"name": null}}),
        json!({"spec": {"secretRef": "other"}}),
        json!({"spec": {"secretRef": null}}),
        json!({"spec": {"keepVolume": true}}),
        json!({"spec": {"keepVolume": null}}),
        json!({"spec": {"suspend": true}}),
        json!({"metadata": {"annotations": {"pelotech.ot/retry": "1"}}}),
    ];
    for edit in edits {
        assert_eq!(broken(&synced(&edit), Some(&old)), Vec::<String>::new(), "{edit}");
    }
}

#[test]
fn status_moves_on_whatever_stands_in_it() {
    let old = synced(&json!({}));
    let lost = image(&json!({"status": {"phase": "Queued", "lastLossAt": "2026-01-01T00:00:00Z"}}));
    assert_eq!(broken(&lost, Some(&old)), Vec::<String>::new());
    assert_eq!(broken(&old, Some(&lost)), Vec::<String>::new());
}

#[test]
fn a_disk_size_is_above_zero_and_at_most_64_tebibytes() {
    for size in [
        "1",
        "24Gi",
        "1.5Gi",
        "0.5Ki",
        "500M",
        "64Ti",
        "65536Gi",
        "70368744177664",
        "0.0625Pi",
        "64T",
    ] {
        let new = image(&json!({"spec": {"diskSize": size}}));
        assert_eq!(broken(&new, None), Vec::<String>::new(), "{size}");
    }
    for size in
        ["0", "0Gi", "0.0", "64.1Ti", "70368744177665", "65Ti", "1Pi", "99999999999999999999P"]
    {
        let found = broken(&image(&json!({"spec": {"diskSize": size}})), None);
        assert!(matches!(&found[..], [only] if only.contains(DISK_SIZE)), "{size}: {found:?}");
    }
}

#[test]
fn an_image_without_optional_fields_breaks_no_rule() {
    let least = json!({
        "metadata": {"name": "debian"},
        "spec": {"url": "https://images.example.com/debian.qcow2", "sourceType": "http",
                 "volumeMode": "Filesystem", "accessModes": ["ReadWriteOnce"], "suspend": false},
    });
    assert_eq!(broken(&least, None), Vec::<String>::new());
    assert_eq!(broken(&least, Some(&least)), Vec::<String>::new());
}
