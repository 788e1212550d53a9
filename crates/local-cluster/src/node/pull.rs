//! An image that is not there: pulled in vain again and again, as kubelet and containerd tell it.

use super::backoff;
use super::container_run::ContainerRun;
use super::pod_events::Gravity;

impl ContainerRun {
    /// Pulls until the pod is to end. The longer it fails, the longer it waits.
    pub(super) async fn pull_in_vain(&mut self) {
        let image = self.container.image.clone().unwrap_or_default();
        if self.container.image_pull_policy.as_deref() == Some("Never") {
            let message =
                format!("Container image \"{image}\" is not present with pull policy of Never");
            self.say(Gravity::Warning, "ErrImageNeverPull", &message);
            self.report.wait("ErrImageNeverPull", message);
            self.tell();
            return self.orders.until_end().await;
        }
        let cause = not_found(&image);
        for failures in 1.. {
            // kubelet tells of the backoff when it looks again, which is some time after the failure.
            let half = backoff::delay(self.context.backoff, failures) / 2;
            self.tell_failure(&image, &cause);
            if !self.goes_on_after(half).await {
                return;
            }
            self.tell_back_off_pulling(&image, &cause);
            if !self.goes_on_after(half).await {
                return;
            }
        }
    }

    fn tell_failure(&mut self, image: &str, cause: &str) {
        self.report.wait("ErrImagePull", cause.to_owned());
        self.tell();
        let note = format!("Failed to pull image \"{image}\": {cause}");
        self.say(Gravity::Warning, "Failed", &note);
    }

    fn tell_back_off_pulling(&mut self, image: &str, cause: &str) {
        let note = format!("Back-off pulling image \"{image}\"");
        self.say(Gravity::Normal, "BackOff", &note);
        self.report.wait("ImagePullBackOff", format!("{note}: ErrImagePull: {cause}"));
        self.tell();
    }
}

/// What containerd says of a name that no registry knows.
fn not_found(image: &str) -> String {
    format!(
        "rpc error: code = NotFound desc = failed to pull and unpack image \"{image}\": failed to resolve reference \
         \"{image}\": {image}: not found"
    )
}
