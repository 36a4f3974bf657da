#!/bin/sh
# no_climbing.sh SOURCE_DIRECTORY
# Passes if no source of the library includes through "../".
set -eu
cd "$1"

status=0
grep -rnE '^[[:space:]]*#[[:space:]]*include.*\.\./' \
    --include='*.[ch]' include src monad fiber uring || status=$?
case $status in
1) exit 0 ;; # nothing found
0) echo 'includes climb out of their folder: the dependency rule cannot see them' ;;
esac
exit 1
