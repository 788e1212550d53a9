//! What a node finds under the names of images.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Container;

use super::IMPORTER;

/// What stands for an image: a program of this machine.
///
/// `command[0]` of a container stands for `program` under whatever name; the rest of the command and the container's
/// `args` follow it. As with any image, `arguments` count only for a container that has neither.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// A program and its first arguments.
    pub program: Vec<String>,
    /// What follows for a container that says nothing else.
    pub arguments: Vec<String>,
}

impl Image {
    /// An image that runs `program`, whose first word is a file or is found on the `PATH`.
    pub fn new<W: Into<String>>(program: impl IntoIterator<Item = W>) -> Self {
        Self { program: program.into_iter().map(Into::into).collect(), arguments: Vec::new() }
    }

    /// The same with these arguments for a container that has no command and no arguments of its own.
    #[must_use]
    pub fn with_arguments<W: Into<String>>(self, arguments: impl IntoIterator<Item = W>) -> Self {
        Self { arguments: arguments.into_iter().map(Into::into).collect(), ..self }
    }
}

/// The images that can be had. The importer's can always be.
#[derive(Debug, Clone, Default)]
pub struct Images {
    known: BTreeMap<String, Image>,
    is_complete: bool,
}

impl Images {
    /// Any image is there: a container of one that was not added is only reported Running. The default.
    pub fn any() -> Self {
        Self::default()
    }

    /// Nothing is there but what is added; another image is not found when it is pulled.
    pub fn none() -> Self {
        Self { is_complete: true, ..Self::default() }
    }

    /// Adds an image under its full name, as containers have it.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, image: Image) -> Self {
        self.known.insert(name.into(), image);
        self
    }

    /// What a container runs. `importer` is what stands for the importer's image.
    pub(super) fn content(&self, container: &Container, importer: &[String]) -> Content {
        if is_importer(container) {
            return Content::Importer(Image::new(importer));
        }
        match self.known.get(container.image.as_deref().unwrap_or_default()) {
            Some(image) => Content::Program(image.clone()),
            None if self.is_complete => Content::NotFound,
            None => Content::OnPaper,
        }
    }
}

/// What a container runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Content {
    /// The importer, which needs nothing but what its pod says.
    Importer(Image),
    /// A program that finds its address, ports and hosts in its environment, as there is no network namespace.
    Program(Image),
    /// Nothing: it is only reported Running.
    OnPaper,
    /// There is no such image.
    NotFound,
}

/// True for a container that starts the importer by its command or, having none, by the name of its image.
fn is_importer(container: &Container) -> bool {
    let last_part = |path: &str| path.rsplit('/').next().map(str::to_owned);
    let program = match container.command.as_ref().and_then(|command| command.first()) {
        Some(command) => last_part(command),
        None => container
            .image
            .as_deref()
            .and_then(last_part)
            .and_then(|image| image.split([':', '@']).next().map(str::to_owned)),
    };
    program.as_deref() == Some(IMPORTER)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(command: Option<&str>, image: &str) -> Container {
        serde_json::from_value(serde_json::json!({
            "name": "c", "image": image, "command": command.map(|command| vec![command]),
        }))
        .expect("a container")
    }

    #[test]
    fn the_importer_is_known_by_its_command_or_its_image() {
        let cases = [
            (Some("/usr/local/bin/disk-importer"), "any", true),
            (Some("disk-importer"), "any", true),
            (Some("/bin/sh"), "ghcr.io/x/disk-importer:1", false),
            (None, "ghcr.io/x/disk-importer:1@sha256:00", true),
            (None, "localhost:5000/disk-importer", true),
            (None, "ghcr.io/x/disk-importer-debug:1", false),
            (Some("my-disk-importer"), "any", false),
        ];
        for (command, image, wanted) in cases {
            assert_eq!(is_importer(&container(command, image)), wanted, "{command:?} {image}");
        }
    }

    #[test]
    fn an_image_is_found_by_its_full_name() {
        let server = Image::new(["/bin/server"]);
        let known = |images: Images| images.with("registry.example/server:1", server.clone());
        let content = |images: &Images, image: &str| images.content(&container(None, image), &[]);
        let (any, only) = (known(Images::any()), known(Images::none()));
        for images in [&any, &only] {
            let found = content(images, "registry.example/server:1");
            assert_eq!(found, Content::Program(server.clone()));
        }
        assert_eq!(content(&any, "registry.example/server:2"), Content::OnPaper);
        assert_eq!(content(&only, "registry.example/server:2"), Content::NotFound);
    }
}
