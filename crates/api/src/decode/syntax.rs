//! JSON syntax errors, with the messages of kube-apiserver.
//!
//! The fast parser has its own messages, so a text it rejects is parsed again here, slowly, only to find the first
//! invalid character and what was expected in its place.

const END: &str = "unexpected end of JSON input";

/// What is expected next.
enum Expect {
    Value,
    /// After `[`: a value or the end.
    ValueOrEnd,
    Key,
    /// After `{`: a key or the end.
    KeyOrEnd,
    Colon,
    /// After a value: a comma or the end of what is open.
    Next,
}

/// The first error of a text, or none when it is good JSON.
pub(super) fn explain(text: &str) -> Option<String> {
    Scan { text, at: 0 }.document().err()
}

struct Scan<'a> {
    text: &'a str,
    at: usize,
}

impl Scan<'_> {
    fn document(&mut self) -> Result<(), String> {
        // The closing brackets of what is open.
        let mut open: Vec<u8> = Vec::new();
        let mut expect = Expect::Value;
        loop {
            self.blanks();
            if matches!(expect, Expect::Next) && open.is_empty() {
                return if self.at == self.text.len() { Ok(()) } else { Err(self.wrong("after top-level value")) };
            }
            let byte = self.peek()?;
            expect = match expect {
                Expect::ValueOrEnd if byte == b']' => self.close(&mut open),
                Expect::KeyOrEnd if byte == b'}' => self.close(&mut open),
                Expect::Value | Expect::ValueOrEnd => self.value(byte, &mut open)?,
                Expect::Key | Expect::KeyOrEnd if byte == b'"' => {
                    self.string()?;
                    Expect::Colon
                }
                Expect::Key | Expect::KeyOrEnd => return Err(self.wrong("looking for beginning of object key string")),
                Expect::Colon if byte == b':' => {
                    self.at += 1;
                    Expect::Value
                }
                Expect::Colon => return Err(self.wrong("after object key")),
                Expect::Next => match (byte, open.last()) {
                    (byte, Some(end)) if byte == *end => self.close(&mut open),
                    (b',', Some(b']')) => {
                        self.at += 1;
                        Expect::Value
                    }
                    (b',', _) => {
                        self.at += 1;
                        Expect::Key
                    }
                    (_, Some(b']')) => return Err(self.wrong("after array element")),
                    _ => return Err(self.wrong("after object key:value pair")),
                },
            };
        }
    }

    fn close(&mut self, open: &mut Vec<u8>) -> Expect {
        open.pop();
        self.at += 1;
        Expect::Next
    }

    fn value(&mut self, byte: u8, open: &mut Vec<u8>) -> Result<Expect, String> {
        match byte {
            b'{' | b'[' => {
                self.at += 1;
                let object = byte == b'{';
                open.push(if object { b'}' } else { b']' });
                return Ok(if object { Expect::KeyOrEnd } else { Expect::ValueOrEnd });
            }
            b'"' => self.string()?,
            b't' => self.word("true")?,
            b'f' => self.word("false")?,
            b'n' => self.word("null")?,
            b'-' | b'0'..=b'9' => self.number()?,
            _ => return Err(self.wrong("looking for beginning of value")),
        }
        Ok(Expect::Next)
    }

    fn word(&mut self, word: &str) -> Result<(), String> {
        for expected in word.bytes() {
            if self.peek()? != expected {
                let place = format!("in literal {word} (expecting {})", quote_char(char::from(expected)));
                return Err(self.wrong(&place));
            }
            self.at += 1;
        }
        Ok(())
    }

    fn number(&mut self) -> Result<(), String> {
        if self.peek()? == b'-' {
            self.at += 1;
        }
        if self.peek()? == b'0' {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.here() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.here(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.here(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(())
    }

    fn digits(&mut self) -> Result<(), String> {
        if !self.peek()?.is_ascii_digit() {
            return Err(self.wrong("in number"));
        }
        while self.here().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        Ok(())
    }

    fn string(&mut self) -> Result<(), String> {
        self.at += 1;
        loop {
            match self.peek()? {
                b'"' => {
                    self.at += 1;
                    return Ok(());
                }
                b'\\' => self.escape()?,
                0..0x20 => return Err(self.wrong("in string")),
                _ => self.at += 1,
            }
        }
    }

    fn escape(&mut self) -> Result<(), String> {
        let rest = &self.text[self.at..];
        let length = match rest.as_bytes().get(1) {
            None => return Err(END.to_owned()),
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => 2,
            Some(b'u') => {
                let hex = rest.bytes().skip(2).take(4).take_while(u8::is_ascii_hexdigit).count();
                if hex < 4 && rest.len() == 2 + hex {
                    return Err(END.to_owned());
                }
                if hex < 4 {
                    return Err(bad_escape(&rest.chars().take(6).collect::<String>()));
                }
                6
            }
            Some(_) => return Err(bad_escape(&rest.chars().take(2).collect::<String>())),
        };
        self.at += length;
        Ok(())
    }

    fn blanks(&mut self) {
        while matches!(self.here(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    fn here(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn peek(&self) -> Result<u8, String> {
        self.here().ok_or_else(|| END.to_owned())
    }

    fn wrong(&self, place: &str) -> String {
        match self.text.get(self.at..).and_then(|rest| rest.chars().next()) {
            Some(found) => format!("invalid character {} {place}", quote_char(found)),
            None => END.to_owned(),
        }
    }
}

fn bad_escape(sequence: &str) -> String {
    format!("invalid escape sequence `{sequence}` in string")
}

/// A character in single quotes, as Go writes it.
fn quote_char(found: char) -> String {
    match found {
        '\'' => "'\\''".to_owned(),
        '\\' => "'\\\\'".to_owned(),
        '\n' => "'\\n'".to_owned(),
        '\r' => "'\\r'".to_owned(),
        '\t' => "'\\t'".to_owned(),
        control if u32::from(control) < 0x20 || control == '\u{7f}' => format!("'\\x{:02x}'", u32::from(control)),
        other => format!("'{other}'"),
    }
}
