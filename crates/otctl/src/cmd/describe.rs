//! `otctl describe`: each object as a tree.

use std::process::ExitCode;

use crate::cli::DescribeArgs;
use crate::selection::{self, Selected, Unnamed};
use crate::{client, out};

/// Prints a tree for each object.
pub(crate) async fn run(args: &DescribeArgs) -> anyhow::Result<ExitCode> {
    let cluster = client::connect(&args.scope.place.cluster).await?;
    let Selected { found, missing } =
        selection::look_up(&cluster, &args.objects, &args.scope, Unnamed::All).await?;
    if found.is_empty() && missing.is_empty() {
        out::remark(&selection::nothing(&args.objects, &args.scope, &cluster.namespace));
    }
    for (index, one) in found.iter().enumerate() {
        if index > 0 {
            out::line("");
        }
        out::text(&one.kind.describe(&cluster, &one.object).await?.text());
    }
    Ok(out::errors(&missing))
}
