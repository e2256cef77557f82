//! Certificates and CAs that end soon.

use jiff::Timestamp;

use super::{Certificate, Finding, Report, Severity};

const CHECK: &str = "certificates";

const DAY: i64 = 86_400;
/// How many seconds before its end a certificate is a finding.
const SOON: i64 = 30 * DAY;

pub(super) fn judge(certificates: &[Certificate], now: Timestamp, report: &mut Report) {
    for certificate in certificates {
        match &certificate.ends {
            Ok(ends) => report.findings.extend(ending(certificate, *ends, now)),
            Err(why) if certificate.optional => report.findings.push(Finding {
                check: CHECK,
                severity: Severity::Note,
                object: certificate.object.clone(),
                saw: format!("was not seen: {}", why.why),
                fix: why.how.clone(),
            }),
            Err(why) => report.unknown.push((CHECK, why.clone())),
        }
    }
}

fn ending(certificate: &Certificate, ends: Timestamp, now: Timestamp) -> Option<Finding> {
    let left = ends.as_second().saturating_sub(now.as_second());
    let (severity, saw) = match left {
        ..=0 => (Severity::Critical, format!("ended at {ends}")),
        1..=SOON => (Severity::Warning, format!("ends in {} days, at {ends}", left / DAY)),
        _ => return None,
    };
    let (object, fix) = (certificate.object.clone(), certificate.fix.clone());
    Some(Finding { check: CHECK, severity, object, saw, fix })
}

#[cfg(test)]
mod tests {
    use super::super::Unmeasured;
    use super::*;

    #[test]
    fn certificates_that_end_within_a_month_are_found() {
        let now = Timestamp::from_second(1_800_000_000).expect("a time");
        let certificate =
            |ends, optional| Certificate { object: "c".to_owned(), ends, fix: "renew".to_owned(), optional };
        let judged = |certificate: Certificate| {
            let mut report = Report::default();
            judge(&[certificate], now, &mut report);
            (report.findings.iter().map(|finding| finding.severity).collect::<Vec<_>>(), report.unknown.len())
        };
        let after = |seconds: i64| Ok(Timestamp::from_second(1_800_000_000 + seconds).expect("a time"));
        assert_eq!(judged(certificate(after(31 * DAY), false)), (vec![], 0));
        assert_eq!(judged(certificate(after(29 * DAY), false)), (vec![Severity::Warning], 0));
        assert_eq!(judged(certificate(after(-1), false)), (vec![Severity::Critical], 0));
        let unseen = || Err(Unmeasured { why: "no route".to_owned(), how: "go there".to_owned() });
        assert_eq!(judged(certificate(unseen(), false)), (vec![], 1));
        assert_eq!(judged(certificate(unseen(), true)), (vec![Severity::Note], 0));
    }
}
