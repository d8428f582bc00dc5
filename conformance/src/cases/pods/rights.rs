//! Pods that ask for rights: privileges, capabilities, root, user namespaces.

use serde_json::json;

use super::refuses;
use crate::case::Case;

/// The cases.
pub fn cases() -> Vec<Case> {
    vec![
        Case::code(
            "pods/privileged",
            &[],
            "a privileged container is refused by that name",
            |c| {
                refuses(c, "process.capabilities", |pod| {
                    pod.pod["linux"]["security_context"]["privileged"] = true.into();
                    pod.context()["privileged"] = true.into();
                    pod.context()["no_new_privs"] = false.into();
                    Ok(())
                })
            },
        ),
        Case::code(
            "pods/added-capability",
            &[],
            "an added capability is refused",
            |c| {
                refuses(c, "process.capabilities adds CAP_NET_ADMIN", |pod| {
                    pod.context()["capabilities"] = json!({"add_capabilities": ["NET_ADMIN"]});
                    Ok(())
                })
            },
        ),
        Case::code("pods/root", &[], "uid 0 is refused", |c| {
            refuses(c, "process.user.uid", |pod| {
                pod.context()["run_as_user"] = json!({"value": 0});
                Ok(())
            })
        }),
    ]
}
