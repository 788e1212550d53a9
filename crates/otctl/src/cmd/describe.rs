//! `otctl describe`: each object as a tree.

use std::process::ExitCode;

use crate::cli::DescribeArgs;
use crate::selection::{self, Unnamed};
use crate::{client, out};

/// Prints a tree for each object.
pub(crate) async fn run(args: &DescribeArgs) -> anyhow::Result<ExitCode> {
    let cluster = client::connect(&args.scope.place.cluster).await?;
    let found = selection::find(&cluster, &args.objects, &args.scope, Unnamed::All).await?;
    for (index, one) in found.iter().enumerate() {
        if index > 0 {
            out::line("");
        }
        out::text(&one.kind.describe(&cluster, &one.object).await?.text());
    }
    Ok(ExitCode::SUCCESS)
}
