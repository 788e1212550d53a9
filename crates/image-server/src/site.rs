//! What is served at which path, and how each behaves.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
};

use tokio::sync::watch;

use crate::{
    behaviour::{Behaviour, Fault},
    content::Content,
    error::{Error, Result},
    request::{Request, RequestKind},
    tally::Tally,
    terms::Terms,
};

/// Everything the connections share.
#[derive(Debug, Default)]
pub(crate) struct Site {
    resources: Mutex<BTreeMap<String, Resource>>,
    pub(crate) tally: Arc<Tally>,
}

/// The terms for one request, and the channel that ends its stalls.
#[derive(Debug)]
pub(crate) struct Visit {
    pub(crate) terms: Terms,
    pub(crate) release: watch::Receiver<u64>,
}

#[derive(Debug)]
struct Resource {
    content: Content,
    behaviour: Behaviour,
    revision: u32,
    release: watch::Sender<u64>,
}

impl Site {
    /// Serves `content` at `path`; a path that is served keeps its behaviour.
    pub(crate) fn add(&self, path: String, content: Content) {
        let mut resources = self.lock();
        match resources.get_mut(&path) {
            Some(resource) => resource.content = content,
            None => drop(resources.insert(path, Resource::new(content))),
        }
    }

    pub(crate) fn behave(&self, path: &str, behaviour: Behaviour) -> Result<()> {
        self.change(path, |resource| resource.behaviour = behaviour)
    }

    pub(crate) fn release(&self, path: &str) -> Result<()> {
        self.change(path, |resource| resource.release.send_modify(|count| *count += 1))
    }

    pub(crate) fn change_etag(&self, path: &str) -> Result<()> {
        self.change(path, |resource| resource.revision += 1)
    }

    /// The terms for `request`, which uses up its step of the script.
    pub(crate) fn visit(&self, request: &Request) -> Visit {
        match self.lock().get_mut(&request.path) {
            Some(resource) => resource.visit(request.kind),
            None => Resource::missing().visit(request.kind),
        }
    }

    fn change(&self, path: &str, change: impl FnOnce(&mut Resource)) -> Result<()> {
        let mut resources = self.lock();
        let resource = resources.get_mut(path).ok_or_else(|| Error::FindPath(path.to_owned()))?;
        change(resource);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Resource>> {
        self.resources.lock().expect("nothing panics while it holds the paths")
    }
}

impl Resource {
    fn new(content: Content) -> Self {
        let release = watch::Sender::new(0);
        Self { content, behaviour: Behaviour::new(), revision: 0, release }
    }

    fn missing() -> Self {
        let behaviour = Behaviour::new().always(Fault::status(404));
        Self { behaviour, ..Self::new(Content::generated(0, 0)) }
    }

    fn visit(&mut self, kind: RequestKind) -> Visit {
        let faults = self.behaviour.next(kind);
        let changes = faults.iter().filter(|fault| **fault == Fault::ChangeEtag).count();
        self.revision += u32::try_from(changes).expect("a handful of faults");
        let honest = Terms::honest(self.content.clone(), self.revision);
        let terms = faults.into_iter().fold(honest, Terms::with);
        Visit { terms, release: self.release.subscribe() }
    }
}
