//! Telling containerd what happened, in the order in which it happened.
//!
//! One queue and one connection for the whole shim. containerd may be restarted while containers run: an event then
//! waits until it is back. What is dropped in the end, when a queue that long is full, is said in the log.

use std::time::Duration;

use containerd_shim::event::Event;
use containerd_shim::protos::protobuf::well_known_types::any::Any;
use containerd_shim::protos::protobuf::{EnumOrUnknown, Message};
use containerd_shim::protos::shim::event::Envelope;
use containerd_shim::protos::shim::events::ForwardRequest;
use containerd_shim::protos::shim_async::{Client, EventsClient};
use containerd_shim::protos::ttrpc::context;
use containerd_shim::util::timestamp;
use tokio::sync::mpsc;

/// Events that wait while containerd is away.
const LONGEST_QUEUE: usize = 4096;
/// How long containerd may take for one event before it is sent again.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);
/// Pauses between tries, from the first to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// The sending end of the queue.
#[derive(Clone, Debug)]
pub struct Publisher {
    namespace: String,
    queue: mpsc::Sender<Envelope>,
}

impl Publisher {
    /// Starts the task that empties the queue towards containerd's ttrpc socket.
    pub fn new(address: String, namespace: String) -> Self {
        let (queue, waiting) = mpsc::channel(LONGEST_QUEUE);
        // containerd hands on a bare path; the client wants to be told what kind of address it is.
        let address = if address.contains("://") {
            address
        } else {
            format!("unix://{address}")
        };
        tokio::spawn(deliver(address, waiting));
        Self { namespace, queue }
    }

    /// Puts an event into the queue. Never waits, so that no call can fail or stall for want of a listener.
    pub fn publish<E: Event + Message>(&self, event: E) {
        let topic = event.topic();
        let envelope = pack("containerd.events", &event).and_then(|event| {
            Ok(Envelope {
                timestamp: Some(timestamp()?).into(),
                namespace: self.namespace.clone(),
                topic: topic.clone(),
                event: Some(event).into(),
                ..Envelope::default()
            })
        });
        match envelope {
            Ok(envelope) => {
                if self.queue.try_send(envelope).is_err() {
                    tracing::error!(
                        topic,
                        "dropped an event: containerd has been away for {LONGEST_QUEUE} of them"
                    );
                }
            }
            Err(error) => tracing::error!(topic, %error, "an event cannot be encoded"),
        }
    }
}

/// Puts a message into an envelope by its package and name. The library would look the name up in a description of
/// the whole protocol, which it builds in memory for that.
///
/// # Errors
/// The message cannot be encoded.
pub fn pack<M: Message>(package: &str, message: &M) -> containerd_shim::Result<Any> {
    Ok(Any {
        type_url: format!("{package}.{}", M::NAME),
        value: message.write_to_bytes()?,
        ..Any::default()
    })
}

async fn deliver(address: String, mut waiting: mpsc::Receiver<Envelope>) {
    let mut client: Option<EventsClient> = None;
    while let Some(envelope) = waiting.recv().await {
        let mut request = ForwardRequest::new();
        request.set_envelope(envelope);
        let mut pause = FIRST_PAUSE;
        loop {
            if client.is_none() {
                client = match Client::connect(&address).await {
                    Ok(connected) => Some(EventsClient::new(connected)),
                    Err(error) => {
                        tracing::debug!(%error, address, "containerd is not there; trying again");
                        None
                    }
                };
            }
            if let Some(connected) = &client {
                let timeout = context::with_duration(ANSWERS_WITHIN);
                match connected.forward(timeout, &request).await {
                    Ok(_) => break,
                    Err(error) => {
                        tracing::debug!(%error, "containerd took no event; trying again");
                        client = None;
                    }
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

/// The state of a process, as the API spells it.
pub fn status(
    of: containerd_shim::protos::api::Status,
) -> EnumOrUnknown<containerd_shim::protos::api::Status> {
    EnumOrUnknown::new(of)
}

#[cfg(test)]
mod tests {
    use super::*;
    use containerd_shim::protos::events::task::{TaskExit, TaskOOM};
    use containerd_shim::protos::protobuf::MessageFull;
    use containerd_shim::protos::shim::oci::ProcessDetails;

    /// The names that are put together here are those of the protocol's own description.
    #[test]
    fn a_message_is_packed_under_its_full_name() {
        fn check<M: MessageFull>(package: &str) {
            let packed = pack(package, &M::new()).unwrap();
            assert_eq!(packed.type_url, M::descriptor().full_name());
        }
        check::<TaskExit>("containerd.events");
        check::<TaskOOM>("containerd.events");
        check::<ProcessDetails>("containerd.runc.v1");
    }
}
