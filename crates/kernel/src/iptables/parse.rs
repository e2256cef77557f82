//! Parses rules as printed by `iptables-save`.
//!
//! A rule with any match or target that we never write is not parsed: it belongs to another program and differs from
//! all of ours.

use ipnet::IpNet;

use super::rule::{CERTAIN, Match, Rule, State, Target, Transport, probability};
use super::tokens::split;

impl Rule {
    /// Parses a rule without its chain.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut reader = Reader { words: split(text)?.into_iter(), ..Reader::default() };
        while let Some(word) = reader.words.next() {
            reader.take(&word)?;
        }
        reader.finish()
    }
}

/// Parser state.
#[derive(Default)]
struct Reader {
    words: std::vec::IntoIter<String>,
    /// Whether the last word was `!`.
    not: bool,
    matches: Vec<Match>,
    protocol: Option<(Transport, bool)>,
    port: Option<u16>,
    recent: Option<Recent>,
    target: Option<String>,
    /// Option of the target.
    argument: Option<(String, String)>,
    comment: Option<String>,
}

/// A partially parsed `recent` match.
#[derive(Default)]
struct Recent {
    set: bool,
    check: bool,
    reap: bool,
    seconds: Option<u32>,
    list: Option<String>,
}

impl Reader {
    fn next(&mut self) -> Option<String> {
        self.words.next()
    }

    fn push(&mut self, one: Match) -> Option<()> {
        self.matches.push(one);
        Some(())
    }

    fn take(&mut self, word: &str) -> Option<()> {
        if word == "!" {
            return (!std::mem::replace(&mut self.not, true)).then_some(());
        }
        let not = std::mem::take(&mut self.not);
        match word {
            "-s" => Match::Source { range: range(&self.next()?)?, not },
            "-d" => Match::Destination { range: range(&self.next()?)?, not },
            "-i" => Match::Interface { name: self.next()?, not },
            "--mark" => Match::Marked { bits: bits(&self.next()?)?, not },
            // Only the above can be negated.
            _ if not && word != "-p" => return None,
            "-p" => {
                let name = self.next()?;
                let transport = Transport::ALL.into_iter().find(|one| one.as_str() == name)?;
                return self.protocol.replace((transport, not)).is_none().then_some(());
            }
            "--ctstate" => Match::State(state(&self.next()?)?),
            "--src-type" => (self.next()? == "LOCAL").then_some(Match::LocalSource)?,
            "--dst-type" => (self.next()? == "LOCAL").then_some(Match::LocalDestination)?,
            "--probability" => chance(&self.next()?)?,
            "--every" => Match::EveryNth(self.next()?.parse().ok()?),
            _ => return self.take_other(word),
        }
        .pipe(|one| self.push(one))
    }

    fn take_other(&mut self, word: &str) -> Option<()> {
        match word {
            "-m" => {
                let module = self.next()?;
                if module == "recent" {
                    self.recent = Some(Recent::default());
                }
                MODULES.contains(&module.as_str()).then_some(())?;
            }
            "--mode" => ["random", "nth"].contains(&self.next()?.as_str()).then_some(())?,
            // The first packet.
            "--packet" => (self.next()? == "0").then_some(())?,
            "--dport" => self.port = Some(self.next()?.parse().ok()?),
            "--comment" => self.comment = Some(self.next()?),
            "--rcheck" => self.recent.as_mut()?.check = true,
            "--set" => self.recent.as_mut()?.set = true,
            "--reap" => self.recent.as_mut()?.reap = true,
            "--seconds" => self.recent.as_mut()?.seconds = Some(self.words.next()?.parse().ok()?),
            "--name" => self.recent.as_mut()?.list = Some(self.words.next()?),
            "--rsource" => self.recent.as_mut().map(|_| ())?,
            "--mask" => WHOLE.contains(&self.next()?.as_str()).then_some(())?,
            "-j" => self.target = Some(self.next()?),
            "--set-xmark" | "--to-destination" | "--reject-with" => {
                let value = self.next()?;
                self.argument = Some((word.to_owned(), value));
            }
            "--random-fully" => self.argument = Some((word.to_owned(), String::new())),
            _ => return None,
        }
        Some(())
    }

    fn finish(mut self) -> Option<Rule> {
        if self.not {
            return None;
        }
        match (self.protocol, self.port) {
            (Some((transport, false)), Some(port)) => self.matches.push(Match::Port(transport, port)),
            (Some((transport, not)), None) => self.matches.push(Match::Protocol { transport, not }),
            (None, None) => {}
            (_, Some(_)) => return None,
        }
        if let Some(recent) = self.recent.take() {
            self.matches.push(recent.finish()?);
        }
        let argument = self.argument.as_ref().map(|(option, value)| (option.as_str(), value.as_str()));
        let target = target(self.target.as_deref(), argument)?;
        let rule = self.matches.into_iter().fold(Rule::new(target), Rule::when);
        Some(match self.comment {
            Some(comment) => rule.with_comment(comment),
            None => rule,
        })
    }
}

impl Recent {
    fn finish(self) -> Option<Match> {
        let list = self.list?.into();
        match (self.set, self.check, self.reap, self.seconds) {
            (true, false, false, None) => Some(Match::RecentSet { list }),
            (false, true, true, Some(seconds)) => Some(Match::RecentCheck { list, seconds }),
            _ => None,
        }
    }
}

/// Match modules of our rules.
const MODULES: [&str; 9] = ["tcp", "udp", "sctp", "comment", "conntrack", "addrtype", "mark", "recent", "statistic"];

/// Host masks.
const WHOLE: [&str; 2] = ["255.255.255.255", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"];

/// Pipes a value into a function, so that long match arms read left to right.
trait Pipe: Sized {
    fn pipe<T>(self, then: impl FnOnce(Self) -> T) -> T {
        then(self)
    }
}

impl Pipe for Match {}

fn range(text: &str) -> Option<IpNet> {
    text.parse().ok().or_else(|| text.parse::<std::net::IpAddr>().ok().map(IpNet::from))
}

fn number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// The bits of `bits/bits`.
fn bits(text: &str) -> Option<u32> {
    let (value, mask) = text.split_once('/')?;
    let (value, mask) = (number(value)?, number(mask)?);
    (value == mask).then_some(value)
}

fn state(text: &str) -> Option<State> {
    let mut names: Vec<&str> = text.split(',').collect();
    names.sort_unstable();
    match names[..] {
        ["NEW"] => Some(State::New),
        ["INVALID"] => Some(State::Invalid),
        ["ESTABLISHED", "RELATED"] => Some(State::Known),
        _ => None,
    }
}

/// A random match with this probability.
fn chance(text: &str) -> Option<Match> {
    if let Some(count) = one_in(text) {
        return Some(Match::OneIn(count));
    }
    let chance: f64 = text.parse().ok().filter(|chance| *chance > 0.0 && *chance < 1.0)?;
    // In range: it is less than 1.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let parts = (chance * f64::from(CERTAIN)).round() as u32;
    Some(Match::Chance(parts))
}

/// The n of a 1-in-n probability, if it is one. The kernel stores probabilities as multiples of 2⁻³¹.
fn one_in(text: &str) -> Option<u32> {
    let parts = |chance: f64| (chance * 2_147_483_648.0).round();
    let chance: f64 = text.parse().ok().filter(|chance| *chance > 0.0 && *chance <= 1.0)?;
    // In range: a representable probability above zero is at least 2⁻³¹.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let count = (1.0 / chance).round().min(f64::from(u32::MAX)) as u32;
    let again: f64 = probability(count).parse().ok()?;
    (parts(again) == parts(chance)).then_some(count)
}

/// A target with its option.
fn target(name: Option<&str>, argument: Option<(&str, &str)>) -> Option<Target> {
    let Some(name) = name else { return argument.is_none().then_some(Target::Nothing) };
    match (name, argument) {
        ("ACCEPT", None) => Some(Target::Accept),
        ("DROP", None) => Some(Target::Drop),
        ("RETURN", None) => Some(Target::Return),
        ("REJECT", None | Some(("--reject-with", "icmp-port-unreachable" | "icmp6-port-unreachable"))) => {
            Some(Target::Reject)
        }
        ("REJECT", Some(("--reject-with", "tcp-reset"))) => Some(Target::Reset),
        ("MARK", Some(("--set-xmark", value))) => {
            let (value, mask) = value.split_once('/')?;
            match (number(value)?, number(mask)?) {
                (bits, 0) => Some(Target::XorMark(bits)),
                (bits, mask) => (bits == mask).then_some(Target::Mark(bits)),
            }
        }
        ("DNAT", Some(("--to-destination", to))) => to.parse().ok().map(Target::Translate),
        ("MASQUERADE", Some(("--random-fully", _))) => Some(Target::Masquerade),
        ("REJECT" | "MARK" | "DNAT" | "MASQUERADE", _) => None,
        (chain, None) => Some(Target::Chain(chain.into())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn again(text: &str) -> Option<String> {
        Rule::parse(text).map(|rule| rule.to_string())
    }

    #[test]
    fn rules_are_parsed_as_printed() {
        let same = |text: &str| assert_eq!(again(text).as_deref(), Some(text));
        same(
            "! -s 10.244.0.0/16 -d 10.96.0.1/32 -p tcp -m tcp --dport 80 -m comment --comment \"a b\" -j KUBE-MARK-MASQ",
        );
        same("-d 10.96.0.0/16 ! -p tcp -j REJECT");
        same("-d 10.96.0.0/16 -p tcp -j REJECT --reject-with tcp-reset");
        same("-m mark ! --mark 0x4000/0x4000 -j RETURN");
        same("-j MARK --set-xmark 0x4000/0x0");
        same("-j MARK --set-xmark 0x4000/0x4000");
        same("! -i veth+ -j X");
        same("-m comment --comment waypost");
        same("-p tcp -j DNAT --to-destination [fd00::1]:80");
        assert_eq!(
            again("-m statistic --mode random --probability 0.33333333349 -j X").as_deref(),
            Some("-m statistic --mode random --probability 0.3333333333 -j X")
        );
        same("-m statistic --mode nth --every 3 --packet 0 -j X");
        assert_eq!(
            again("-m statistic --mode random --probability 0.39999999991 -j X"),
            Some(Rule::jump("X").when(Match::share(2, 5)).to_string())
        );
        assert_eq!(
            again("-m recent --rcheck --seconds 9 --reap --name L --mask 255.255.255.255 --rsource -j X").as_deref(),
            Some("-m recent --rcheck --seconds 9 --reap --name L --rsource -j X")
        );
        assert_eq!(again("-j REJECT --reject-with icmp6-port-unreachable").as_deref(), Some("-j REJECT"));
    }

    #[test]
    fn foreign_rules_are_not_parsed() {
        for text in [
            "-j LOG --log-prefix x",
            "-p icmp -j ACCEPT",
            "--dport 80 -j ACCEPT",
            "-m limit --limit 3/min -j ACCEPT",
            "-m conntrack --ctstate NEW,ESTABLISHED -j ACCEPT",
            "-m statistic --mode random --probability 1.5 -j X",
            "-m statistic --mode nth --every 3 --packet 1 -j X",
            "-m recent --update --name X --rsource -j X",
            "-j MASQUERADE",
            "! -j X",
            "-g X",
        ] {
            assert_eq!(again(text), None, "{text}");
        }
    }

    #[test]
    fn probabilities_are_distinguished() {
        for count in (1..2_000).chain([20_000, 40_000]) {
            assert_eq!(one_in(&probability(count)), Some(count));
        }
    }
}
