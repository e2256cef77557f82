//! `waypost image`: pulls, imports, lists, tags and removes the container images of this machine.

use std::io::Read as _;

use agent::images::credentials::Credential;
use agent::images::pull::Puller;
use agent::images::{Freed, Images, full};
use anyhow::Context as _;

use crate::config::ImageSubject;

/// Maximum length of the password, in bytes.
const LONGEST_PASSWORD: u64 = 64 << 10;

/// Runs the command.
pub(crate) fn exec(subject: ImageSubject) -> anyhow::Result<()> {
    match subject {
        ImageSubject::Import { place, from, name } => {
            let id = Images::new(&place.data_dir).import(&from, &name)?;
            say(&format!("{}  {}", short(&id), full(&name)));
        }
        ImageSubject::Pull { place, name, username, insecure_registry, .. } => {
            let credentials: Vec<Credential> = match username {
                Some(user) => vec![Credential { user, password: password()? }],
                None => Vec::new(),
            };
            let puller = Puller::new(Images::new(&place.data_dir), &insecure_registry);
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let pulled =
                runtime.block_on(puller.pull(&name, &credentials)).with_context(|| format!("pulling {name}"))?;
            say(&format!("{}  {}  {} fetched", short(&pulled.id), full(&name), size(pulled.fetched)));
        }
        ImageSubject::List { place } => {
            for image in Images::new(&place.data_dir).list() {
                let name = image.name.as_deref().unwrap_or("<none>");
                let pods = match image.pods.len() {
                    0 => "unused".to_owned(),
                    _ => image.pods.into_iter().collect::<Vec<_>>().join(","),
                };
                say(&format!("{}  {name}  {}  {pods}", short(&image.id), size(image.size)));
            }
        }
        ImageSubject::Tag { place, name, other } => Images::new(&place.data_dir).tag(&name, &other)?,
        ImageSubject::Remove { place, name } => say_freed(Images::new(&place.data_dir).remove(&name)?),
        ImageSubject::Prune { place, all } => say_freed(Images::new(&place.data_dir).prune(all)?),
    }
    Ok(())
}

fn password() -> anyhow::Result<String> {
    let mut text = String::new();
    std::io::stdin().take(LONGEST_PASSWORD).read_to_string(&mut text).context("reading the password")?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

fn short(id: &str) -> &str {
    id.get(..12).unwrap_or(id)
}

/// A number of bytes with its unit.
fn size(bytes: u64) -> String {
    match bytes {
        0..10_240 => format!("{bytes} B"),
        10_240..10_485_760 => format!("{} KiB", bytes >> 10),
        _ => format!("{} MiB", bytes >> 20),
    }
}

fn say_freed(freed: Freed) {
    let later =
        if freed.busy { "; images are being brought or begun: `waypost image prune` later frees the rest" } else { "" };
    say(&format!("{} images and {} layers removed, {} freed{later}", freed.images, freed.layers, size(freed.bytes)));
}

/// Prints the result.
#[expect(clippy::print_stdout, reason = "this is the output of the command")]
fn say(text: &str) {
    println!("{text}");
}
