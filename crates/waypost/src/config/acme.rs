//! Settings of certificates by ACME.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::Args;

use super::values::seconds;

/// Settings of certificates by ACME.
#[derive(Args, Debug, Clone, Default)]
pub(crate) struct AcmeArguments {
    /// Order certificates for Gateways and Ingresses with the annotation waypost.dev/acme from this ACME server, and agree to its
    /// terms of service, such as https://acme-v02.api.letsencrypt.org/directory
    #[arg(long, env = "WAYPOST_ACME_DIRECTORY", value_name = "URL")]
    pub(crate) acme_directory: Option<String>,
    /// Address for mail of the CA
    #[arg(long, env = "WAYPOST_ACME_EMAIL", value_parser = mail_address, value_name = "ADDRESS")]
    pub(crate) acme_email: Option<String>,
    /// CA certificates (PEM) that verify the ACME server; by default those that the machine trusts
    #[arg(long, env = "WAYPOST_ACME_CA_FILE", value_name = "FILE")]
    pub(crate) acme_ca_file: Option<PathBuf>,
    /// Pause after the first failure of a certificate, in seconds; each further failure triples it, up to a day. With public CAs not less than 120
    #[arg(long, env = "WAYPOST_ACME_RETRY_PERIOD", default_value = "120", value_parser = seconds, value_name = "SECONDS")]
    pub(crate) acme_retry_period: Duration,
}

impl AcmeArguments {
    /// The file with CA certificates, if the default is not used.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.acme_ca_file.as_deref()
    }

    /// The ACME server, if one is configured.
    pub(crate) fn directory(&self) -> anyhow::Result<Option<acme::Directory>> {
        let Some(url) = self.acme_directory.as_deref().filter(|url| !url.is_empty()) else { return Ok(None) };
        let roots = match &self.acme_ca_file {
            Some(path) => {
                let pem = std::fs::read(path).with_context(|| format!("reading --acme-ca-file {}", path.display()))?;
                client::tls::roots(&pem).with_context(|| format!("reading --acme-ca-file {}", path.display()))?
            }
            None => client::tls::system_roots().context(
                "reading the CA certificates of this machine; name those of the ACME server with --acme-ca-file",
            )?,
        };
        let directory = acme::Directory::new(url, self.acme_email.as_deref(), roots);
        directory.map(Some).with_context(|| format!("--acme-directory {url}"))
    }
}

fn mail_address(text: &str) -> anyhow::Result<String> {
    let (name, domain) = text.split_once('@').unwrap_or_default();
    let is_plain = !text.contains(|char: char| char.is_whitespace() || char.is_control() || "?,<>".contains(char));
    ensure!(
        !name.is_empty() && domain.contains('.') && is_plain,
        "expected one address for mail, such as ops@example.com"
    );
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Whole {
        #[command(flatten)]
        arguments: AcmeArguments,
    }

    fn parse(words: &[&str]) -> Result<AcmeArguments, clap::Error> {
        Whole::try_parse_from(["x"].iter().chain(words)).map(|whole| whole.arguments)
    }

    #[test]
    fn nothing_is_ordered_without_a_directory() {
        let arguments = parse(&["--acme-email", "ops@example.com"]).expect("good arguments");
        assert!(arguments.directory().expect("no directory").is_none());
        assert_eq!(arguments.acme_retry_period, Duration::from_secs(120));
    }

    #[test]
    fn a_directory_is_reached_by_https_and_its_ca_is_read() {
        let place = tempfile::tempdir().expect("a directory");
        let (good, bad) = (place.path().join("good"), place.path().join("bad"));
        let pair = acme::certificate::temporary(&std::collections::BTreeSet::from(["ca.example".into()]));
        std::fs::write(&good, pair.expect("a certificate").chain).expect("written");
        std::fs::write(&bad, "nothing").expect("written");
        let with = |url: &str, file: &Path| {
            let file = file.to_str().expect("a path");
            parse(&["--acme-directory", url, "--acme-ca-file", file]).expect("arguments").directory()
        };
        let url = "https://ca.example:14000/dir";
        assert_eq!(with(url, &good).expect("a directory").map(|found| found.url().to_owned()).as_deref(), Some(url));
        for (url, file) in
            [(url, &bad), (url, &place.path().join("none")), ("http://ca.example/dir", &good), ("x", &good)]
        {
            assert!(with(url, file).is_err(), "{url} {}", file.display());
        }
        for wrong in ["", "ops", "ops@", "@example.com", "a@b.c, d@e.f", "a@b.c?x"] {
            assert!(parse(&["--acme-email", wrong]).is_err(), "{wrong}");
        }
    }
}
