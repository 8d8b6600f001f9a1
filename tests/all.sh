#!/usr/bin/env bash
# Every test of the project. Needs the Rust toolchain and a C compiler; what else it can use
# (rustfmt, clippy, Miri, packages for virtual machines) it looks for, and says plainly when it is
# not there.
set -euo pipefail
cd "$(dirname "$0")/.."

# Who has built nothing yet keeps nothing for a next build: the first one takes less time then.
if [ ! -d target ]; then
    export CARGO_INCREMENTAL=0
fi

step() { printf '\n== %s ==\n' "$*"; }

step "format"
if cargo fmt --version >/dev/null 2>&1 || rustup component add rustfmt >/dev/null 2>&1; then
    cargo fmt --all --check
else
    echo "rustfmt is not to be had on this machine: the format was not checked"
fi

step "lints"
if cargo clippy --version >/dev/null 2>&1 || rustup component add clippy >/dev/null 2>&1; then
    cargo clippy --workspace --all-targets -- -D warnings
else
    echo "clippy is not to be had on this machine: lints were not checked"
fi

step "documentation"
RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --quiet

step "models: loom and Miri"
bash tests/models.sh

step "unit, property, conformance, kill and command-line tests"
cargo test --workspace
