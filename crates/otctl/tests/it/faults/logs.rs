//! Nobody reads the log: the pipe is full, and the controller goes on.

use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;

use image_server::Content;
use nix::sys::stat::Mode;
use otctl::installation::{ControllerProcess, Launch};
use otctl_types::diskimage::Phase;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::SIZE;
use crate::stage::{Stage, until, well_behaved};

/// Every line that there is.
const LOG: &str = "--log-level=trace";

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_nobody_reads_holds_nothing_up() {
    let stage = Stage::set(&[("concurrency", "3")]).await;
    let program = PathBuf::from(env!("CARGO_BIN_EXE_otctl"));
    let mut launch = Launch::on(stage.cluster(), program).await.unwrap();
    launch.log = launch.log.with_extension("pipe");
    launch.flags = vec![LOG.to_owned(), "--leader-election=false".to_owned()];
    nix::unistd::mkfifo(&launch.log, Mode::S_IRWXU).unwrap();
    // Open at both ends, or the controller would wait for a reader before it starts.
    let pipe = OpenOptions::new().read(true).write(true).open(&launch.log).unwrap();
    let controller = ControllerProcess::start(&launch).unwrap();
    let reader = pipe.try_clone().unwrap();
    let address = tokio::task::spawn_blocking(move || address(&reader)).await.unwrap();

    sync(&stage, "before").await;
    let mut touches = 0;
    let dropped = until("lines are dropped", async || {
        for _ in 0..100 {
            touches += 1;
            let patch = json!({"metadata": {"annotations": {"touched": touches.to_string()}}});
            stage.patch("before", &patch).await;
        }
        Some(dropped(address).await).filter(|dropped| *dropped > 0.0)
    })
    .await;
    sync(&stage, "after").await;
    println!(
        "after {touches} edits that nobody read of, {dropped} lines were dropped, and an image succeeded"
    );
    controller.stop().await.unwrap();
    drop(pipe);
    stage.finish().await;
}

async fn sync(stage: &Stage, name: &str) {
    stage.create(&stage.image(name, Content::generated(SIZE, 1), well_behaved())).await;
    stage.await_phase(name, Phase::Succeeded).await;
}

/// The address of its server, from the beginning of its log; the rest stays unread.
fn address(pipe: &File) -> SocketAddr {
    let mut lines = BufReader::new(pipe).lines();
    let line = lines.find_map(|line| line.ok().filter(|line| line.contains("\"listening\"")));
    let line: Value = serde_json::from_str(&line.expect("it listens")).unwrap();
    line["address"].as_str().unwrap().parse().unwrap()
}

/// How many lines were dropped, as the controller counts them.
async fn dropped(address: SocketAddr) -> f64 {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n")
        .await
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let line = answer.lines().find(|line| line.starts_with("otctl_log_lines_dropped "));
    line.expect("it is counted").rsplit(' ').next().unwrap().parse().unwrap()
}
