//! Blobs: fetched once whoever wants them, gone on with where they broke off, and believed only when their digest is right.
//!
//! ```text
//! downloads/DIGEST.part ──whole, and its digest right──▶ downloads/DIGEST
//! ```
//! The part is locked while it grows, so that two programs, or two images with the same layer, do not fetch it twice.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Response, header};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use ring::digest::{Context, SHA256};
use rustix::fs::{FlockOperation, flock};
use tokio::io::{AsyncSeekExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use super::super::layers::hex;
use super::super::manifest::Descriptor;
use super::web::SILENCE;
use super::{PullError, Session};

/// How often in a row it may break off without a byte.
const FRUITLESS: u32 = 3;
/// How often it may break off at all.
const ATTEMPTS: u32 = 20;
/// How long to wait before going on; longer each time.
const PAUSE: Duration = Duration::from_millis(500);

/// Fetches a blob into a folder, or finds it there; answers the file, which stays readable whoever removes it.
pub(in super::super) async fn download(
    session: &Session<'_>,
    blob: &Descriptor,
    folder: &Path,
) -> Result<File, PullError> {
    let (part_path, path) = (folder.join(format!("{}.part", blob.digest)), folder.join(&blob.digest));
    let found = {
        let (part_path, path) = (part_path.clone(), path.clone());
        blocking(move || open(&part_path, &path)).await?
    };
    let part = match found {
        Found::Whole(file) => return Ok(file),
        Found::Part(part) => part,
    };
    let mut growing = Growing::take_up(part, blob.size).await?;
    let mut fruitless = 0;
    for attempt in 1.. {
        let before = growing.length;
        let result = grow(session, blob, &mut growing).await;
        let Err(error) = result else { break };
        fruitless = if growing.length > before { 0 } else { fruitless + 1 };
        if !error.is_passing() || fruitless >= FRUITLESS || attempt >= ATTEMPTS {
            return Err(error);
        }
        tracing::debug!(%error, blob = blob.digest, "a download goes on");
        tokio::time::sleep(PAUSE * fruitless).await;
    }
    growing.file.flush().await?;
    let found = hex(growing.context.finish().as_ref());
    if found != blob.digest {
        // None of it can be trusted, so the next attempt begins anew.
        fs::remove_file(&part_path)?;
        return Err(PullError::Another { host: session.host().to_owned(), what: session.name_of(blob), found });
    }
    fs::rename(&part_path, &path)?;
    Ok(File::open(&path)?)
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}

enum Found {
    Whole(File),
    /// Locked as long as it is open.
    Part(File),
}

/// Opens what is there of a blob, when nobody else fetches it any more.
fn open(part_path: &Path, path: &Path) -> io::Result<Found> {
    loop {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let part = File::options().create(true).truncate(false).read(true).write(true).open(part_path)?;
        flock(&part, FlockOperation::LockExclusive)?;
        if let Ok(whole) = File::open(path) {
            // Whoever was first has moved the part; ours is a new and empty one.
            if part.metadata()?.len() == 0 {
                let _ = fs::remove_file(part_path);
            }
            return Ok(Found::Whole(whole));
        }
        // While we waited it may have been removed.
        if fs::metadata(part_path).is_ok_and(|now| part.metadata().is_ok_and(|own| own.ino() == now.ino())) {
            return Ok(Found::Part(part));
        }
    }
}

/// A part of a blob, and the digest of it so far.
struct Growing {
    file: tokio::fs::File,
    context: Context,
    length: u64,
}

impl Growing {
    /// Goes on with what is there from before.
    async fn take_up(mut part: File, size: u64) -> io::Result<Self> {
        blocking(move || {
            let mut context = Context::new(&SHA256);
            let mut length = 0;
            let mut buffer = vec![0; 64 << 10];
            while let read @ 1.. = part.read(&mut buffer)? {
                context.update(buffer.get(..read).unwrap_or_default());
                length += read as u64;
            }
            let mut growing = Self { file: tokio::fs::File::from_std(part.try_clone()?), context, length };
            if growing.length > size {
                part.set_len(0)?;
                io::Seek::rewind(&mut part)?;
                growing.length = 0;
                growing.context = Context::new(&SHA256);
            }
            Ok(growing)
        })
        .await
    }

    async fn begin_anew(&mut self) -> io::Result<()> {
        self.file.flush().await?;
        self.file.set_len(0).await?;
        self.file.rewind().await?;
        self.length = 0;
        self.context = Context::new(&SHA256);
        Ok(())
    }
}

/// Fetches what is missing.
async fn grow(session: &Session<'_>, blob: &Descriptor, growing: &mut Growing) -> Result<(), PullError> {
    if growing.length == blob.size {
        return Ok(());
    }
    let mut headers = HeaderMap::new();
    if growing.length > 0
        && let Ok(range) = HeaderValue::try_from(format!("bytes={}-", growing.length))
    {
        headers.insert(header::RANGE, range);
    }
    let answer = match session.blob(blob, &headers).await {
        // It does not want to go on: from the beginning, then.
        Err(PullError::Refused { status: 416, .. }) if growing.length > 0 => {
            growing.begin_anew().await?;
            session.blob(blob, &HeaderMap::new()).await?
        }
        answer => answer?,
    };
    if growing.length > 0 && start_of(&answer) != Some(growing.length) {
        growing.begin_anew().await?;
    }
    let broken = |why: String| PullError::Broken { host: session.host().to_owned(), what: session.name_of(blob), why };
    let mut body = answer.into_body();
    while growing.length < blob.size {
        let frame = timeout(SILENCE, body.frame()).await;
        let frame = frame.map_err(|_| broken(format!("nothing came for {}s", SILENCE.as_secs())))?;
        let Some(frame) = frame else {
            return Err(broken(format!("{} of {} bytes came", growing.length, blob.size)));
        };
        let frame = frame.map_err(|error| broken(format!("after {} bytes: {error}", growing.length)))?;
        let Ok(data) = frame.into_data() else { continue };
        growing.length += data.len() as u64;
        if growing.length > blob.size {
            growing.begin_anew().await?;
            return Err(PullError::TooLarge(format!(
                "{} has more than its {} bytes",
                session.name_of(blob),
                blob.size
            )));
        }
        growing.context.update(&data);
        growing.file.write_all(&data).await?;
    }
    Ok(())
}

/// Where the body of an answer begins: at the start, unless it says otherwise.
fn start_of(answer: &Response<Incoming>) -> Option<u64> {
    if answer.status() != 206 {
        return Some(0);
    }
    let range = answer.headers().get(header::CONTENT_RANGE)?.to_str().ok()?;
    range.strip_prefix("bytes ")?.split_once('-')?.0.parse().ok()
}
