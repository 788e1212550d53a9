//! One file through the importer, beside `curl` and `qemu-img convert` on the same file from the same server, alternating.
//! The importer hashes the source and the disk and flushes both, which the two do not: they are measured as they are used,
//! and with the sums and the flush added.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Context as _;
use image_server::{Content, ImageServer};

use crate::figures::{median, mib, ratio, time};
use crate::measured::Spent;
use crate::table::Table;
use crate::{out, programs};

/// Of the disk, in bytes.
const DISK: u64 = 512 << 20;
const ROUNDS: usize = 5;
/// What is written at a time.
const BLOCK: usize = 1 << 20;

/// A way from an address to a raw disk.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Importer,
    CurlAndQemu,
    CurlAndQemuVerified,
}

const WAYS: [Way; 3] = [Way::Importer, Way::CurlAndQemu, Way::CurlAndQemuVerified];

pub(crate) async fn run() -> anyhow::Result<()> {
    programs::installed("curl", "curl")?;
    programs::installed("qemu-img", "qemu-utils")?;
    let folder = tempfile::tempdir()?;
    let raw = folder.path().join("disk.raw");
    write_disk(&raw)?;
    let server = ImageServer::start().await?;
    for (name, options) in [("plain", &[][..]), ("compressed", &["-c"][..])] {
        let image = folder.path().join(name);
        make_image(&raw, &image, options)?;
        let size = fs::metadata(&image)?.len();
        server.add(name, Content::file(&image)?);
        out::line(&format!(
            "{name} qcow2 by qemu-img: a disk of {}, a file of {}.\n",
            mib(DISK),
            mib(size)
        ));
        let lab = Lab { folder: folder.path().to_owned(), server: &server, name };
        let spent = lab.rounds().await?;
        out::line(&told(&spent, size));
    }
    Ok(())
}

/// Half noise, a quarter text, a quarter holes: in turns, so that clusters of each kind follow each other.
fn write_disk(path: &Path) -> anyhow::Result<()> {
    let mut disk = File::create(path)?;
    let mut noise = 0x9e37_79b9_7f4a_7c15_u64;
    for block in 0..usize::try_from(DISK)? / BLOCK {
        disk.write_all(&block_of(block, &mut noise))?;
    }
    Ok(disk.sync_all()?)
}

fn block_of(number: usize, noise: &mut u64) -> Vec<u8> {
    match number % 4 {
        0 => vec![0; BLOCK],
        1 => {
            let line = format!("{number:08} a line of a log, as disks hold many of them\n");
            line.into_bytes().into_iter().cycle().take(BLOCK).collect()
        }
        _ => {
            let words = std::iter::repeat_with(|| {
                // xorshift64: does not compress.
                *noise ^= *noise << 13;
                *noise ^= *noise >> 7;
                *noise ^= *noise << 17;
                noise.to_le_bytes()
            });
            words.take(BLOCK / 8).flatten().collect()
        }
    }
}

fn make_image(raw: &Path, image: &Path, options: &[&str]) -> anyhow::Result<()> {
    let mut convert = Command::new("qemu-img");
    convert.args(["convert", "-f", "raw", "-O", "qcow2"]).args(options).arg(raw).arg(image);
    let status = convert.status().context("cannot run qemu-img")?;
    anyhow::ensure!(status.success(), "qemu-img ended with {status}");
    Ok(())
}

/// One file, and room for what is made of it.
struct Lab<'a> {
    folder: PathBuf,
    server: &'a ImageServer,
    name: &'static str,
}

impl Lab<'_> {
    async fn rounds(&self) -> anyhow::Result<Vec<(Way, Spent)>> {
        let mut all = Vec::new();
        for round in 1..=ROUNDS {
            out::doing(&format!("{} qcow2, round {round} of {ROUNDS}", self.name));
            for way in WAYS {
                all.push((way, self.go(way).await?));
            }
        }
        Ok(all)
    }

    /// Goes one way, from nothing.
    async fn go(&self, way: Way) -> anyhow::Result<Spent> {
        let room = self.folder.join("room");
        if room.exists() {
            fs::remove_dir_all(&room)?;
        }
        for folder in ["disk", "scratch"] {
            fs::create_dir_all(room.join(folder))?;
        }
        let report = room.join("spent.json");
        let mut command = tokio::process::Command::new(programs::ours("bench")?);
        command.arg("measured").arg("--report").arg(&report).arg("--");
        command.args(self.command(way, &room)?).kill_on_drop(true);
        let output = command.output().await?;
        let complaint = String::from_utf8_lossy(&output.stderr);
        anyhow::ensure!(output.status.success(), "{}: {}", way.name(), complaint.trim());
        self.check(&room)?;
        Ok(serde_json::from_slice(&fs::read(&report)?)?)
    }

    fn command(&self, way: Way, room: &Path) -> anyhow::Result<Vec<String>> {
        let (url, room) = (self.server.url(self.name), room.display());
        let curl_and_qemu = format!(
            "curl -sSf -o {room}/file {url} && qemu-img convert -f qcow2 -O raw {room}/file {room}/disk/disk.img"
        );
        let shell = |line: String| ["sh", "-c", &line].map(str::to_owned).to_vec();
        Ok(match way {
            Way::CurlAndQemu => shell(curl_and_qemu),
            Way::CurlAndQemuVerified => shell(format!(
                "{curl_and_qemu} && sha256sum {room}/file {room}/disk/disk.img >{room}/sums && sync {room}/disk/disk.img"
            )),
            Way::Importer => vec![
                programs::ours("disk-importer")?.display().to_string(),
                "import".to_owned(),
                format!("--url={url}"),
                format!("--allowed-source-hosts=http://{}", self.server.address()),
                format!("--disk-size={DISK}"),
                format!("--output={room}/disk/disk.img"),
                format!("--scratch={room}/scratch"),
                format!("--termination-log={room}/report"),
            ],
        })
    }

    /// It is the disk that the file was made of: a fast way to something else would be no way.
    fn check(&self, room: &Path) -> anyhow::Result<()> {
        let same = Command::new("cmp")
            .arg(self.folder.join("disk.raw"))
            .arg(room.join("disk/disk.img"))
            .status()
            .context("cannot run cmp")?;
        anyhow::ensure!(same.success(), "it brought another disk");
        Ok(())
    }
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Self::Importer => "disk-importer",
            Self::CurlAndQemu => "curl && qemu-img",
            Self::CurlAndQemuVerified => "the same, sha256sum of both, sync",
        }
    }
}

/// Medians of each way, and the importer's over them.
fn told(spent: &[(Way, Spent)], size: u64) -> Table {
    let mut table = Table::new([
        "median of 5",
        "time",
        "of the file",
        "CPU",
        "RSS at its peak",
        "importer's time over it",
        "CPU",
        "RSS",
    ]);
    let middle = |way: Way, of: fn(&Spent) -> f64| {
        median(spent.iter().filter(|(it, _)| *it == way).map(|(_, spent)| of(spent))).unwrap_or(0.0)
    };
    let wall = |spent: &Spent| spent.wall.as_secs_f64();
    let cpu = |spent: &Spent| spent.cpu.as_secs_f64();
    for way in WAYS {
        let over = |of: fn(&Spent) -> f64| ratio(middle(Way::Importer, of), middle(way, of));
        let rate = megabytes(size) / middle(way, wall).max(f64::MIN_POSITIVE);
        table.row([
            way.name().to_owned(),
            time(Duration::from_secs_f64(middle(way, wall))),
            format!("{rate:.0} MB/s"),
            time(Duration::from_secs_f64(middle(way, cpu))),
            format!("{:.1} MiB", middle(way, peak)),
            over(wall),
            over(cpu),
            over(peak),
        ]);
    }
    table
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn peak(spent: &Spent) -> f64 {
    spent.peak as f64 / f64::from(1 << 20)
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_has_holes_text_and_noise() {
        let mut noise = 1;
        let blocks: Vec<Vec<u8>> = (0..4).map(|number| block_of(number, &mut noise)).collect();
        assert!(blocks.iter().all(|block| block.len() == BLOCK));
        assert!(blocks[0].iter().all(|byte| *byte == 0));
        assert!(blocks[1].is_ascii());
        assert_ne!(blocks[2], blocks[3], "noise does not repeat");
        assert!(!blocks[2][..8].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn ratios_are_of_medians() {
        let spent = |millis, mib: u64| Spent {
            wall: Duration::from_millis(millis),
            cpu: Duration::from_millis(millis / 2),
            peak: mib << 20,
        };
        let all = [
            (Way::Importer, spent(1000, 10)),
            (Way::Importer, spent(9000, 90)),
            (Way::Importer, spent(2000, 20)),
            (Way::CurlAndQemu, spent(4000, 40)),
        ];
        let table = told(&all, 8_000_000).to_string();
        let row = table.lines().find(|line| line.contains("curl")).unwrap();
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        assert_eq!(
            cells[2..9],
            ["4.00 s", "2 MB/s", "2.00 s", "40.0 MiB", "0.50 ×", "0.50 ×", "0.50 ×"]
        );
    }
}
