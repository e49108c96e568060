//! Remedies for a launcher that could not start a receiver, by the last line that it has printed.

/// Parts of messages of ssh and shells, each with the remedy.
const REMEDIES: [(&str, &str); 13] = [
    (
        "Host key verification failed",
        "this machine does not know the host's key, or knows a different one: log in there once by hand (ssh HOST)",
    ),
    (
        "Permission denied (",
        "it accepts no key of this user without a password: run ssh-copy-id HOST, start ssh-agent, or name the user (USER@HOST)",
    ),
    (
        "_exchange_identification: ",
        "its ssh server accepts no more concurrent logins: lower --fanout, or raise MaxStartups in its sshd_config",
    ),
    ("Could not resolve hostname", "check the spelling, or name its address in ~/.ssh/config"),
    (
        "Connection refused",
        "no ssh server listens there; start sshd, or set its port in ~/.ssh/config",
    ),
    ("Connection timed out", "it does not answer: is it up, and does a firewall block ssh?"),
    ("No route to host", "it cannot be reached from here: is it up, and in this network?"),
    ("\"sh\"", NO_SHELL),
    ("error while loading shared libraries", LIBRARIES),
    ("version `GLIBC_", LIBRARIES),
    ("command not found", NOT_THERE),
    (": not found", NOT_THERE),
    ("No such file or directory", NOT_THERE),
];

const NOT_THERE: &str =
    "copy it with --copy-self, install it there, or give its path with --remote-rdmc";
const NO_SHELL: &str = "this host has no shell, which --copy-self needs: install rdmc there, and give its path with \
                        --remote-rdmc";
const LIBRARIES: &str = "this host lacks a library of that program: install it there, or copy a static program \
                         (--copy-self=PATH; docs/guide/kubernetes.md says how to build one)";

/// The start of the message of a receiver that cannot connect to the root.
pub const NOT_CONNECTED: &str = "cannot connect to the root: ";
/// The remedy for [`NOT_CONNECTED`].
pub const FIREWALL: &str = "does a firewall at this machine block it? see --ports and --advertise";

/// The remedy for the last line that a launcher has printed, if one is known. `is_own`: the line begins with this program's
/// name, as lines of the dynamic linker do too, but lines of ssh and shells do not.
pub fn remedy(line: &str, is_own: bool) -> Option<&'static str> {
    let applies = |remedy: &str| !is_own || remedy == LIBRARIES;
    let mut found = REMEDIES.iter().filter(|(part, _)| line.contains(part));
    found.find(|(_, remedy)| applies(remedy)).map(|(_, remedy)| *remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_failures_have_remedies() {
        let has = |line: &str, part: &str| {
            let (own, is_own) =
                line.strip_prefix("rdmc: ").map_or((line, false), |own| (own, true));
            assert!(remedy(own, is_own).is_some_and(|remedy| remedy.contains(part)), "{line}");
        };
        has("Host key verification failed.", "log in there once");
        has("me@node1: Permission denied (publickey,password).", "ssh-copy-id");
        has("ssh: Could not resolve hostname nod1: Name or service not known", "spelling");
        has("ssh: connect to host a port 22: Connection refused", "start sshd");
        has("kex_exchange_identification: Connection closed by remote host", "--fanout");
        has("bash: line 1: rdmc: command not found", "--remote-rdmc");
        has("exec of \"sh\" failed: No such file or directory", "has no shell");
        has("exec: \"sh\": executable file not found in $PATH: unknown", "has no shell");
        has("bash: line 1: rdmc: command not found", "--copy-self");
        has(
            "rdmc: error while loading shared libraries: libfabric.so.1: cannot",
            "lacks a library",
        );
        has("sh: 1: exec: /opt/rdmc: No such file or directory", "--remote-rdmc");
        assert_eq!(remedy("no space left on device", false), None);
        for own in ["Connection refused (os error 111)", "x: No such file or directory"] {
            assert!(remedy(own, true).is_none() && remedy(own, false).is_some(), "{own}");
        }
    }
}
