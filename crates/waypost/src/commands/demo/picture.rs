//! The work of the demo's backend: scales a picture down. Pure.
//!
//! Pictures are PGM, the simplest format: `P5 WIDTH HEIGHT 255`, a newline, one byte for each pixel.

use anyhow::{Context as _, bail, ensure};

/// The scale factor of each side.
const SHRINK: usize = 4;
/// Width and height of the demo's picture, in pixels.
const SIDE: usize = 64;
/// Maximum width and height.
const LARGEST: usize = 1024;

/// A bright disc on a background gradient.
pub(super) fn sample() -> Vec<u8> {
    let middle = SIDE.cast_signed() / 2;
    let point = |place: usize| {
        let (x, y) = ((place % SIDE).cast_signed() - middle, (place / SIDE).cast_signed() - middle);
        let shade = if x * x + y * y < middle * middle / 2 { 240 } else { 160 - 2 * (place / SIDE) };
        u8::try_from(shade).unwrap_or(u8::MAX)
    };
    write(SIDE, SIDE, (0..SIDE * SIDE).map(point))
}

/// The picture, scaled to a quarter of its width and height.
pub(super) fn thumbnail(picture: &[u8]) -> anyhow::Result<Vec<u8>> {
    let (width, height, points) = read(picture)?;
    let (small_width, small_height) = (width / SHRINK, height / SHRINK);
    let mean = |place: usize| {
        let (left, top) = (place % small_width * SHRINK, place / small_width * SHRINK);
        let rows = points.chunks(width).skip(top).take(SHRINK);
        let sum: usize = rows.flat_map(|row| row.iter().skip(left).take(SHRINK)).map(|point| usize::from(*point)).sum();
        u8::try_from(sum / (SHRINK * SHRINK)).unwrap_or(u8::MAX)
    };
    Ok(write(small_width, small_height, (0..small_width * small_height).map(mean)))
}

fn write(width: usize, height: usize, points: impl Iterator<Item = u8>) -> Vec<u8> {
    format!("P5 {width} {height} 255\n").into_bytes().into_iter().chain(points).collect()
}

fn read(picture: &[u8]) -> anyhow::Result<(usize, usize, &[u8])> {
    let end = picture.iter().position(|byte| *byte == b'\n').context("this is no picture")?;
    let (head, points) = (picture.get(..end).unwrap_or_default(), picture.get(end + 1..).unwrap_or_default());
    let head = String::from_utf8_lossy(head);
    let ["P5", width, height, "255"] = head.split(' ').collect::<Vec<_>>()[..] else {
        bail!("expected `P5 WIDTH HEIGHT 255`, not {head:?}");
    };
    let side = |text: &str| text.parse().ok().filter(|side| (SHRINK..=LARGEST).contains(side));
    let (Some(width), Some(height)) = (side(width), side(height)) else {
        bail!("a side has {SHRINK} to {LARGEST} points");
    };
    ensure!(points.len() == width * height, "{} points, not {}", points.len(), width * height);
    Ok((width, height, points))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thumbnail_is_a_quarter_as_wide_and_has_the_mean_of_its_points() {
        let picture = write(8, 4, (0..32).map(|place| if place % 8 < 4 { 10 } else { 20 }));
        assert_eq!(thumbnail(&picture).expect("a picture"), b"P5 2 1 255\n\x0a\x14");
        let small = thumbnail(&sample()).expect("a picture");
        let (width, height, points) = read(&small).expect("a picture, too");
        assert_eq!((width, height), (16, 16));
        assert!(points[8 * 16 + 8] > points[0] && points[0] > points[15 * 16]);
    }

    #[test]
    fn what_is_no_picture_is_refused() {
        for bad in ["", "P5", "P5 8 8 255\nx", "P6 4 4 255\n0123456789abcdef", "P5 0 0 255\n", "P5 99999 4 255\n"] {
            assert!(thumbnail(bad.as_bytes()).is_err(), "{bad:?}");
        }
    }
}
