//! Settings of load balancers: whether Services of type LoadBalancer get addresses from us, and which.

use api::pool::Range;
use clap::Args;
use control::{LoadBalancing, PortsInUse};

/// Settings of load balancers.
#[derive(Args, Debug, Clone, Default)]
pub(crate) struct LoadBalancerArguments {
    /// Assign addresses to Services of type LoadBalancer; on in `up`, off in `server` unless --load-balancer-pool is set
    #[arg(long, env = "WAYPOST_LOAD_BALANCER", value_name = "on|off")]
    pub(crate) load_balancer: Option<Switch>,
    /// Addresses for them besides those of IPPools: prefixes or FIRST-LAST; may be repeated
    #[arg(
        long,
        env = "WAYPOST_LOAD_BALANCER_POOL",
        value_delimiter = ',',
        value_parser = pool_range,
        value_name = "CIDR|FIRST-LAST"
    )]
    pub(crate) load_balancer_pool: Vec<Range>,
    /// Whether this machine is the only node, so that ports of its programs are avoided.
    #[arg(skip)]
    pub(crate) on_this_machine: bool,
}

/// On or off.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Switch {
    /// Enabled.
    On,
    /// Disabled.
    Off,
}

impl LoadBalancerArguments {
    /// Enables what is on by default in `up`.
    pub(crate) fn for_one_machine(&mut self) {
        self.load_balancer.get_or_insert(Switch::On);
        self.on_this_machine = true;
    }

    /// Whether addresses are assigned to Services of type LoadBalancer; a pool implies it.
    pub(crate) fn is_on(&self) -> bool {
        self.load_balancer.map_or(!self.load_balancer_pool.is_empty(), |switch| switch == Switch::On)
    }

    /// The settings of the controllers.
    pub(crate) fn settings(&self) -> LoadBalancing {
        let ports_in_use =
            if self.on_this_machine { PortsInUse::checked_by(kernel::ports::is_taken) } else { PortsInUse::default() };
        LoadBalancing { enabled: self.is_on(), ranges: self.load_balancer_pool.clone(), ports_in_use }
    }
}

fn pool_range(text: &str) -> anyhow::Result<Range> {
    let range = Range::parse(text.trim()).map_err(anyhow::Error::msg)?;
    range.special().map_or(Ok(range), |why| Err(anyhow::Error::msg(why)))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Whole {
        #[command(flatten)]
        arguments: LoadBalancerArguments,
    }

    fn parse(words: &[&str]) -> Result<LoadBalancerArguments, clap::Error> {
        let all = ["x"].iter().chain(words);
        Whole::try_parse_from(all).map(|whole| whole.arguments)
    }

    #[test]
    fn a_server_assigns_addresses_only_with_the_flag_or_a_pool() {
        let enabled = |words: &[&str]| parse(words).expect("good arguments").is_on();
        assert!(
            !enabled(&[]) && enabled(&["--load-balancer", "on"]) && enabled(&["--load-balancer-pool", "192.0.2.0/28"])
        );
        assert!(!enabled(&["--load-balancer", "off", "--load-balancer-pool", "192.0.2.0/28"]));
        let mut up = parse(&[]).expect("good arguments");
        up.for_one_machine();
        assert!(up.is_on() && up.settings().ports_in_use != PortsInUse(None));
        let mut off = parse(&["--load-balancer=off"]).expect("good arguments");
        off.for_one_machine();
        assert!(!off.is_on());
    }

    #[test]
    fn pools_are_read_and_checked() {
        let words =
            ["--load-balancer-pool", "192.0.2.0/30,192.0.2.9-192.0.2.10", "--load-balancer-pool=2001:db8::/127"];
        let shown: Vec<String> =
            parse(&words).expect("good arguments").load_balancer_pool.iter().map(Range::to_string).collect();
        assert_eq!(shown, ["192.0.2.0-192.0.2.3", "192.0.2.9-192.0.2.10", "2001:db8::-2001:db8::1"]);
        let error = parse(&["--load-balancer-pool", "127.0.0.0/24"]).expect_err("loopback").to_string();
        assert!(error.contains("which is loopback"), "{error}");
        assert!(
            parse(&["--load-balancer-pool", "192.0.2.1/24"])
                .is_err_and(|error| error.to_string().contains("write 192.0.2.0/24"))
        );
    }
}
