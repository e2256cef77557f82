//! Formats of numbers with check digits.

/// The digits of a text without what separates them.
fn digits(text: &str) -> Vec<u8> {
    text.bytes().filter(u8::is_ascii_digit).map(|byte| byte - b'0').collect()
}

/// The number of a payment card: a known issuer, the length that it uses, and the Luhn check digit.
pub(super) fn is_credit_card(text: &str) -> bool {
    let digits = digits(text);
    let issuer = match digits[..] {
        [4, ..] => matches!(digits.len(), 13 | 16),
        [5, 1..=5, ..] | [6, 0, 1, 1, ..] | [6, 5, ..] => digits.len() == 16,
        [3, 4 | 7, ..] | [2, 1, 3, 1, ..] | [1, 8, 0, 0, ..] => digits.len() == 15,
        [3, 0, 0..=5, ..] | [3, 6 | 8, ..] => digits.len() == 14,
        [3, 5, ..] => digits.len() == 16,
        _ => false,
    };
    let luhn = |(index, digit): (usize, &u8)| match (index % 2, u32::from(*digit)) {
        (0, digit) => digit,
        (_, digit) => digit * 2 % 10 + u32::from(digit >= 5),
    };
    issuer && digits.iter().rev().enumerate().map(luhn).sum::<u32>() % 10 == 0
}

/// A text without spaces and dashes.
fn compact(text: &str) -> Vec<u8> {
    text.bytes().filter(|byte| !matches!(byte, b'\t' | b'\n' | 0xc | b'\r' | b' ' | b'-')).collect()
}

/// Nine digits and a check digit, which may be X.
pub(super) fn is_isbn10(text: &str) -> bool {
    let bytes = compact(text);
    let value = |(index, byte): (usize, &u8)| match byte {
        b'0'..=b'9' => Some(u32::from(byte - b'0')),
        b'X' if index == 9 => Some(10),
        _ => None,
    };
    let values: Option<Vec<u32>> = bytes.iter().enumerate().map(value).collect();
    values.is_some_and(|values| {
        values.len() == 10 && values.iter().zip(1..).map(|(value, weight)| value * weight).sum::<u32>() % 11 == 0
    })
}

/// Thirteen digits, the last of which makes the weighted sum a multiple of ten.
pub(super) fn is_isbn13(text: &str) -> bool {
    let bytes = compact(text);
    let weighted = |(index, byte): (usize, &u8)| u32::from(byte - b'0') * if index % 2 == 0 { 1 } else { 3 };
    bytes.len() == 13
        && bytes.iter().all(u8::is_ascii_digit)
        && bytes.iter().enumerate().map(weighted).sum::<u32>() % 10 == 0
}

/// Three, two and four digits, with a dash or a space between them.
pub(super) fn is_social_security(text: &str) -> bool {
    let shape = |(index, byte): (usize, &u8)| match index {
        3 | 6 => matches!(byte, b'-' | b' '),
        _ => byte.is_ascii_digit(),
    };
    text.len() == 11 && text.as_bytes().iter().enumerate().all(shape)
}
