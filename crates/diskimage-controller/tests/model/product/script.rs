//! One poll of a pass: its requests are answered from a list, as far as that goes.

use std::future::Future;
use std::pin::pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use futures::future::BoxFuture;
use jiff::Timestamp;
use kube::core::DynamicObject;
use otctl_kit::clock::Clock;
use otctl_kit::cluster::{Answer, ApiError, Cluster, Request};

use crate::objects;

/// Answers the reads it has answers for, and every write with success. The first read beyond is never answered.
pub(super) struct Script {
    /// The next answer is the last.
    answers: Mutex<Vec<Answer>>,
    sent: Mutex<Vec<Request>>,
}

impl Script {
    pub(super) fn new(mut answers: Vec<Answer>) -> Self {
        answers.reverse();
        Self { answers: Mutex::new(answers), sent: Mutex::default() }
    }

    /// What was asked, in order.
    pub(super) fn sent(&self) -> Vec<Request> {
        std::mem::take(&mut *self.sent.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Cluster for Script {
    fn call(&self, request: Request) -> BoxFuture<'_, Result<Answer, ApiError>> {
        let answer = match &request {
            Request::Get(_) | Request::List { .. } => {
                self.answers.lock().unwrap_or_else(PoisonError::into_inner).pop()
            }
            Request::Create(object) | Request::Apply(object) | Request::ReplaceStatus(object) => {
                Some(Answer::Object(object.clone()))
            }
            Request::Patch { target, .. }
            | Request::Strip { target, .. }
            | Request::PatchStatus { target, .. } => {
                let mut object = DynamicObject::new(&target.name, &target.resource);
                object.metadata.resource_version = Some("own write".to_owned());
                Some(Answer::Object(Box::new(object)))
            }
            Request::Replace(_) | Request::Delete { .. } => Some(Answer::Done),
        };
        self.sent.lock().unwrap_or_else(PoisonError::into_inner).push(request);
        Box::pin(async move {
            match answer {
                Some(answer) => Ok(answer),
                None => std::future::pending().await,
            }
        })
    }
}

/// A clock that stands.
pub(super) struct Noon;

impl Clock for Noon {
    fn now(&self) -> Timestamp {
        objects::noon()
    }

    fn sleep_until(&self, _: Timestamp) -> BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }
}

pub(super) fn poll_once<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}
