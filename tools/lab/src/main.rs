//! The `hither-lab` command: runs commands in virtual machines with Soft-RoCE.

use clap::{Parser, Subcommand};
use hither_lab::{Error, Lab, MOST_GUESTS, Options, Program, Running};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Virtual machines with Soft-RoCE, without privilege.
#[derive(Parser)]
#[command(name = "hither-lab", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Boot guests, run a command in all of them or in one, and report
    Run(Run),
    /// Fetch what guests are made of, unless it is there
    Fetch,
    /// In a guest: run a command line in another one
    Rsh(Rsh),
    /// In a guest: do what the laboratory says
    #[command(hide = true)]
    Agent,
    /// In a guest: kill the processes with this text in their command lines
    #[command(hide = true)]
    Kill { pattern: String },
}

const AFTER: &str = "\
Guests see the host's files under their own paths; what they write there stays in their memory, but
for the folder of --work. They are called g0, g1, ... on the link that carries RoCE, and m0, m1, ...
on another one. The command finds LAB_GUEST, LAB_GUESTS, LAB_ADDRESSES, LAB_DEVICE, LAB_GID, LAB_MTU,
LAB_WORK and HITHER_RSH in its environment.

Exit code: the largest of the commands' own; 124 if the time was up, 125 if a guest or the laboratory
itself failed, 77 if this machine cannot have guests.";

#[derive(clap::Args)]
#[command(after_help = AFTER)]
struct Run {
    /// Guests
    #[arg(short = 'n', long, default_value_t = 2)]
    guests: usize,
    /// Run the command in this guest only
    #[arg(long, value_name = "GUEST")]
    on: Option<usize>,
    /// Memory of each guest, MiB
    #[arg(long, default_value_t = Options::default().memory)]
    memory: u32,
    /// Processors of each guest
    #[arg(long, default_value_t = Options::default().cpus)]
    cpus: u32,
    /// Largest packet of the link that carries RoCE, bytes
    #[arg(long, default_value_t = Options::default().mtu)]
    mtu: u32,
    /// After so many seconds everything is killed
    #[arg(long, value_name = "SECONDS", default_value_t = Options::default().limit.as_secs())]
    timeout: u64,
    /// Folder that guests may write
    #[arg(long, value_name = "DIR")]
    work: Option<PathBuf>,
    /// Variable for the command's environment: its name, or name=value
    #[arg(long, value_name = "NAME[=VALUE]")]
    env: Vec<String>,
    /// The command
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

#[derive(clap::Args)]
struct Rsh {
    /// The guest's name
    host: String,
    /// The command line, for a shell
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
}

const UNAVAILABLE: u8 = 77;
const TIME_UP: u8 = 124;
const FAILED: u8 = 125;

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Run(arguments) => run(&arguments),
        Command::Fetch => hither_lab::fetch(&|text| eprintln!("lab: {text}")).map(|()| 0),
        Command::Rsh(rsh) => hither_lab::rsh::run(&rsh.host, &rsh.command.join(" ")).map(code),
        Command::Agent => hither_lab::agent::serve().map(|()| 0),
        Command::Kill { pattern } => hither_lab::agent::kill(&pattern).map(|number| {
            println!("{number}");
            0
        }),
    };
    ExitCode::from(result.unwrap_or_else(|error| {
        eprintln!("lab: {error}");
        failure(&error)
    }))
}

fn failure(error: &Error) -> u8 {
    match error {
        Error::Unavailable(_) => UNAVAILABLE,
        Error::TimeUp(_) => TIME_UP,
        _ => FAILED,
    }
}

fn code(code: i32) -> u8 {
    u8::try_from(code).unwrap_or(FAILED)
}

fn run(arguments: &Run) -> hither_lab::Result<u8> {
    if arguments.on.is_some_and(|guest| guest >= arguments.guests) {
        return Err(Error::Failed(format!("--on: there are {} guests", arguments.guests)));
    }
    if arguments.guests > MOST_GUESTS {
        return Err(Error::Failed(format!("there are {MOST_GUESTS} guests at most")));
    }
    let lab = Lab::boot(&Options {
        guests: arguments.guests,
        memory: arguments.memory,
        cpus: arguments.cpus,
        mtu: arguments.mtu,
        limit: Duration::from_secs(arguments.timeout),
        work: arguments.work.clone(),
        echo: true,
        agent: None,
    })?;
    let mut program = Program::new(&arguments.command[0]).args(&arguments.command[1..]);
    for variable in &arguments.env {
        program = match variable.split_once('=') {
            Some((name, value)) => program.env(name, value),
            None => program.env(variable, std::env::var_os(variable).unwrap_or_default()),
        };
    }
    let running = match arguments.on {
        Some(guest) => vec![lab.run(guest, &program)?],
        None => lab.run_everywhere(&program)?,
    };
    let worst = running.iter().map(verdict).max().unwrap_or(FAILED);
    eprintln!("lab: {}", if worst == 0 { "passed" } else { "FAILED" });
    Ok(worst)
}

fn verdict(running: &Running) -> u8 {
    let guest = running.guest();
    match running.wait() {
        Ok(output) => {
            eprintln!("lab: g{guest}: exit code {} after {:.1?}", output.code, output.took);
            code(output.code)
        }
        Err(error) => {
            eprintln!("lab: g{guest}: {error}");
            failure(&error)
        }
    }
}
