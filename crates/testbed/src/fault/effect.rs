//! Faults as the world in memory has them: requests only, without time, processes that die and never pause.

use otctl_kit::cluster::ApiError;
use otctl_kit::kube_cluster::refused;

use super::{Fault, Point, Verb, What};

/// What happens to a request instead of being carried out and answered.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Its sender dies before it leaves.
    DieBefore,
    /// It is carried out; its sender dies before it reads the answer, or before it acts on it: there is no difference
    /// here, since nothing else of a process can be seen.
    DieAfter,
    /// Its sender dies, and it is carried out some time later, when another may have taken over.
    DieInFlight,
    /// It is not carried out, and this is the answer.
    Answer(ApiError),
    /// It is carried out, and this is the answer all the same.
    AnswerAfter(ApiError),
    /// It is carried out twice; the answer is that to the second.
    Twice,
}

/// A fault that the world in memory cannot express.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the world in memory cannot express {fault}: {why}")]
pub struct Inexpressible {
    fault: String,
    why: &'static str,
}

impl Effect {
    /// The fault, here.
    ///
    /// # Errors
    /// When it has to do with events, time, pauses, pages or answers that succeed.
    pub fn of(fault: &Fault) -> Result<Self, Inexpressible> {
        let cannot = |why| Inexpressible { fault: fault.to_string(), why };
        let pattern = &fault.when.pattern;
        if pattern.is_event() || pattern.asks_for(Verb::Watch) {
            return Err(cannot("views are fed by turns of the simulation, which holds them back"));
        }
        if pattern.asks_for(Verb::Continue) {
            return Err(cannot("a list is one request"));
        }
        match (&fault.what, fault.when.point) {
            (What::Kill, Point::Before) => Ok(Self::DieBefore),
            (What::Kill, Point::UnderWay) => Ok(Self::DieInFlight),
            (What::Kill, Point::Commit | Point::Reply) => Ok(Self::DieAfter),
            (What::Answer(answer), _) if answer.status < 300 => Err(cannot("it refuses only")),
            (What::Answer(answer), point) => {
                let error = refused(answer.status, answer.retry_after, answer.text().as_bytes());
                Ok(if point == Point::Before {
                    Self::Answer(error)
                } else {
                    Self::AnswerAfter(error)
                })
            }
            (What::Lose | What::Cut(_), _) | (What::Blackhole, Point::Commit) => {
                Ok(Self::AnswerAfter(lost()))
            }
            (What::Blackhole, _) => Ok(Self::Answer(lost())),
            (What::Duplicate, _) => Ok(Self::Twice),
            (What::Delay(_) | What::Hold, _) => {
                Err(cannot("a request is a turn and takes no time"))
            }
            (What::Stop(_) | What::Continue, _) => {
                Err(cannot("a process runs when it gets a turn"))
            }
            (What::Drop | What::Replay(_) | What::Coalesce(_), _) => {
                Err(cannot("it is for events"))
            }
        }
    }
}

/// What a caller is told by then: its deadline has passed, or the connection is broken.
fn lost() -> ApiError {
    ApiError::Unknown { detail: "the answer was lost".to_owned() }
}
