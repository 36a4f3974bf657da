#!/bin/sh
# checked.sh valgrind|sanitizer PROGRAM ARGUMENT...
# Runs a Criterion program under a checker and fails on anything the checker reports.
#
# Criterion runs each test in a process of its own and does not look at how that process ended once
# the test's body has returned. A leak, which is reported at exit, or an error that valgrind lives
# on with, would so pass unseen; nor would a test that redirects its stderr show it. Therefore each
# process reports into a file, and a file with a report fails the run.
#
# A test that kills a child on purpose gives the child SIGSEGV's default action first, and is
# skipped under valgrind, which reports the access itself.
set -u

checker=$1
shift

reports=$(mktemp -d) || exit 1
trap 'rm -rf "$reports"' EXIT

case $checker in
valgrind)
    suppressions=$(dirname -- "$0")/../valgrind.supp
    # A test's process is the program executed again, hence --trace-children. With -q a report has
    # findings (==PID==) and valgrind's complaints about what it does not know (--PID--).
    set -- valgrind -q --trace-children=yes '--trace-children-skip=/bin/*,/usr/bin/*' \
        --leak-check=full --error-exitcode=99 --num-callers=30 \
        --suppressions="$suppressions" --log-file="$reports/%p" "$@"
    finding='^=='
    ;;
sanitizer)
    # Fake stacks for use-after-return would be looked for on the wrong stack after a switch.
    export ASAN_OPTIONS="detect_leaks=1:detect_stack_use_after_return=0:\
${ASAN_OPTIONS:+$ASAN_OPTIONS:}log_path=$reports/asan"
    export UBSAN_OPTIONS="print_stacktrace=1:${UBSAN_OPTIONS:+$UBSAN_OPTIONS:}log_path=$reports/ub"
    export TSAN_OPTIONS="${TSAN_OPTIONS:+$TSAN_OPTIONS:}log_path=$reports/tsan"
    # A report may also be a mere remark. A sanitizer that gives up has checked nothing.
    finding='ERROR: |runtime error: |WARNING: ThreadSanitizer|fatal error'
    ;;
*)
    echo "checked.sh: unknown checker $checker" >&2
    exit 1
    ;;
esac

"$@"
status=$?

for report in "$reports"/*; do
    if grep -Eq "$finding" "$report" 2>/dev/null; then
        echo "---- $checker, process ${report##*[/.]}:"
        cat "$report"
        [ "$status" -ne 0 ] || status=99
    fi
done
exit "$status"
