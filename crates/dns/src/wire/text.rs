//! Text form of records.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::{Record, rtype, to_text};

impl Record {
    /// `owner ttl class type data`.
    #[must_use]
    pub fn text(&self) -> String {
        let class = if self.class == super::IN { "IN".to_owned() } else { format!("CLASS{}", self.class) };
        let kind = rtype::text(self.rtype).map_or_else(|| format!("TYPE{}", self.rtype), str::to_owned);
        format!("{} {} {class} {kind} {}", to_text(&self.owner), self.ttl, self.data_text())
    }

    /// RDATA in presentation format, or in the generic format of RFC 3597.
    #[must_use]
    pub fn data_text(&self) -> String {
        known(self.rtype, &self.data).unwrap_or_else(|| {
            let hex: String = self.data.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("\\# {} {hex}", self.data.len())
        })
    }
}

fn known(rtype: u16, data: &[u8]) -> Option<String> {
    let word = |at: usize| Some(u16::from_be_bytes([*data.get(at)?, *data.get(at + 1)?]));
    Some(match rtype {
        rtype::A => Ipv4Addr::from(<[u8; 4]>::try_from(data).ok()?).to_string(),
        rtype::AAAA => Ipv6Addr::from(<[u8; 16]>::try_from(data).ok()?).to_string(),
        rtype::CNAME | rtype::NS | rtype::PTR => to_text(data),
        rtype::MX => format!("{} {}", word(0)?, to_text(data.get(2..)?)),
        rtype::SRV => format!("{} {} {} {}", word(0)?, word(2)?, word(4)?, to_text(data.get(6..)?)),
        rtype::TXT | rtype::HINFO => strings(data)?.join(" "),
        rtype::SOA => {
            let second = end_of_name(data)?;
            let numbers = second + end_of_name(data.get(second..)?)?;
            let numbers = data
                .get(numbers..)?
                .chunks_exact(4)
                .map(|four| four.iter().fold(0, |all: u32, byte| all << 8 | u32::from(*byte)).to_string());
            let numbers: Vec<String> = numbers.collect();
            format!("{} {} {}", to_text(data), to_text(data.get(second..)?), numbers.join(" "))
        }
        _ => return None,
    })
}

/// End offset of an uncompressed name.
fn end_of_name(data: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        match usize::from(*data.get(at)?) {
            0 => return Some(at + 1),
            len => at += 1 + len,
        }
    }
}

fn strings(mut data: &[u8]) -> Option<Vec<String>> {
    let mut out = Vec::new();
    while let Some((len, rest)) = data.split_first() {
        let (text, rest) = rest.split_at_checked(usize::from(*len))?;
        let quoted = text.iter().map(|byte| match byte {
            b'"' | b'\\' => format!("\\{}", char::from(*byte)),
            0x20..=0x7e => char::from(*byte).to_string(),
            _ => format!("\\{byte:03}"),
        });
        out.push(format!("\"{}\"", quoted.collect::<String>()));
        data = rest;
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_written_as_zone_files_have_them() {
        let record =
            |rtype, data: &[u8]| Record { owner: b"\x01a\0".to_vec(), rtype, class: 1, ttl: 30, data: data.to_vec() };
        assert_eq!(record(rtype::A, &[1, 2, 3, 4]).text(), "a. 30 IN A 1.2.3.4");
        assert_eq!(record(rtype::A, &[1, 2]).data_text(), "\\# 2 0102", "not what its type says");
        assert_eq!(record(rtype::SRV, b"\0\0\0\x64\0\x50\x01b\0").data_text(), "0 100 80 b.");
        assert_eq!(record(rtype::TXT, b"\x05a\"b\\c").data_text(), "\"a\\\"b\\\\c\"");
        let soa = [&b"\x02ns\0\x04host\0"[..], &[0, 0, 0, 7], &[0; 16]].concat();
        assert_eq!(record(rtype::SOA, &soa).data_text(), "ns. host. 7 0 0 0 0");
        assert_eq!(record(65280, &[255]).text(), "a. 30 IN TYPE65280 \\# 1 ff");
    }
}
