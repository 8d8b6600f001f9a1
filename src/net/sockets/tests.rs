//! What only this device has: garbage on the wire, callers that say nothing.

use super::{Config, open};
use crate::net::memory::Memory;
use crate::net::provider::*;
use proptest::test_runner::{Config as Cases, TestRunner};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

fn config() -> Config {
    Config {
        cookie: 0x1234_5678,
        address: IpAddr::V4(Ipv4Addr::LOCALHOST),
        datagram: 4096,
        thread: true,
    }
}

fn wait(device: &Arc<dyn Device>, what: impl Fn(Counters) -> bool) {
    let channel = device.channel().unwrap();
    let until = device.now().plus(Duration::from_secs(20));
    while !what(device.counters()) {
        assert!(device.now() < until, "{:?}", device.counters());
        channel.wait(device.now().plus(Duration::from_millis(2)));
    }
}

fn port(address: &Address) -> SocketAddr {
    let bytes = address.as_bytes();
    SocketAddr::from(([127, 0, 0, 1], u16::from_le_bytes([bytes[2], bytes[3]])))
}

fn random(seed: u64, length: usize) -> Vec<u8> {
    let mut word = seed;
    let mut next = || {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        word as u8
    };
    (0..length).map(|_| next()).collect()
}

#[test]
fn garbage_is_counted_and_the_device_goes_on() {
    let device = open(&config()).unwrap();
    let channel = device.channel().unwrap();
    let queue = device.completion_queue(64, Some(&channel)).unwrap();
    let queues = Queues {
        send: &queue,
        receive: &queue,
        send_depth: 8,
        receive_depth: 8,
        pieces: 1,
        inline: 64,
        shared: None,
    };
    let memory = Memory::zeroed(8192).unwrap();
    let region = device.register(&memory, Access::ALL).unwrap();
    let ud = device.ud(&queues).unwrap();
    ud.receive(&[Receive { id: 1, pieces: &[region.local(0, 8192).unwrap()] }]).unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = port(&ud.address());
    for seed in 1..100 {
        let bytes = random(seed * 77, seed as usize % 60);
        socket.send_to(&bytes, to).unwrap();
    }
    wait(&device, |counters| counters.strangers == 99);
    // With the cookie, and nonsense behind it.
    for seed in 1..100u64 {
        let mut bytes = config().cookie.to_le_bytes().to_vec();
        bytes.extend(random(seed * 99, seed as usize % 60));
        socket.send_to(&bytes, to).unwrap();
    }
    wait(&device, |counters| counters.malformed + counters.unwanted == 99);
    assert_eq!(queue.poll(&mut [Completion::NONE]), 0);

    let mut cases = TestRunner::new(Cases { cases: 60, ..Cases::default() });
    let rc = device.rc(&queues, &RcOptions::default()).unwrap();
    let address = rc.address();
    let before = device.counters();
    let sizes = proptest::collection::vec(proptest::num::u8::ANY, 1..200);
    let dropped = cases.run(&sizes, |bytes| {
        let mut stream = TcpStream::connect(port(&address)).unwrap();
        // (It may have ended before.)
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        // Whatever it was, the connection ends.
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        match stream.read(&mut [0; 64]) {
            Ok(0) => {}
            Ok(_) => return Err(proptest::test_runner::TestCaseError::fail("an answer")),
            Err(e) => assert_eq!(e.kind(), std::io::ErrorKind::ConnectionReset),
        }
        Ok(())
    });
    dropped.unwrap();
    wait(&device, |counters| counters.strangers >= before.strangers + 60);
    assert_eq!(rc.state(), State::Init);
}

#[test]
fn garbage_behind_a_good_hello_fails_that_queue_pair_only() {
    let device = open(&config()).unwrap();
    let queue = device.completion_queue(64, None).unwrap();
    let queues = Queues {
        send: &queue,
        receive: &queue,
        send_depth: 8,
        receive_depth: 8,
        pieces: 1,
        inline: 64,
        shared: None,
    };
    let memory = Memory::zeroed(4096).unwrap();
    let _region = device.register(&memory, Access::ALL).unwrap();
    for seed in 1..60u64 {
        let rc = device.rc(&queues, &RcOptions::default()).unwrap();
        // A caller that the queue pair is connected to, whose listener is nobody's.
        let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let spot = super::address::Spot {
            socket: other.local_addr().unwrap(),
            number: 5,
            incarnation: 1,
            connected: true,
        };
        rc.connect(&spot.address()).unwrap();
        let own = super::address::Spot::from_address(&rc.address(), true).unwrap();
        let hello = super::hello::Hello {
            cookie: config().cookie,
            number: own.number,
            incarnation: own.incarnation,
            caller: spot,
        };
        let mut stream = TcpStream::connect(own.socket).unwrap();
        stream.write_all(&hello.encode()).unwrap();
        let mut bytes = random(seed * 31, 200);
        // Half of them begin like a frame.
        if seed % 2 == 0 {
            bytes[0] = 1 + (seed % 12) as u8;
            bytes[1] &= 15;
            bytes[3] = 0;
            bytes[5..8].fill(0);
            bytes[8..12].fill(0);
        }
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let until = device.now().plus(Duration::from_secs(20));
        while rc.state() != State::Error {
            assert!(device.now() < until, "seed {seed}: {:?}", device.counters());
            std::thread::yield_now();
        }
    }
    let mut bytes = [1; 4096];
    assert!(memory.read(0, &mut bytes));
    assert!(bytes.iter().all(|byte| *byte == 0), "garbage was written into registered memory");
}

#[test]
fn opening_needs_an_address_of_this_machine() {
    let wrong = Config { address: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), ..config() };
    let message = open(&wrong).err().unwrap().to_string();
    assert!(message.contains("HITHER_NET_ADDRESS"), "{message}");
    assert!(open(&Config { address: IpAddr::V4(Ipv4Addr::UNSPECIFIED), ..config() }).is_err());
    assert!(open(&Config { datagram: 0, ..config() }).is_err());
    assert!(open(&Config { datagram: 65_507, ..config() }).is_err());
    assert!(Config::from_settings(1).is_ok());
}

#[test]
fn the_thread_ends_with_the_last_object() {
    let device = open(&config()).unwrap();
    let queue = device.completion_queue(8, None).unwrap();
    let queues = Queues {
        send: &queue,
        receive: &queue,
        send_depth: 8,
        receive_depth: 8,
        pieces: 1,
        inline: 0,
        shared: None,
    };
    let rc = device.rc(&queues, &RcOptions::default()).unwrap();
    let at = port(&rc.address());
    drop(device);
    assert!(TcpStream::connect(at).is_ok(), "the queue pair still listens");
    drop((rc, queue));
    let end = std::time::Instant::now() + Duration::from_secs(20);
    while TcpStream::connect(at).is_ok() {
        assert!(std::time::Instant::now() < end, "it still listens");
        std::thread::yield_now();
    }
}
