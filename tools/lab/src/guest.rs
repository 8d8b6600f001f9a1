//! One guest: its emulator's command line and process.

use crate::cache::Image;
use crate::error::{Error, Result};
use crate::process;
use std::ffi::{OsStr, OsString};
use std::os::fd::RawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The device that carries RoCE, as the monitor knows it.
pub const LINK: &str = "roce";

/// What a guest is to be like.
pub struct Plan<'a> {
    pub image: &'a Image,
    pub number: usize,
    pub guests: usize,
    pub memory: u32,
    pub cpus: u32,
    pub mtu: u32,
    /// Rate of its time stamp counter, kHz.
    pub clock: Option<u64>,
    /// The program that it runs.
    pub agent: &'a Path,
    /// A folder of the host's that it may write.
    pub work: Option<&'a Path>,
    /// Descriptors: its first file system, the serial port, the monitor, the networks.
    pub initrd: RawFd,
    pub channel: RawFd,
    pub monitor: RawFd,
    pub roce: Option<RawFd>,
    pub control: Option<RawFd>,
}

/// Starts the emulator. It is killed when the calling thread ends.
pub fn start(plan: &Plan) -> Result<Child> {
    let mut command = emulator(plan.image)?;
    command.args(["-name", &format!("g{},debug-threads=on", plan.number)]);
    command.args(["-accel", "tcg,thread=multi", "-cpu", "max"]);
    command.args(["-smp", &plan.cpus.to_string(), "-m", &plan.memory.to_string()]);
    command.args(["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"]);
    command.args(["-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console"]);
    command.arg("-kernel").arg(plan.image.kernel());
    command.args(["-initrd", &format!("/proc/self/fd/{}", plan.initrd)]);
    command.arg("-append").arg(kernel_line(plan));
    command.args(["-device", "virtio-rng-pci", "-device", "virtio-serial-pci"]);
    command.args(["-chardev", &format!("socket,id=channel,fd={}", plan.channel)]);
    let port = format!("virtserialport,chardev=channel,name={}", crate::agent::CHANNEL);
    command.args(["-device", &port]);
    command.args(["-chardev", &format!("socket,id=monitor,fd={}", plan.monitor)]);
    command.args(["-mon", "chardev=monitor,mode=control"]);
    share(&mut command, "host", Path::new("/"), "readonly=on,multidevs=remap");
    share(&mut command, "tree", &plan.image.tree().0, "readonly=on");
    if let Some(work) = plan.work {
        share(&mut command, "work", work, "multidevs=remap");
    }
    let networks = [(LINK, 0x77, plan.mtu, plan.roce), ("control", 0x78, 1500, plan.control)];
    let mut inherited = vec![plan.initrd, plan.channel, plan.monitor];
    for (name, network, mtu, end) in networks {
        let Some(end) = end else { continue };
        let netdev = format!("dgram,id={name}-net,local.type=fd,local.str={end}");
        let device = format!(
            "virtio-net-pci,id={name},netdev={name}-net,mac=52:54:00:{network:02x}:00:{:02x},\
             host_mtu={mtu},romfile=",
            plan.number
        );
        command.args(["-netdev", &netdev, "-device", &device]);
        inherited.push(end);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    process::tie(&mut command, inherited);
    command.spawn().map_err(|e| Error::system("the emulator", e))
}

/// The emulator without a machine.
fn emulator(image: &Image) -> Result<Command> {
    let tree = image.tree();
    let mut command = tree.command("usr/bin/qemu-system-x86_64", "qemu-system-x86_64")?;
    for firmware in ["usr/share/qemu", "usr/share/seabios"] {
        command.arg("-L").arg(tree.0.join(firmware));
    }
    // It would look beside the program that the process runs: the dynamic linker.
    command.env("QEMU_MODULE_DIR", tree.0.join("usr/lib/x86_64-linux-gnu/qemu"));
    Ok(command)
}

/// Whether the emulator runs on this machine at all.
pub fn try_emulator(image: &Image) -> Result<()> {
    let tried = process::output(emulator(image)?.arg("--version"));
    tried.map(drop).map_err(|e| Error::Unavailable(format!("the emulator does not run here: {e}")))
}

fn share(command: &mut Command, tag: &str, path: &Path, options: &str) {
    // A comma in an option's value is doubled.
    let mut option =
        OsString::from(format!("local,id={tag}-files,security_model=none,{options},path="));
    let mut bytes = Vec::new();
    for byte in path.as_os_str().as_bytes() {
        bytes.extend(std::iter::repeat_n(*byte, if *byte == b',' { 2 } else { 1 }));
    }
    option.push(OsString::from_vec(bytes));
    command.arg("-fsdev").arg(option);
    command.args(["-device", &format!("virtio-9p-pci,fsdev={tag}-files,mount_tag={tag}")]);
}

/// Clocks and mitigations are set for what emulated processors are good at.
fn kernel_line(plan: &Plan) -> String {
    let rate = plan.clock.map_or_else(String::new, |rate| format!("tsc_early_khz={rate} "));
    format!(
        "{rate}console=ttyS0 quiet panic=-1 mitigations=off nokaslr tsc=reliable no_timer_check audit=0 \
         lab.guest={} lab.guests={} lab.mtu={} lab.agent={}",
        plan.number,
        plan.guests,
        plan.mtu,
        escaped(plan.agent.as_os_str())
    )
}

/// As the guest's `printf %b` reads it, without anything that separates words.
fn escaped(path: &OsStr) -> String {
    let mut text = String::new();
    for byte in path.as_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'_' | b'-' => {
                text.push(char::from(*byte));
            }
            _ => text += &format!("\\0{byte:03o}"),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn unusual_characters_are_escaped() {
        assert_eq!(super::escaped("/a b/ß-1".as_ref()), "/a\\0040b/\\0303\\0237-1");
    }
}
