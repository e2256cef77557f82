//! Blob downloads: resumed after errors, shared between pulls, and verified by digest.
//!
//! ```text
//! downloads/DIGEST.part ──complete and verified──▶ downloads/DIGEST
//! ```
//! The part file is locked during the download, so that processes and images with the same layer do not fetch it twice.

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
use super::web::READ_TIMEOUT;
use super::{PullError, Session};

/// Consecutive attempts without progress.
const MAX_WITHOUT_PROGRESS: u32 = 3;
/// The most attempts.
const MAX_ATTEMPTS: u32 = 20;
/// The base of the linear backoff between attempts.
const BACKOFF: Duration = Duration::from_millis(500);

/// Downloads a blob into a directory unless it exists; the returned file stays readable after removal.
pub(in super::super) async fn download_blob(
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
    let mut download = Download::resume(part, blob.size).await?;
    let mut without_progress = 0;
    for attempt in 1.. {
        let before = download.length;
        let result = fetch_rest(session, blob, &mut download).await;
        let Err(error) = result else { break };
        without_progress = if download.length > before { 0 } else { without_progress + 1 };
        if !error.is_transient() || without_progress >= MAX_WITHOUT_PROGRESS || attempt >= MAX_ATTEMPTS {
            return Err(error);
        }
        tracing::debug!(%error, blob = blob.digest, "resuming download");
        tokio::time::sleep(BACKOFF * without_progress).await;
    }
    download.file.flush().await?;
    let found = hex(download.context.finish().as_ref());
    if found != blob.digest {
        // Discard the content: the next attempt starts from the beginning.
        fs::remove_file(&part_path)?;
        return Err(PullError::DigestMismatch { host: session.host().to_owned(), what: session.name_of(blob), found });
    }
    fs::rename(&part_path, &path)?;
    Ok(File::open(&path)?)
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}

enum Found {
    Whole(File),
    /// Locked while open.
    Part(File),
}

/// Opens a blob or its part file; blocks while another process downloads it.
fn open(part_path: &Path, path: &Path) -> io::Result<Found> {
    loop {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let part = File::options().create(true).truncate(false).read(true).write(true).open(part_path)?;
        flock(&part, FlockOperation::LockExclusive)?;
        if let Ok(whole) = File::open(path) {
            // Another process finished the download; the part file is a new, empty one.
            if part.metadata()?.len() == 0 {
                let _ = fs::remove_file(part_path);
            }
            return Ok(Found::Whole(whole));
        }
        // The file may have been removed while waiting for the lock.
        if fs::metadata(part_path).is_ok_and(|now| part.metadata().is_ok_and(|own| own.ino() == now.ino())) {
            return Ok(Found::Part(part));
        }
    }
}

/// A partial download and its digest so far.
struct Download {
    file: tokio::fs::File,
    context: Context,
    length: u64,
}

impl Download {
    /// Resumes an existing part file.
    async fn resume(mut part: File, size: u64) -> io::Result<Self> {
        blocking(move || {
            let mut context = Context::new(&SHA256);
            let mut length = 0;
            let mut buffer = vec![0; 64 << 10];
            while let read @ 1.. = part.read(&mut buffer)? {
                context.update(buffer.get(..read).unwrap_or_default());
                length += read as u64;
            }
            let mut download = Self { file: tokio::fs::File::from_std(part.try_clone()?), context, length };
            if download.length > size {
                part.set_len(0)?;
                io::Seek::rewind(&mut part)?;
                download.length = 0;
                download.context = Context::new(&SHA256);
            }
            Ok(download)
        })
        .await
    }

    async fn restart(&mut self) -> io::Result<()> {
        self.file.flush().await?;
        self.file.set_len(0).await?;
        self.file.rewind().await?;
        self.length = 0;
        self.context = Context::new(&SHA256);
        Ok(())
    }
}

/// Downloads the missing part.
async fn fetch_rest(session: &Session<'_>, blob: &Descriptor, download: &mut Download) -> Result<(), PullError> {
    if download.length == blob.size {
        return Ok(());
    }
    let mut headers = HeaderMap::new();
    if download.length > 0
        && let Ok(range) = HeaderValue::try_from(format!("bytes={}-", download.length))
    {
        headers.insert(header::RANGE, range);
    }
    let answer = match session.blob(blob, &headers).await {
        // The range is not satisfiable: restart.
        Err(PullError::Refused { status: 416, .. }) if download.length > 0 => {
            download.restart().await?;
            session.blob(blob, &HeaderMap::new()).await?
        }
        answer => answer?,
    };
    if download.length > 0 && start_of(&answer) != Some(download.length) {
        download.restart().await?;
    }
    let broken = |why: String| PullError::Broken { host: session.host().to_owned(), what: session.name_of(blob), why };
    let mut body = answer.into_body();
    while download.length < blob.size {
        let frame = timeout(READ_TIMEOUT, body.frame()).await;
        let frame = frame.map_err(|_| broken(format!("no data for {}s", READ_TIMEOUT.as_secs())))?;
        let Some(frame) = frame else {
            return Err(broken(format!("{} of {} bytes received", download.length, blob.size)));
        };
        let frame = frame.map_err(|error| broken(format!("after {} bytes: {error}", download.length)))?;
        let Ok(data) = frame.into_data() else { continue };
        download.length += data.len() as u64;
        if download.length > blob.size {
            download.restart().await?;
            return Err(PullError::TooLarge(format!(
                "{} has more than its {} bytes",
                session.name_of(blob),
                blob.size
            )));
        }
        download.context.update(&data);
        download.file.write_all(&data).await?;
    }
    Ok(())
}

/// The offset of a response body, by `Content-Range`.
fn start_of(answer: &Response<Incoming>) -> Option<u64> {
    if answer.status() != 206 {
        return Some(0);
    }
    let range = answer.headers().get(header::CONTENT_RANGE)?.to_str().ok()?;
    range.strip_prefix("bytes ")?.split_once('-')?.0.parse().ok()
}
