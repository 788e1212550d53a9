//! What each part says of itself: a line for each case.

use ContainerState::{Degraded, Failed, Pending, Progressing, Running as Runs};
use RunStrategy::{Always, Halted, Manual, Once, RerunOnFailure};
use otctl_types::workspace::RunStrategy;

use super::fixture::{Machine, Made, Running, deployment, entry, instance, machine as made, pod};
use super::*;

/// Of an entry that had its start.
fn container(entry: &Container, deployment: Option<&Deployment>, pods: &[Arc<Pod>]) -> Part {
    super::container(entry, deployment, pods, false)
}

#[track_caller]
fn check(
    deployment: Made,
    pods: impl IntoIterator<Item = Running>,
    expected: (ContainerState, Reason, &str),
) {
    let deployment = deployment.read();
    let asked = deployment.spec.as_ref().unwrap().replicas.unwrap();
    let mut pods: Vec<_> = pods.into_iter().map(Running::read).collect();
    let told = container(&entry(asked), Some(&deployment), &pods);
    assert_eq!((told.state, told.reason, told.message.as_str()), expected);
    pods.reverse();
    assert_eq!(container(&entry(asked), Some(&deployment), &pods), told, "in another order");
}

/// A Deployment that its controller has seen, with none of its two pods ready.
fn started() -> Made {
    let progress = "ReplicaSet \"lab--api-1\" is progressing.";
    deployment(2).seen(2).pods(2, 2, 0).says("Progressing", "True", "ReplicaSetUpdated", progress)
}

/// As [`started`], with what one of its pods says.
#[track_caller]
fn check_pod(pod: Running, expected: (ContainerState, Reason, &str)) {
    check(started(), [pod], expected);
}

#[test]
fn nothing_runs_before_it_is_made() {
    let told = container(&entry(1), None, &[]);
    assert_eq!((told.state, told.reason), (Pending, Reason::Creating));
}

#[test]
fn it_runs_when_as_many_pods_as_asked_for_are_ready_and_of_the_last_spec() {
    let running = || deployment(2).seen(2);
    check(running().pods(2, 2, 2), [], (Runs, Reason::AllReady, ""));
    let count = "1 of 2 pods are ready";
    check(running().pods(2, 2, 1), [], (Progressing, Reason::Progressing, count));
    let count = "2 of 2 pods are of the last change, 1 of before";
    check(running().pods(3, 2, 2), [], (Progressing, Reason::Progressing, count));
    let count = "1 of 2 pods are of the last change, 1 of before";
    check(running().pods(2, 1, 2), [], (Progressing, Reason::Progressing, count));
    check(running(), [], (Progressing, Reason::Progressing, "0 of 2 pods are ready"));
    check(deployment(0).seen(2), [], (Runs, Reason::AllReady, ""));
}

#[test]
fn pods_beyond_those_asked_for_are_no_loss() {
    let scaled = || deployment(1).seen(2).pods(3, 3, 3);
    let told = (Progressing, Reason::Progressing, "2 pods more than asked for end");
    check(scaled(), [], told);
    let settled = scaled().says("Progressing", "True", "NewReplicaSetAvailable", "");
    check(settled, [pod("a").runs(true), pod("b").runs(true), pod("c").runs(true)], told);
    let too_few = (Progressing, Reason::Progressing, "0 of 1 pods are ready");
    check(deployment(1).seen(2).pods(3, 3, 0), [], too_few);
    let last = || deployment(0).seen(2).pods(1, 1, 0).none_available();
    let last = last().says("Progressing", "True", "NewReplicaSetAvailable", "");
    check(
        last,
        [pod("a").runs(false)],
        (Progressing, Reason::Progressing, "1 pods more than asked for end"),
    );
}

#[test]
fn what_is_said_of_an_earlier_spec_counts_for_nothing() {
    let late = (Progressing, Reason::Progressing, "the last change has not been taken up yet");
    check(deployment(2).seen(1).pods(2, 2, 2), [], late);
    check(deployment(2).pods(2, 2, 2), [], late);
    let broken = pod("a").waits("ErrImagePull", "no such image");
    check(deployment(2).seen(1).pods(2, 2, 1), [broken], late);
    let other = deployment(1).seen(2).pods(1, 1, 1).read();
    let told = container(&entry(2), Some(&other), &[]);
    assert_eq!((told.state, told.reason, told.message.as_str()), late);
}

#[test]
fn a_deployment_that_asks_for_no_pods_is_stopped() {
    let stopped = deployment(0).seen(2).read();
    let told = container(&entry(2), Some(&stopped), &[]);
    assert_eq!((told.state, told.reason), (Pending, Reason::Suspended));
}

#[test]
fn what_the_api_server_refuses_is_told_in_its_words() {
    let refused = |message: &str| started().says("ReplicaFailure", "True", "FailedCreate", message);
    let quota = "pods \"lab--api-1-x\" is forbidden: exceeded quota: none, requested: pods=1, used: pods=0, limited: pods=0";
    check(refused(quota), [], (Degraded, Reason::QuotaExceeded, quota));
    let security = "pods \"lab--api-1-x\" is forbidden: violates PodSecurity \"restricted:latest\": runAsNonRoot != true";
    check(refused(security), [], (Degraded, Reason::PodRefused, security));
    let webhook = "admission webhook \"w\" denied the request: no";
    check(refused(webhook), [], (Degraded, Reason::PodRefused, webhook));
    let invalid = "Pod \"lab--api-1-x\" is invalid: spec.containers[0].image: Required value";
    check(refused(invalid), [], (Failed, Reason::InvalidSpec, invalid));
    let set = "failed to create new replica set: exceeded quota: sets";
    let of_set = deployment(2).seen(2).says("Progressing", "False", "ReplicaSetCreateError", set);
    check(of_set, [], (Degraded, Reason::QuotaExceeded, set));
    let over = started().says("ReplicaFailure", "False", "FailedCreate", quota);
    check(over, [], (Progressing, Reason::Progressing, "0 of 2 pods are ready"));
}

#[test]
fn a_refusal_counts_for_more_than_what_pods_say() {
    let quota = "exceeded quota: none";
    let refused = started().says("ReplicaFailure", "True", "FailedCreate", quota);
    let crashed = pod("a").waits("CrashLoopBackOff", "back-off").before(3, 1, "");
    check(refused, [crashed], (Degraded, Reason::QuotaExceeded, quota));
}

#[test]
fn a_pod_without_a_node_is_told_in_the_schedulers_words() {
    let words = "0/2 nodes are available: 2 Insufficient cpu.";
    check_pod(pod("a").unscheduled(words), (Degraded, Reason::Unschedulable, words));
}

#[test]
fn an_image_that_cannot_be_pulled_is_told_in_one_sentence_between_tries_and_in_them() {
    let cause = "failed to resolve reference \"example.invalid/none:0\": no such host";
    let told = (Degraded, Reason::ImagePullBackOff, cause);
    check_pod(pod("a").waits("ErrImagePull", cause), told);
    let waits = format!("Back-off pulling image \"example.invalid/none:0\": ErrImagePull: {cause}");
    check_pod(pod("a").waits("ImagePullBackOff", &waits), told);
    let older = "Back-off pulling image \"example.invalid/none:0\"";
    check_pod(
        pod("a").waits("ImagePullBackOff", older),
        (Degraded, Reason::ImagePullBackOff, older),
    );
    let word = (Degraded, Reason::ImagePullBackOff, "ErrImageNeverPull");
    check_pod(pod("a").waits("ErrImageNeverPull", ""), word);
}

#[test]
fn an_image_that_no_node_could_pull_is_for_a_person_to_change() {
    let words = "couldn't parse image name \"A\": invalid reference format";
    check_pod(pod("a").waits("InvalidImageName", words), (Failed, Reason::ImagePullBackOff, words));
}

#[test]
fn a_container_that_ends_again_and_again_says_one_thing_before_after_and_during_a_try() {
    let told = (Degraded, Reason::CrashLoopBackOff, "exit code 3: no such database");
    let words = "no such database\n";
    let backoff = "back-off 5m0s restarting failed container=api";
    check_pod(pod("a").waits("CrashLoopBackOff", backoff).before(4, 3, words), told);
    check_pod(pod("a").ended(3, "Error", words).before(4, 3, words), told);
    check_pod(pod("a").runs(false).before(4, 3, words), told);
}

#[test]
fn an_end_without_words_is_told_by_the_nodes_word_where_that_says_more() {
    let crashed = |pod: Running| pod.waits("CrashLoopBackOff", "back-off");
    let told = (Degraded, Reason::CrashLoopBackOff, "exit code 1");
    check_pod(crashed(pod("a").before(2, 1, "")), told);
    let killed = pod("a").ended(137, "OOMKilled", "");
    check_pod(killed, (Degraded, Reason::ContainerFailed, "exit code 137: OOMKilled"));
    let unknown = (Degraded, Reason::CrashLoopBackOff, "back-off");
    check_pod(pod("a").waits("CrashLoopBackOff", "back-off"), unknown);
}

#[test]
fn the_first_end_is_no_loop_and_a_good_one_nothing_yet() {
    let told = (Degraded, Reason::ContainerFailed, "exit code 2: no flag -x");
    check_pod(pod("a").ended(2, "Error", "no flag -x"), told);
    let count = (Progressing, Reason::Progressing, "0 of 2 pods are ready");
    check_pod(pod("a").ended(0, "Completed", ""), count);
}

#[test]
fn a_container_that_cannot_be_started_is_told_in_the_nodes_words() {
    let words = "CreateContainerConfigError: secret \"db\" not found";
    let waits = pod("a").waits("CreateContainerConfigError", "secret \"db\" not found");
    check_pod(waits, (Degraded, Reason::ContainerFailed, words));
    let told = (Degraded, Reason::ContainerFailed, "RunContainerError");
    check_pod(pod("a").waits("RunContainerError", ""), told);
    let new = (Degraded, Reason::NotReady, "SomethingNew: words");
    check_pod(pod("a").waits("SomethingNew", "words"), new);
}

#[test]
fn another_container_of_the_pod_is_named() {
    let told = (Degraded, Reason::ContainerFailed, "container 'mesh': exit code 1");
    check_pod(pod("a").ended(1, "Error", "").of_container("mesh"), told);
}

#[test]
fn pods_that_are_on_their_way_are_counted() {
    let count = (Progressing, Reason::Progressing, "0 of 2 pods are ready");
    check_pod(pod("a").waits("ContainerCreating", ""), count);
    check_pod(pod("a").waits("PodInitializing", ""), count);
    check_pod(pod("a").runs(false), count);
}

/// Whatever it said before it was stopped.
#[test]
fn what_starts_again_is_on_its_way() {
    let made = deployment(2).seen(2).pods(2, 2, 1);
    let made = made.says("Progressing", "True", "NewReplicaSetAvailable", "").read();
    let pods = [pod("a").runs(true).read(), pod("b").runs(false).read()];
    let state = |is_starting| super::container(&entry(2), Some(&made), &pods, is_starting).state;
    assert_eq!((state(true), state(false)), (Progressing, Degraded));
}

#[test]
fn a_claim_that_has_no_volume_yet_is_waited_for() {
    let words = "0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims.";
    check_pod(pod("a").unscheduled(words), (Progressing, Reason::Progressing, words));
    let made = deployment(2).seen(2).pods(2, 2, 0);
    let pods = [pod("a").unscheduled(words), pod("b").waits("ImagePullBackOff", "no such image")];
    check(made, pods, (Degraded, Reason::ImagePullBackOff, "no such image"));
}

#[test]
fn what_ran_once_and_is_not_ready_now_is_wrong() {
    let words = "ReplicaSet \"lab--api-1\" has successfully progressed.";
    let was = |all| {
        deployment(2).seen(2).pods(all, all, 1).says(
            "Progressing",
            "True",
            "NewReplicaSetAvailable",
            words,
        )
    };
    let broken = (Degraded, Reason::NotReady, "1 of 2 pods are ready");
    check(was(2), [pod("a").runs(true), pod("b").runs(false)], broken);
    let count = (Progressing, Reason::Progressing, "1 of 2 pods are ready");
    check(was(2), [pod("a").runs(true), pod("b").waits("ContainerCreating", "")], count);
    check(was(1), [pod("a").runs(true)], count);
}

#[test]
fn what_is_rolled_is_changing_and_what_was_made_just_now_or_lost_a_pod_is_not() {
    let is_changing = |made: Made| container(&entry(1), Some(&made.read()), &[]).is_changing;
    let rolls = |made: Made| made.says("Progressing", "True", "ReplicaSetUpdated", "");
    assert!(is_changing(deployment(1).seen(1)), "its change has not been seen");
    assert!(is_changing(deployment(2).seen(2).pods(2, 1, 1)), "one pod too many is asked for");
    assert!(is_changing(rolls(deployment(1).seen(2).pods(2, 1, 1))));
    let done = deployment(1).seen(2).pods(1, 1, 0);
    assert!(!is_changing(done.says("Progressing", "True", "NewReplicaSetAvailable", "")));
    assert!(!is_changing(rolls(deployment(1).generation(1).seen(1).pods(1, 1, 0))));
}

#[test]
fn what_takes_too_long_is_wrong() {
    let words = "ReplicaSet \"lab--api-1\" has timed out progressing.";
    let late = deployment(2).seen(2).pods(2, 2, 1).says(
        "Progressing",
        "False",
        "ProgressDeadlineExceeded",
        words,
    );
    check(late, [pod("a").runs(false)], (Degraded, Reason::NotReady, "1 of 2 pods are ready"));
}

#[test]
fn a_rollout_that_a_person_paused_says_so() {
    let told = "1 of 2 pods are of the last change, 1 of before; its Deployment was paused by hand: kubectl rollout resume";
    check(deployment(2).seen(2).pods(2, 1, 1).paused(), [], (Degraded, Reason::NotReady, told));
}

#[test]
fn what_a_paused_one_said_before_is_not_told() {
    let told = "1 of 2 pods are of the last change, 1 of before; its Deployment was paused by hand: kubectl rollout resume";
    let made = deployment(2).seen(2).pods(2, 1, 1).paused();
    let made = made.says("ReplicaFailure", "True", "FailedCreate", "exceeded quota: labs");
    check(made, [], (Degraded, Reason::NotReady, told));
}

#[test]
fn a_probe_that_does_not_succeed_is_named() {
    let mut probed = entry(1);
    probed.readiness_probe = Some(Default::default());
    let told = |entry: &Container, started: Option<bool>| {
        let mut pod = (*pod("a").runs(false).read()).clone();
        pod.status.as_mut().unwrap().container_statuses.as_mut().unwrap()[0].started = started;
        container(entry, Some(&deployment(1).seen(2).pods(1, 1, 0).read()), &[Arc::new(pod)])
            .message
    };
    let expected = "0 of 1 pods are ready: readinessProbe does not succeed";
    assert_eq!(told(&probed, Some(true)), expected);
    assert_eq!(told(&probed, None), expected);
    probed.startup_probe = Some(Default::default());
    assert_eq!(told(&probed, Some(true)), expected);
    let expected = "0 of 1 pods are ready: startupProbe does not succeed";
    assert_eq!(told(&probed, Some(false)), expected);
    assert_eq!(told(&entry(1), Some(true)), "0 of 1 pods are ready");
}

#[test]
fn the_worst_of_several_pods_is_told_and_of_two_the_first() {
    let pull = || pod("d").waits("ErrImagePull", "no image");
    let crash = |name| pod(name).waits("CrashLoopBackOff", "").before(2, 1, name);
    let config = || pod("b").waits("CreateContainerConfigError", "no secret");
    let unscheduled = || pod("a").unscheduled("no room");
    let reference = || pod("e").waits("InvalidImageName", "no reference");
    let of = |pods: Vec<Running>, expected: (ContainerState, Reason, &str)| {
        check(started(), pods, expected);
    };
    let all = vec![unscheduled(), config(), crash("c"), pull(), reference()];
    of(all, (Failed, Reason::ImagePullBackOff, "no reference"));
    let all = vec![unscheduled(), config(), crash("c"), pull()];
    of(all, (Degraded, Reason::ImagePullBackOff, "no image"));
    let all = vec![unscheduled(), config(), crash("c")];
    of(all, (Degraded, Reason::ContainerFailed, "CreateContainerConfigError: no secret"));
    let all = vec![unscheduled(), crash("c"), crash("b")];
    of(all, (Degraded, Reason::CrashLoopBackOff, "exit code 1: b"));
    of(vec![unscheduled(), pod("b").runs(true)], (Degraded, Reason::Unschedulable, "no room"));
}

#[test]
fn a_pod_that_ended_or_goes_tells_only_what_no_other_can() {
    let evicted = || pod("a").phase("Failed", "Evicted", "The node was low on resource: memory.");
    let told = "Evicted: The node was low on resource: memory.";
    check_pod(evicted(), (Degraded, Reason::ContainerFailed, told));
    let count = (Progressing, Reason::Progressing, "0 of 2 pods are ready");
    check(started(), [evicted(), pod("b").waits("ContainerCreating", "")], count);
    check_pod(pod("a").ended(1, "Error", "").going(), count);
    let bare = (Degraded, Reason::ContainerFailed, "its pod has ended");
    let mut ended = evicted().read();
    let status = Arc::make_mut(&mut ended).status.as_mut().unwrap();
    (status.reason, status.message) = (None, None);
    let told = container(&entry(2), Some(&started().read()), &[ended]);
    assert_eq!((told.state, told.reason, told.message.as_str()), bare);
}

#[track_caller]
fn check_machine(
    strategy: RunStrategy,
    machine: Machine,
    expected: (ContainerState, Reason, &str),
) {
    let told = super::machine(&instance(strategy), Some(&machine.read()), &[]);
    assert_eq!((told.state, told.reason, told.message.as_str()), expected);
}

#[test]
fn a_machine_runs_when_kubevirt_says_that_its_guest_is_ready() {
    let none = super::machine(&instance(Always), None, &[]);
    assert_eq!((none.state, none.reason), (Pending, Reason::Creating));
    let running = || made(Always, "Running").created();
    check_machine(Always, running().ready(), (Runs, Reason::AllReady, ""));
    let told = (Degraded, Reason::NotReady, "KubeVirt says Running: the probe failed");
    check_machine(Always, running().says("Ready", "False", "the probe failed"), told);
    let told = (Degraded, Reason::NotReady, "KubeVirt says Paused");
    check_machine(Always, made(Always, "Paused").created(), told);
}

#[test]
fn a_machine_that_kubevirt_has_not_seen_is_not_ready() {
    let late = (Progressing, Reason::Progressing, "the last change has not been taken up yet");
    let running = || made(Always, "Running").created().ready();
    check_machine(Always, running().seen(Some(1)), late);
    check_machine(Once, running(), late);
    let asks = running().seen(Some(1)).says("RestartRequired", "True", "memory was changed");
    let told = "the last change takes effect when the machine is restarted: virtctl restart lab--db -n labs; KubeVirt says: memory was changed";
    check_machine(Always, asks, (Progressing, Reason::RestartRequired, told));
    let asked = running().says("RestartRequired", "False", "");
    check_machine(Always, asked.seen(Some(1)), late);
    // Of one that is stopped it is not told, and its next start takes up everything.
    let changed = made(Manual, "Stopped").seen(Some(1)).says("RestartRequired", "True", "memory");
    check_machine(Manual, changed, (Runs, Reason::AllReady, ""));
    let suspended = made(Halted, "Stopped").seen(Some(1));
    check_machine(Always, suspended, (Pending, Reason::Suspended, "it is stopped"));
    check_machine(Always, running().seen(None), (Runs, Reason::AllReady, ""));
    let unseen = (Progressing, Reason::Progressing, "KubeVirt has not taken it up yet");
    check_machine(Always, made(Always, "").unseen(), unseen);
    check_machine(Always, made(Always, ""), unseen);
}

#[test]
fn a_machine_on_its_way_is_told_in_kubevirts_word() {
    for word in ["Provisioning", "Starting", "WaitingForVolumeBinding", "Stopped", "Stopping"] {
        let told = format!("KubeVirt says {word}");
        check_machine(Always, made(Always, word), (Progressing, Reason::Progressing, &told));
    }
}

#[test]
fn a_machine_is_stopped_where_its_entry_or_a_suspension_says_so() {
    check_machine(Halted, made(Halted, "Stopped"), (Runs, Reason::AllReady, ""));
    check_machine(Always, made(Halted, "Stopped"), (Pending, Reason::Suspended, "it is stopped"));
    let stops = (Progressing, Reason::Progressing, "it is being stopped");
    check_machine(Always, made(Halted, "Running").created().ready(), stops);
    check_machine(Halted, made(Halted, "Stopping").created(), stops);
}

#[test]
fn a_machine_may_rest_where_its_entry_lets_it() {
    let rests = (Runs, Reason::AllReady, "");
    check_machine(Manual, made(Manual, "Stopped"), rests);
    check_machine(Once, made(Once, "Stopped").created(), rests);
    check_machine(RerunOnFailure, made(RerunOnFailure, "Stopped").created(), rests);
    let first = (Progressing, Reason::Progressing, "KubeVirt says Stopped");
    check_machine(Once, made(Once, "Stopped"), first);
    check_machine(RerunOnFailure, made(RerunOnFailure, "Stopped"), first);
}

#[test]
fn what_is_wrong_with_a_machine_is_told_in_kubevirts_words() {
    let told = |word: &str, reason, message: &str| {
        let machine = made(Always, word).says("Failure", "True", "words");
        check_machine(Always, machine, (Degraded, reason, message));
    };
    told("CrashLoopBackOff", Reason::CrashLoopBackOff, "KubeVirt says CrashLoopBackOff: words");
    told("ErrorPvcNotFound", Reason::ContainerFailed, "KubeVirt says ErrorPvcNotFound: words");
    told("DataVolumeError", Reason::ContainerFailed, "KubeVirt says DataVolumeError: words");
    told("ImagePullBackOff", Reason::ImagePullBackOff, "KubeVirt says ImagePullBackOff: words");
    told("Unknown", Reason::NotReady, "KubeVirt says Unknown: words");
    told("Starting", Reason::ContainerFailed, "KubeVirt says Starting: words");
    let unscheduled = made(Always, "ErrorUnschedulable").says("PodScheduled", "False", "no room");
    let words = "KubeVirt says ErrorUnschedulable: no room";
    check_machine(Always, unscheduled, (Degraded, Reason::Unschedulable, words));
    let unbound = "0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims";
    let unscheduled = made(Always, "ErrorUnschedulable").says("PodScheduled", "False", unbound);
    let words = format!("KubeVirt says ErrorUnschedulable: {unbound}");
    check_machine(Always, unscheduled, (Progressing, Reason::Progressing, &words));
}

#[test]
fn what_the_pod_of_a_machine_says_is_told_before_what_kubevirt_makes_of_it() {
    let machine = made(Always, "ErrorUnschedulable").read();
    let pod = pod("virt-launcher-a").unscheduled("0/1 nodes are available").read();
    let told = super::machine(&instance(Always), Some(&machine), &[pod]);
    assert_eq!(
        (told.reason, told.message.as_str()),
        (Reason::Unschedulable, "0/1 nodes are available")
    );
}
