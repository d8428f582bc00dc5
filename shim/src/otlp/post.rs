//! Handing something to a collector.

use std::io::{Error, Result};
use std::time::Duration;

use super::Endpoint;

/// On one node.
const CONNECTS_WITHIN: Duration = Duration::from_millis(500);
/// For all of a request and its answer.
const ANSWERS_WITHIN: Duration = Duration::from_secs(2);

/// Sends a message in protobuf.
///
/// # Errors
/// Nobody is there, nobody answers in time, or the answer is not that it was taken.
pub fn post(to: &Endpoint, message: &[u8]) -> Result<()> {
    let agent = ureq::Agent::config_builder()
        // Not what containerd's environment says: the collector is on the node.
        .proxy(None)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .http_status_as_error(false)
        .timeout_connect(Some(CONNECTS_WITHIN))
        .timeout_global(Some(ANSWERS_WITHIN))
        .build()
        .new_agent();
    let Endpoint { address, path } = to;
    let answer = agent
        .post(format!("http://{address}{path}"))
        .content_type("application/x-protobuf")
        .send(message)
        .map_err(Error::other)?;
    if answer.status().is_success() {
        return Ok(());
    }
    Err(Error::other(format!("it answered {}", answer.status())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    /// What comes of a request that is answered so, and the request.
    fn answered(answer: &'static str) -> (Result<()>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let collector = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"spans") {
                let mut some = [0; 512];
                let read = stream.read(&mut some).unwrap();
                assert_ne!(read, 0, "the request ends early");
                request.extend(&some[..read]);
            }
            stream.write_all(answer.as_bytes()).unwrap();
            String::from_utf8(request).unwrap()
        });
        let to = Endpoint::parse(&format!("http://{address}/a")).unwrap();
        (post(&to, b"spans"), collector.join().unwrap())
    }

    #[test]
    fn only_a_status_of_the_two_hundreds_is_success() {
        for taken in [
            "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n",
        ] {
            assert!(answered(taken).0.is_ok(), "{taken}");
        }
        for other in [
            "",
            "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 301 Moved\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
            "SSH-2.0 200\r\n",
        ] {
            assert!(answered(other).0.is_err(), "{other}");
        }
    }

    #[test]
    fn a_request_is_a_post_of_the_message_to_the_path() {
        let (_, request) = answered("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        assert!(request.starts_with("POST /a/v1/traces HTTP/1.1\r\n"), "{request}");
        let head = request.to_ascii_lowercase();
        assert!(
            head.contains("\r\ncontent-type: application/x-protobuf\r\n"),
            "{request}"
        );
        assert!(head.contains("\r\ncontent-length: 5\r\n"), "{request}");
    }
}
