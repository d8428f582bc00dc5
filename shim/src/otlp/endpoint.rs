//! Where spans are sent: an address on the node, as one option has it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// OTLP's own port for HTTP.
const PORT: u16 = 4318;
/// What its protocol has behind the address that is configured.
const TRACES: &str = "/v1/traces";

/// An address and a path. A name would have to be looked up, for which a static program depends on the node's C library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Where to connect to.
    pub address: SocketAddr,
    /// What to ask for there.
    pub path: String,
}

impl Endpoint {
    /// What one may be.
    pub const ALLOWED: &str = "http:// with an IP address or localhost, a port if it is not 4318, and a path if there is one, such as http://127.0.0.1:4318: there is no TLS and no look-up of names, since the collector is on the node";

    /// Reads one. `None` for what it may not be.
    pub fn parse(text: &str) -> Option<Self> {
        let rest = text.strip_prefix("http://")?;
        let (host, path) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        // It becomes a line of the request.
        let plain = |byte: u8| byte.is_ascii_graphic() && byte != b'?' && byte != b'#';
        if !path.bytes().all(plain) {
            return None;
        }
        Some(Self {
            address: address(host).filter(|address| address.port() != 0)?,
            path: format!("{}{TRACES}", path.trim_end_matches('/')),
        })
    }
}

fn address(host: &str) -> Option<SocketAddr> {
    let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
    if let Some(port) = host.strip_prefix("localhost") {
        let port = match port.strip_prefix(':') {
            Some(port) => port.parse().ok()?,
            None if port.is_empty() => PORT,
            None => return None,
        };
        return Some(SocketAddr::new(loopback, port));
    }
    let bare = match host.strip_prefix('[') {
        Some(inner) => inner
            .strip_suffix(']')
            .and_then(|ip| ip.parse().ok())
            .map(IpAddr::V6),
        None => host.parse().ok().map(IpAddr::V4),
    };
    bare.map(|ip| SocketAddr::new(ip, PORT))
        .or_else(|| host.parse().ok())
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "http://{}{}", self.address, self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_taken_with_what_the_protocol_adds() {
        for (text, means) in [
            ("http://127.0.0.1", "http://127.0.0.1:4318/v1/traces"),
            ("http://127.0.0.1:1234/", "http://127.0.0.1:1234/v1/traces"),
            ("http://localhost", "http://127.0.0.1:4318/v1/traces"),
            ("http://localhost:80/otlp/", "http://127.0.0.1:80/otlp/v1/traces"),
            ("http://[::1]", "http://[::1]:4318/v1/traces"),
            ("http://[::1]:99/a/b", "http://[::1]:99/a/b/v1/traces"),
        ] {
            let parsed = Endpoint::parse(text).map(|endpoint| endpoint.to_string());
            assert_eq!(parsed.as_deref(), Some(means), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_reached_in_the_plain_or_would_break_a_request_is_none() {
        for text in [
            "",
            "127.0.0.1:4318",
            "https://127.0.0.1:4318",
            "http://",
            "http:///v1/traces",
            "http://collector.example:4318",
            "http://localhost.example",
            "http://localhost:",
            "http://user@127.0.0.1",
            "http://127.0.0.1:0",
            "http://127.0.0.1:65536",
            "http://::1",
            "http://[127.0.0.1]",
            "http://127.0.0.1/a b",
            "http://127.0.0.1/a\r\nX: y",
            "http://127.0.0.1/?a=b",
            "http://127.0.0.1 ",
        ] {
            assert_eq!(Endpoint::parse(text), None, "{text}");
        }
    }
}
