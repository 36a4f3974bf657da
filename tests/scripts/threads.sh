#!/bin/sh
# threads.sh SOURCE CMAKE COMPILER: builds the library with ThreadSanitizer and runs threads.c on it, and
# soak_cluster.c on both engines.
set -eu

source=$1 cmake=$2 compiler=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$cmake" -S "$source" -B "$work" -G Ninja "-DCMAKE_C_COMPILER=$compiler" -DCMAKE_BUILD_TYPE=Debug \
    -DCMAKE_C_FLAGS=-O1 -DWEFT_SANITIZE=thread -DWEFT_BUILD_TESTS=OFF -DWEFT_BUILD_EXAMPLES=OFF \
    -DWEFT_BUILD_BENCHMARKS=OFF >"$work/log" 2>&1 &&
    "$cmake" --build "$work" --target weft_static >>"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
for program in threads soak_cluster; do
    "$compiler" -fsanitize=thread -g -O1 -D_GNU_SOURCE "-I$work/views/public" \
        "$source/tests/threads/$program.c" "$work/libweft.a" $(pkg-config --libs liburing) -pthread \
        -o "$work/$program"
done
# TSAN_OPTIONS: a report must fail the run
export TSAN_OPTIONS="exitcode=66"
"$work/threads"
for engine in uring epoll; do
    "$work/soak_cluster" 1 4000 "$engine"
done
