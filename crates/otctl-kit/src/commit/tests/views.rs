//! What views must show after a commit, whether its writes were made or refused.

use super::*;

/// What a plan of these writes expects of views, made or failed.
async fn expected(
    writes: Vec<Write>,
    answers: impl IntoIterator<Item = Result<Answer, ApiError>>,
) -> Vec<String> {
    let cluster = Scripted::new(answers);
    let mut plan = plan(writes, None);
    plan.notices.clear();
    let made = run(&cluster, &plan).await.map(Committed::into_made);
    let expected = made.unwrap_or_else(|error| error.done).expected;
    expected.iter().map(ToString::to_string).collect()
}

#[tokio::test]
async fn views_must_show_each_write_that_was_made() {
    let remember = || write(Action::Remember(remembered()));
    let made =
        expected(vec![remember(), create(), write(Action::Swap(subject().status))], []).await;
    let own = |version| format!("{SUBJECT} at version {version}");
    assert_eq!(made, [own("101"), "ConfigMap child at version 102".to_owned(), own("103")]);
    let failed = expected(vec![remember(), create()], [Ok(object("9", None)), Err(unknown())]);
    // The look at who owns the name is answered with another's object.
    assert_eq!(failed.await, [own("9")]);
}

#[tokio::test]
async fn views_must_show_a_child_that_was_there_already() {
    let found =
        expected(vec![create()], [Err(ApiError::AlreadyExists), Ok(object("5", Some("u-1")))]);
    assert_eq!(found.await, ["ConfigMap child at version 5"]);
}

#[tokio::test]
async fn views_must_show_that_what_was_deleted_goes() {
    let done = expected(vec![delete()], [Ok(Answer::Done)]);
    let gone = done.await;
    assert_eq!(gone.len(), 1);
    assert!(gone[0].contains(" without UID "), "{gone:?}");
    assert_eq!(expected(vec![delete()], [Err(not_found())]).await, gone);
    let going = expected(vec![delete()], [Ok(object("9", None))]).await;
    assert!(going[0].ends_with(" at version 9"), "{going:?}");
}

#[tokio::test]
async fn views_must_leave_what_a_refusal_proved_old() {
    let remember = || vec![write(Action::Remember(remembered()))];
    let left = format!("{SUBJECT} past version 7");
    assert_eq!(expected(remember(), [Err(conflict())]).await, [left]);
    let gone = format!("{SUBJECT} without UID u-1");
    assert_eq!(expected(remember(), [Err(not_found())]).await, [gone]);
    assert_eq!(expected(remember(), [Err(unknown())]).await, Vec::<String>::new());
}

#[tokio::test]
async fn nobody_waits_to_see_an_event() {
    let committed = run(&Scripted::default(), &plan(Vec::new(), None)).await.unwrap();
    let made = committed.into_made();
    assert_eq!((made.lines.len(), made.expected.len()), (1, 0));
}
