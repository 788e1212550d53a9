//! A cluster on its way up. Whoever stops waiting for it can rely on what a dropped cluster promises: all of it has ended.

use std::{
    fs,
    sync::mpsc::{Receiver, channel},
};

use tokio::task::JoinHandle;

use super::{
    Background, Error, LocalCluster,
    boot::{Ground, Parts, boot},
};
use crate::{options::Options, programs::Programs};

/// Dropping it ends what was started so far and blocks until that is done.
pub(super) struct Starting {
    /// None once it was taken into the cluster.
    background: Option<Background>,
    task: JoinHandle<Result<Parts, Error>>,
    /// Closes when the task holds nothing any more.
    let_go: Receiver<()>,
    ground: Ground,
}

impl Starting {
    /// The guard is there before the task that starts processes, so that there is never one that it cannot end.
    pub(super) fn begin(
        background: Background,
        programs: Programs,
        options: Options,
    ) -> Result<Self, Error> {
        let ground = Ground::lay(&options)?;
        let booting = boot(ground.clone(), programs, options);
        let (held, let_go) = channel();
        let task = background.runtime().spawn(async move {
            // Declared before the work, so dropped after it.
            let _held = held;
            booting.await
        });
        Ok(Self { background: Some(background), task, let_go, ground })
    }

    /// Waits until the cluster works.
    pub(super) async fn finish(mut self) -> Result<LocalCluster, Error> {
        let parts = (&mut self.task).await.map_err(Error::AwaitStart)??;
        let background = self.background.take().expect("it is taken here only");
        Ok(LocalCluster { parts, background })
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        let Some(mut background) = self.background.take() else {
            return;
        };
        // The guard first: it asks every process to end and waits for it. The task would kill them and wait for none.
        if let Err(error) = self.ground.guard.end() {
            tracing::warn!(%error, "could not wait for the guard");
        }
        self.task.abort();
        // Nothing is ever sent: this returns when the task is gone, which on another runtime does not depend on ours.
        let _ = self.let_go.recv();
        background.stop();
        // What the task made between the guard's end and its own.
        if let Some(directory) = self.ground.state.disposable() {
            let _ = fs::remove_dir_all(directory);
        }
    }
}
