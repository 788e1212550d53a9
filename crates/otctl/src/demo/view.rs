//! The live view of the demo: the queue's rows, with the bytes that the image server counted in place of those that
//! the controller wrote down a while ago, and below them the workspace.

use std::collections::BTreeMap;
use std::time::Duration;

use image_server::{ImageServer, Totals};
use tokio::sync::watch;

use super::chronicle::Chronicle;
use super::scenario::Scene;
use crate::live::Live;
use crate::queue::{Row, Table};
use crate::view::{Picture, View};

/// Bytes change with every write; people see ten pictures a second as movement.
const BETWEEN_PICTURES: Duration = Duration::from_millis(100);

/// Shows until every image has ended, and the workspace too.
pub(crate) async fn show_until_ended(
    live: &mut Live,
    chronicle: &mut Chronicle,
    server: &ImageServer,
    scenes: &[Scene],
) -> anyhow::Result<()> {
    let mut view = View::for_output();
    let mut counted = server.watch_totals();
    loop {
        let table = counted_by(server, scenes, live.table());
        let story = chronicle.story();
        let mut picture = Picture::of(&table);
        // The report at the end has the sentences.
        picture.items.iter_mut().for_each(|item| item.message.clear());
        picture.items.extend(story.item());
        view.show(&picture);
        if has_ended(&table, scenes) && story.has_ended() {
            return Ok(());
        }
        tokio::select! {
            changed = live.changed() => changed?,
            changed = chronicle.changed() => changed?,
            () = moved(&mut counted) => {}
        }
        tokio::time::sleep(BETWEEN_PICTURES).await;
    }
}

/// Waits until the server has counted something; for ever once it is gone.
async fn moved(counted: &mut watch::Receiver<Totals>) {
    if counted.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// The rows in the order of the scenes, so that none moves, with the server's counts.
fn counted_by(server: &ImageServer, scenes: &[Scene], mut table: Table) -> Table {
    let order: BTreeMap<&str, usize> =
        scenes.iter().enumerate().map(|(index, scene)| (scene.name, index)).collect();
    table.images.sort_by_key(|row| order.get(row.name.as_str()).copied());
    for row in &mut table.images {
        let Some(scene) = order.get(row.name.as_str()).map(|index| &scenes[*index]) else {
            continue;
        };
        let counts = server.counts(&scene.path());
        row.bytes = Some(counts.bytes - counts.probe_bytes).filter(|_| scene.size().is_some());
        row.total_bytes = scene.size();
    }
    table
}

fn has_ended(table: &Table, scenes: &[Scene]) -> bool {
    table.images.len() >= scenes.len() && table.images.iter().all(Row::has_ended)
}
