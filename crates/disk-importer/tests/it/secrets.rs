//! Whatever is secret reaches the source and nothing else: not the report, not standard error at
//! any level, not the progress, not the volumes.

use std::fs;
use std::path::Path;

use image_server::{Behaviour, Content, Fault};
use otctl_types::import::ImportReason;
use tokio::time::timeout;

use crate::lab::{Lab, MIB, PATH, assert_failed};
use crate::program::{GUARD, Program};
use crate::store::{BUCKET, Demands, KEY_ID, SECRET, Store};

/// Every secret of these tests has it in it.
const CANARY: &str = "canary";

fn secret(lab: &Lab, keys: &[(&str, &str)]) -> String {
    let directory = lab.directory.path().join("secret");
    fs::create_dir_all(&directory).unwrap();
    for (name, value) in keys {
        fs::write(directory.join(name), value).unwrap();
    }
    format!("--secret-dir={}", directory.display())
}

/// Runs `program` as talkative as it can be; nothing it leaves has the canary in it.
async fn run_silently(lab: &Lab, mut program: Program) -> Program {
    program.environment.push(("RUST_LOG", "trace"));
    program.environment.push(("RUST_BACKTRACE", "full"));
    let child = program.start();
    let output = timeout(GUARD, child.wait_with_output()).await.unwrap().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).to_lowercase();
    assert!(told.contains("ended"), "{told}");
    assert!(!told.contains(CANARY), "{told}");
    let report = program.report().unwrap().to_termination_message().to_lowercase();
    assert!(!report.contains(CANARY), "{report}");
    for volume in [lab.scratch(), lab.disk().parent().unwrap().to_owned()] {
        assert_clean(&volume);
    }
    program
}

fn assert_clean(volume: &Path) {
    for entry in fs::read_dir(volume).unwrap() {
        let path = entry.unwrap().path();
        let bytes = fs::read(&path).unwrap().to_ascii_lowercase();
        let found = bytes.windows(CANARY.len()).any(|window| window == CANARY.as_bytes());
        assert!(!found, "in {}", path.display());
    }
}

#[tokio::test]
async fn keys_of_a_web_server_reach_only_it() {
    for fault in [None, Some(Fault::status(403)), Some(Fault::cut(1000))] {
        let mut behaviour = Behaviour::new();
        if let Some(fault) = fault {
            behaviour = behaviour.then(fault);
        }
        let lab = Lab::misbehaving(Content::generated(MIB, 71), behaviour).await;
        let keys = secret(&lab, &[("accessKeyId", "lab-canary"), ("secretKey", "sesame-canary")]);
        let mut program = Program::import(&lab, MIB).with(keys);
        program.arguments[1] = format!("--url={}?X-Amz-Signature=canary", lab.server.url(PATH));
        program.environment.push(("OTCTL_PROGRESS_KEY", "progress-canary"));
        run_silently(&lab, program).await;
        assert!(lab.counts().requests > 0);
    }
}

#[tokio::test]
async fn keys_of_an_object_store_reach_only_it() {
    let demands = Demands { session_token: Some("token-canary"), ..Demands::default() };
    let store = Store::start(demands).await;
    store.put("image", &vec![7; usize::try_from(MIB).unwrap()]);
    for (token, names) in [
        ("token-canary", ["accessKeyId", "secretKey", "sessionToken"]),
        ("stale-canary", ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"]),
    ] {
        let lab = Lab::serving(Content::bytes(*b"")).await;
        let values = [KEY_ID, SECRET, token];
        let keys: Vec<_> = names.into_iter().zip(values).collect();
        let mut program = Program::import(&lab, MIB)
            .with(secret(&lab, &keys))
            .with("--source-type=s3".to_owned())
            .with(format!("--allowed-source-hosts=http://{}", store.address));
        program.arguments[1] = format!("--url=http://{}/{BUCKET}/image", store.address);
        program.arguments.remove(2);
        let program = run_silently(&lab, program).await;
        let report = program.report().unwrap();
        if token == "token-canary" {
            assert_eq!(report.bytes, MIB, "{report:?}");
        } else {
            assert_failed(&report, ImportReason::Forbidden);
        }
    }
}

#[tokio::test]
async fn arguments_that_cannot_be_read_are_not_shown_when_they_are_secret() {
    let lab = Lab::serving(Content::bytes(*b"")).await;
    let mut program = Program::import(&lab, MIB).with("--disk-size=many".to_owned());
    program.arguments[1] = "--url=http://lab:canary@h.example/?canary".to_owned();
    program.environment.push(("OTCTL_PROGRESS_KEY", "progress-canary"));
    let output = timeout(GUARD, program.start().wait_with_output()).await.unwrap().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("disk-size") && !told.contains(CANARY), "{told}");
    assert_eq!(output.status.code(), Some(2));
}
