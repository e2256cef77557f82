//! Takes a stream of lines apart, whatever pieces it comes in: a watch is one event on each line.

/// The piece of a line that has come so far.
#[derive(Debug, Default)]
pub struct Lines {
    begun: Vec<u8>,
}

impl Lines {
    /// Calls `on_line` with every line that is complete.
    pub fn feed(&mut self, data: &[u8], mut on_line: impl FnMut(&[u8])) {
        let mut rest = data;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            if self.begun.is_empty() {
                on_line(&rest[..end]);
            } else {
                self.begun.extend_from_slice(&rest[..end]);
                on_line(&self.begun);
                self.begun.clear();
            }
            rest = &rest[end + 1..];
        }
        self.begun.extend_from_slice(rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_found_whatever_pieces_they_come_in() {
        let text = b"first\n\nthe third\nnot complete";
        for size in 1..text.len() {
            let (mut lines, mut found) = (Lines::default(), Vec::new());
            text.chunks(size).for_each(|piece| lines.feed(piece, |line| found.push(line.to_vec())));
            assert_eq!(found, [b"first".to_vec(), b"".to_vec(), b"the third".to_vec()], "in pieces of {size}");
        }
    }
}
