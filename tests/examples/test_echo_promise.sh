#!/usr/bin/env bash
# The echo server in promise style, which a build without fibers has too.
set -euo pipefail
source "$(dirname -- "$0")/echo.sh" "$1" echo_promise
