#!/bin/sh
# package.sh shared|static BUILD_DIRECTORY CLIENT_DIRECTORY CMAKE COMPILER
# Installs weft into a directory of its own and builds the client against it as a user would: with
# find_package and with pkg-config. Runs both.
set -eu

kind=$1
build=$2
client=$3
cmake=$4
compiler=$5

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
log=$work/log

quietly() { # quietly COMMAND...: shows the output only if the command fails
    "$@" >"$log" 2>&1 || {
        status=$?
        echo "failed: $*"
        cat "$log"
        exit "$status"
    }
}

quietly "$cmake" --install "$build" --prefix "$work/installed"
# The package must not depend on where it was installed.
prefix="$work/a moved prefix"
mv "$work/installed" "$prefix"

quietly "$cmake" -S "$client" -B "$work/cmake" -G Ninja "-DCMAKE_PREFIX_PATH=$prefix" \
    "-DCMAKE_C_COMPILER=$compiler" "-DWEFT_KIND=$kind"
quietly "$cmake" --build "$work/cmake"
"$work/cmake/client"

pc=$(find "$prefix" -name weft.pc)
library_dir=$(dirname -- "$(dirname -- "$pc")")
PKG_CONFIG_PATH=$(dirname -- "$pc")
export PKG_CONFIG_PATH
static=
if [ "$kind" = static ]; then
    # With no shared library there the linker takes the archive, and needs its private libraries.
    rm "$library_dir"/libweft.so*
    static=--static
fi
# The flags are shell-quoted by pkg-config, since the prefix has spaces.
eval "set -- $(pkg-config $static --cflags --libs weft)"
quietly "$compiler" -std=c11 -Wall -Wextra -Werror "$client/client.c" -o "$work/client" "$@"
LD_LIBRARY_PATH=$library_dir "$work/client"
