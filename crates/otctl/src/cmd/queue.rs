//! `otctl queue`: what runs, what waits, and why.

use std::collections::BTreeSet;
use std::process::ExitCode;

use anyhow::Context as _;

use crate::cli::{Format, QueueArgs};
use crate::live::Live;
use crate::queue::{Row, Table};
use crate::view::{self, Picture, View};
use crate::{client, out};

/// Shows the queue: once, or as it changes.
pub(crate) async fn run(args: &QueueArgs) -> anyhow::Result<ExitCode> {
    let cluster = client::connect(&args.cluster).await?;
    let mut live = Live::open(&cluster.client).await.with_context(|| cluster.address)?;
    match args.output {
        Some(Format::Json) => out::line(&json(&asked_for(live.table(), args))?),
        None if args.once => out::line(&text(&asked_for(live.table(), args), args)),
        None => follow(&mut live, args).await?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Until Ctrl-C, which ends the process: there is nothing to clean up. What ends while it is followed stays in view.
async fn follow(live: &mut Live, args: &QueueArgs) -> anyhow::Result<()> {
    // Lines come with changes only, and there may be none for long.
    if !out::is_terminal() {
        out::line(&format!("{}; followed until Ctrl-C", headline(&live.table(), args)));
    }
    let mut view = View::for_output();
    let mut followed = BTreeSet::new();
    loop {
        let table = live.table().only(|row| is_here(row, args));
        let unfinished = table.images.iter().filter(|row| !row.has_ended());
        followed.extend(unfinished.map(|row| (row.namespace.clone(), row.name.clone())));
        view.tell(
            live.broken()
                .map(|why| format!("not up to date, the API server cannot be asked: {why}")),
        );
        view.show(&Picture::of(&table.only(|row| {
            args.all || followed.contains(&(row.namespace.clone(), row.name.clone()))
        })));
        live.changed().await?;
    }
}

fn asked_for(table: Table, args: &QueueArgs) -> Table {
    table.only(|row| is_here(row, args) && (args.all || !row.has_ended()))
}

fn is_here(row: &Row, args: &QueueArgs) -> bool {
    args.namespace.as_ref().is_none_or(|namespace| *namespace == row.namespace)
}

fn json(table: &Table) -> anyhow::Result<String> {
    serde_json::to_string_pretty(table).context("the queue cannot be written as JSON")
}

/// What holds for the whole queue, with the way to what is not shown.
fn headline(table: &Table, args: &QueueArgs) -> String {
    let hint = if table.failed > 0 && !args.all { " (-a shows what has ended)" } else { "" };
    view::headline(table) + hint
}

fn text(table: &Table, args: &QueueArgs) -> String {
    let header =
        ["POSITION", "NAMESPACE", "NAME", "PHASE", "REASON", "ATTEMPT", "PROGRESS", "MESSAGE"];
    let rows = table.images.iter().map(cells);
    format!("{}\n{}", headline(table, args), out::table(&header, rows))
}

fn cells(row: &Row) -> [String; 8] {
    let number = |number: Option<String>| number.unwrap_or_else(|| "-".to_owned());
    [
        number(row.position.map(|position| position.to_string())),
        row.namespace.clone(),
        row.name.clone(),
        view::phase(row.phase).to_owned(),
        row.reason.clone(),
        number(row.attempt.map(|attempt| attempt.to_string())),
        number(row.progress().percent().map(|percent| format!("{percent}%"))),
        row.message.clone(),
    ]
}
