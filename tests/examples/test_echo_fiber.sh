#!/usr/bin/env bash
# needs: fibers. The echo server in direct style.
set -euo pipefail
source "$(dirname -- "$0")/echo.sh" "$1" echo_fiber
