//! A server of ssh on this machine.

use std::{
    fs::{self, File},
    net::{TcpListener, TcpStream},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

const SSHD: &str = "/usr/sbin/sshd";

/// A server of ssh that runs what it is asked for on this machine, in a mount namespace of its own where the directory
/// `full` is on a disk of 1 MiB; ended when dropped. Of any host name but `dead`.
pub struct Sshd {
    directory: tempfile::TempDir,
    server: Child,
}

impl Sshd {
    /// With further lines of the server's configuration and of its users', which come first and so take precedence;
    /// `{directory}` is that of its files.
    ///
    /// Errors: why there is none.
    pub fn start(of_server: &str, of_client: &str) -> Result<Self, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("a server of ssh needs root".into());
        }
        if !Path::new(SSHD).exists() {
            return Err(format!("{SSHD} is not there: it needs openssh-server"));
        }
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
        for key in ["host", "user"] {
            let made = Command::new("ssh-keygen")
                .args(["-qt", "ed25519", "-N", "", "-f", &at(key)])
                .status();
            assert!(made.unwrap().success());
        }
        fs::create_dir(at("full")).unwrap();
        // Where the server drops its privileges; systems make it at boot.
        fs::create_dir_all("/run/sshd").unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let server = format!(
            "{of_server}\nListenAddress 127.0.0.1:{port}\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\nUsePAM no\n\
             StrictModes no\nPermitRootLogin yes\nLogLevel VERBOSE\n",
            at("host"),
            at("user.pub")
        );
        let client = format!(
            "Host dead\n  Port 1\nHost *\n{of_client}\n  HostName 127.0.0.1\n  Port {port}\n  IdentityFile {}\n  \
             BatchMode yes\n  IdentitiesOnly yes\n  StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n  \
             LogLevel ERROR\n",
            at("user")
        );
        let server = server.replace("{directory}", directory.path().to_str().unwrap());
        fs::write(at("server"), server).unwrap();
        fs::write(at("client"), client).unwrap();
        let log = File::create(at("log")).unwrap();
        let mut unshare = Command::new("unshare");
        unshare.args(["-m", "sh", "-c", "mount -t tmpfs -o size=1m none \"$0\" && exec \"$@\""]);
        unshare.args([&at("full"), SSHD, "-D", "-e", "-f", &at("server")]);
        let server =
            unshare.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap();
        let mut sshd = Self { directory, server };
        let is_there = || TcpStream::connect(("127.0.0.1", port)).is_ok();
        while !is_there() {
            if let Some(status) = sshd.server.try_wait().unwrap() {
                return Err(format!(
                    "{SSHD} needs more than is here ({status}): {}",
                    sshd.log().trim()
                ));
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(sshd)
    }

    /// A file in its directory: `client` is the configuration that reaches it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// What it has logged.
    pub fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// A directory for the front of PATH, whose `ssh` is the system's with the configuration that reaches this server.
    pub fn programs(&self) -> PathBuf {
        let (programs, client) = (self.path("programs"), self.path("client"));
        fs::create_dir_all(&programs).unwrap();
        let script = format!("#!/bin/sh\nexec /usr/bin/ssh -F {} \"$@\"\n", client.display());
        fs::write(programs.join("ssh"), script).unwrap();
        fs::set_permissions(programs.join("ssh"), fs::Permissions::from_mode(0o755)).unwrap();
        programs
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}
