//! Values of literals: numbers, strings and bytes as they are written in an expression.

use std::sync::Arc;

use super::ast::Literal;

const UNABLE: &str = "unable to unescape string";

/// An integer, decimal or with the prefix `0x`, with its sign.
pub(crate) fn int(text: &str, negative: bool) -> Option<Literal> {
    let (digits, base) = text.strip_prefix("0x").map_or((text, 10), |hex| (hex, 16));
    let amount = i128::from(u64::from_str_radix(digits, base).ok()?);
    i64::try_from(if negative { -amount } else { amount }).ok().map(Literal::Int)
}

/// An unsigned integer with its suffix `u`.
pub(crate) fn uint(text: &str) -> Option<Literal> {
    let text = text.get(..text.len().checked_sub(1)?)?;
    let (digits, base) = text.strip_prefix("0x").map_or((text, 10), |hex| (hex, 16));
    u64::from_str_radix(digits, base).ok().map(Literal::Uint)
}

/// A number with a fraction or an exponent. Too large for a double is an error.
pub(crate) fn double(text: &str, negative: bool) -> Option<Literal> {
    let amount: f64 = text.parse().ok().filter(|amount: &f64| amount.is_finite())?;
    Some(Literal::Double(if negative { -amount } else { amount }))
}

/// A string with its quotes and its prefix, if any.
///
/// # Errors
/// What is wrong with an escape sequence.
pub(crate) fn string(text: &str) -> Result<Literal, &'static str> {
    let (body, raw) = unquote(text)?;
    let bytes = unescape(&body, raw, false)?;
    String::from_utf8(bytes).map(|text| Literal::String(text.into())).map_err(|_| UNABLE)
}

/// A byte string with its prefix `b` and its quotes.
///
/// # Errors
/// What is wrong with an escape sequence.
pub(crate) fn bytes(text: &str) -> Result<Literal, &'static str> {
    let (body, raw) = unquote(text.get(1..).ok_or(UNABLE)?)?;
    Ok(Literal::Bytes(Arc::from(unescape(&body, raw, true)?)))
}

/// The text between the quotes, with line ends as `\n`, and whether it is raw.
fn unquote(text: &str) -> Result<(String, bool), &'static str> {
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let plain = text.strip_prefix(['r', 'R']);
    let (quoted, raw) = (plain.unwrap_or(&text), plain.is_some());
    let body = ["'''", "\"\"\"", "'", "\""]
        .iter()
        .find_map(|quote| quoted.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote)));
    Ok((body.ok_or(UNABLE)?.to_owned(), raw))
}

fn unescape(body: &str, raw: bool, bytes: bool) -> Result<Vec<u8>, &'static str> {
    if raw || !body.contains('\\') {
        return Ok(body.as_bytes().to_vec());
    }
    let mut out = Vec::with_capacity(body.len());
    let mut chars = body.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            continue;
        }
        let code = match chars.next() {
            None => return Err("unable to unescape string, found '\\' as last character"),
            Some('a') => 0x07,
            Some('b') => 0x08,
            Some('f') => 0x0c,
            Some('n') => 0x0a,
            Some('r') => 0x0d,
            Some('t') => 0x09,
            Some('v') => 0x0b,
            Some(same @ ('\\' | '\'' | '"' | '`' | '?')) => u32::from(same),
            Some('x' | 'X') => digits(&mut chars, 2, 16, 0).ok_or(UNABLE)?,
            Some('u') if !bytes => digits(&mut chars, 4, 16, 0).ok_or(UNABLE)?,
            Some('U') if !bytes => digits(&mut chars, 8, 16, 0).ok_or(UNABLE)?,
            Some(first @ '0'..='3') => digits(&mut chars, 2, 8, u32::from(first) - u32::from('0'))
                .ok_or("unable to unescape octal sequence in string")?,
            Some(_) => return Err(UNABLE),
        };
        match (bytes, u8::try_from(code), char::from_u32(code)) {
            (true, Ok(byte), _) => out.push(byte),
            (false, _, Some(c)) => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            _ => return Err("invalid unicode code point"),
        }
    }
    Ok(out)
}

/// `count` more digits behind a first value.
fn digits(chars: &mut std::str::Chars<'_>, count: usize, base: u32, first: u32) -> Option<u32> {
    (0..count).try_fold(first, |value, _| {
        let digit = chars.next()?.to_digit(base)?;
        value.checked_mul(base)?.checked_add(digit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        assert_eq!(int("9223372036854775808", true), Some(Literal::Int(i64::MIN)));
        assert_eq!(int("9223372036854775808", false), None);
        assert_eq!(int("0xff", false), Some(Literal::Int(255)));
        assert_eq!(uint("0x10u"), Some(Literal::Uint(16)));
        assert_eq!(uint("18446744073709551616u"), None);
        assert_eq!(double("1e3", true), Some(Literal::Double(-1000.0)));
        assert_eq!(double("1e999", false), None);
    }

    #[test]
    fn strings() {
        let cases = [
            (r"'a\n\x41\u00e4\101'", Ok("a\nAäA")),
            (r#"r"a\n""#, Ok("a\\n")),
            ("'''a'b'''", Ok("a'b")),
            ("\"a\r\nb\"", Ok("a\nb")),
            (r"'\ud800'", Err("invalid unicode code point")),
            (r"'\xff'", Ok("ÿ")),
            (r"'\q'", Err(UNABLE)),
        ];
        for (text, wanted) in cases {
            assert_eq!(string(text), wanted.map(|wanted| Literal::String(wanted.into())), "{text}");
        }
        assert_eq!(bytes(r"b'\xff\377ä'"), Ok(Literal::Bytes(Arc::from([0xff, 0xff, 0xc3, 0xa4]))));
        assert_eq!(bytes(r"b'\u00e4'"), Err(UNABLE));
    }
}
