//! Whether the node can talk to the API server. Every read and write of a node waits for it.

use tokio::sync::watch;

pub(super) struct Link {
    up: watch::Sender<bool>,
}

impl Link {
    pub(super) fn new() -> Self {
        Self { up: watch::Sender::new(true) }
    }

    pub(super) fn cut(&self) {
        self.up.send_replace(false);
    }

    pub(super) fn restore(&self) {
        self.up.send_replace(true);
    }

    pub(super) fn is_up(&self) -> bool {
        *self.up.borrow()
    }

    /// Returns at once while the link is up, else when it is restored.
    pub(super) async fn up(&self) {
        let mut up = self.up.subscribe();
        up.wait_for(|up| *up).await.expect("the sender lives as long as self");
    }
}
