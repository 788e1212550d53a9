//! Tasks that last as long as the controller does.

use tokio::task::{JoinError, JoinHandle, JoinSet};

use super::RunError;

/// Tasks that are not to end before they are told; all end when this is dropped.
#[derive(Default)]
pub(super) struct Lasting {
    tasks: JoinSet<(&'static str, Option<JoinError>)>,
}

impl Lasting {
    pub(super) fn spawn(
        &mut self,
        what: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        self.keep(what, tokio::spawn(task));
    }

    pub(super) fn keep(&mut self, what: &'static str, task: JoinHandle<()>) {
        let task = AbortOnDrop(task);
        self.tasks.spawn(async move { (what, task.await) });
    }

    /// Waits until one ends, for ever if there is none.
    pub(super) async fn first_end(&mut self) -> RunError {
        match self.tasks.join_next().await {
            Some(Ok((what, source))) => RunError::EndEarly { what, source },
            Some(Err(error)) => RunError::EndEarly { what: "runtime", source: Some(error) },
            None => std::future::pending().await,
        }
    }

    pub(super) async fn all_end(&mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}

/// A task that does not outlive who waits for it.
struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Future for AbortOnDrop {
    type Output = Option<JoinError>;

    fn poll(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Self::Output> {
        std::pin::Pin::new(&mut self.0).poll(cx).map(Result::err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_task_that_dies_is_told_with_its_panic() {
        let mut lasting = Lasting::default();
        lasting.spawn("server", std::future::pending());
        lasting.spawn("watch", async { panic!("on purpose") });
        let RunError::EndEarly { what, source } = lasting.first_end().await else {
            panic!("another error")
        };
        assert_eq!((what, source.is_some_and(|error| error.is_panic())), ("watch", true));
    }

    #[tokio::test]
    async fn no_task_outlives_its_keeper() {
        let (alive, mut ended) = tokio::sync::mpsc::channel::<()>(1);
        let mut lasting = Lasting::default();
        lasting.spawn("server", async move {
            std::future::pending::<()>().await;
            drop(alive);
        });
        tokio::task::yield_now().await;
        drop(lasting);
        assert_eq!(ended.recv().await, None);
    }
}
