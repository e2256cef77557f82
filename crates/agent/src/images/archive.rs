//! Image archives: OCI layout and `docker save`, as a tar file or unpacked.
//!
//! In: the archive. Out: configuration and layer files, with verified digests where there are any.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Component, Path, PathBuf};

use api::value::ValueExt as _;
use serde_json::Value;

use super::decompress::decompressed;
use super::layers::hex;
use super::manifest::{Document, Platform};

/// The most nested indexes.
const MAX_INDEX_DEPTH: usize = 4;
/// The largest JSON document of an archive, in bytes.
const MAX_DOCUMENT: u64 = 4 << 20;

fn bad(why: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.into())
}

/// The contents of an archive.
pub(super) struct Found {
    pub(super) config: Vec<u8>,
    /// The lowest first.
    pub(super) layers: Vec<PathBuf>,
}

/// Opens an archive; a tar file is unpacked into `work` first.
pub(super) fn open(from: &Path, work: &Path) -> io::Result<Found> {
    let folder = if from.is_dir() {
        from.to_owned()
    } else {
        std::fs::create_dir_all(work)?;
        let mut archive = tar::Archive::new(decompressed(File::open(from)?)?);
        archive.set_preserve_permissions(false);
        archive.unpack(work)?;
        work.to_owned()
    };
    let (config, layers) = match folder.join("manifest.json").exists() {
        true => of_docker(&folder)?,
        false => of_oci(&folder)?,
    };
    Ok(Found { config: read(&config)?, layers })
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    File::open(path)?.take(MAX_DOCUMENT + 1).read_to_end(&mut out)?;
    if out.len() as u64 > MAX_DOCUMENT {
        return Err(bad(format!("{} is longer than 4 MiB", path.display())));
    }
    Ok(out)
}

/// The path of a file in the archive; it must not leave the archive.
fn inside(folder: &Path, name: &str) -> io::Result<PathBuf> {
    let plain = Path::new(name).components().all(|part| matches!(part, Component::Normal(_)));
    let path = folder.join(name);
    let real = path.canonicalize()?;
    match plain && real.starts_with(folder.canonicalize()?) {
        true => Ok(real),
        false => Err(bad(format!("{name} is outside of the archive"))),
    }
}

fn of_docker(folder: &Path) -> io::Result<(PathBuf, Vec<PathBuf>)> {
    let manifest: Value = serde_json::from_slice(&read(&inside(folder, "manifest.json")?)?)?;
    let first = manifest.get(0).ok_or_else(|| bad("manifest.json names no image"))?;
    let layers = first.texts("Layers").into_iter().map(|name| inside(folder, name)).collect::<io::Result<_>>()?;
    Ok((inside(folder, first.text("Config"))?, layers))
}

fn of_oci(folder: &Path) -> io::Result<(PathBuf, Vec<PathBuf>)> {
    let mut next = inside(folder, "index.json")?;
    for _ in 0..MAX_INDEX_DEPTH {
        match Document::read(&read(&next)?, &Platform::here()).map_err(|error| bad(error.to_string()))? {
            Document::Image(image) => {
                let layers = image.layers.iter().map(|layer| blob(folder, &layer.digest)).collect::<io::Result<_>>()?;
                return Ok((blob(folder, &image.config.digest)?, layers));
            }
            Document::Index(to) => next = blob(folder, &to.digest)?,
        }
    }
    Err(bad("its indexes are nested too deeply"))
}

fn blob(folder: &Path, digest: &str) -> io::Result<PathBuf> {
    let path = inside(folder, &format!("blobs/sha256/{digest}"))?;
    let mut context = ring::digest::Context::new(&ring::digest::SHA256);
    let (mut file, mut buffer) = (File::open(&path)?, vec![0; 64 * 1024]);
    while let length @ 1.. = file.read(&mut buffer)? {
        context.update(buffer.get(..length).unwrap_or_default());
    }
    match hex(context.finish().as_ref()) == digest {
        true => Ok(path),
        false => Err(bad(format!("the content of sha256:{digest} has another digest"))),
    }
}
