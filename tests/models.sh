#!/usr/bin/env bash
# Checks the lock-free code in two ways: loom tries every interleaving of small models of it (up
# to a bound of preemptions, LOOM_MAX_PREEMPTIONS lowers it), and Miri looks for undefined
# behaviour in the tests that use no system calls. Each has a time limit; a run that is cut off
# fails.
set -euo pipefail
cd "$(dirname "$0")/.."

echo "-- loom --"
RUSTFLAGS="--cfg loom" CARGO_PROFILE_RELEASE_LTO=off \
    cargo test --release --package hither --lib --target-dir target/loom --no-run
RUSTFLAGS="--cfg loom" CARGO_PROFILE_RELEASE_LTO=off RUST_BACKTRACE=0 timeout 900 \
    cargo test --release --package hither --lib --target-dir target/loom loom_

echo "-- Miri --"
if ! cargo +nightly miri --version >/dev/null 2>&1; then
    rustup component add --toolchain nightly miri rust-src >/dev/null 2>&1 || true
fi
if ! cargo +nightly miri setup >/dev/null 2>&1; then
    echo "Miri needs a nightly toolchain with the miri and rust-src components, which is not to"
    echo "be had on this machine: undefined behaviour was not looked for"
    exit 0
fi
export MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-ignore-leaks"
cargo +nightly miri test --package hither --lib --target-dir target/miri --no-run
# Property tests draw few cases here: Miri is some hundred times slower than the machine. It runs a
# program on one core, so two run beside each other; what the second prints comes at the end.
interpret() {
    PROPTEST_CASES=2 timeout 1200 cargo +nightly miri test --package hither --lib \
        --target-dir target/miri -- "$@"
}
second=$(mktemp)
trap 'rm -f "$second"' EXIT
interpret shm::lock shm::ring >"$second" 2>&1 &
failed=0
interpret base::copy base::wide rma::accumulate layout::op layout::located || failed=1
wait $! || failed=1
cat "$second"
exit $failed
