#!/bin/sh
# oracle.sh ORACLE_FOLDER PROMISE_SCRIPT FIBERS: compares fresh random scripts with real Lwt. The seed
# is new each time and printed; WEFT_ORACLE_SEED and WEFT_ORACLE_COUNT set it and the number.
#
# A case that differs is run once more by an Lwt process of its own: what an earlier case left in
# Lwt's global state (a depth one too high, for instance) is not this library's to follow.
set -eu

here=$1 script=$2 fibers=$3
command -v ocamlfind >/dev/null && ocamlfind query lwt.unix >/dev/null 2>&1 || {
    echo 'oracle.sh: no OCaml with Lwt here (liblwt-ocaml-dev, ocaml-findlib)'
    exit 77
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$here/oracle.ml" "$work"
(cd "$work" && ocamlfind ocamlopt -package lwt,unix -linkpkg oracle.ml -o oracle) >"$work/log" 2>&1 ||
    { cat "$work/log"; exit 1; }

seed=${WEFT_ORACLE_SEED:-$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}
count=${WEFT_ORACLE_COUNT:-2000}
echo "seed $seed, $count scripts (WEFT_ORACLE_SEED=$seed repeats them)"
python3 "$here/gen.py" --seed "$seed" --count "$count" >"$work/scripts"
"$work/oracle" "$work/scripts" >"$work/expected"

differs() { # differs MODE...: the ids of the cases that differ, in $work/bad; true if there are any
    ! python3 "$here/compare.py" "$work/expected" -- "$script" "$@" >"$work/result" || {
        tail -n 1 "$work/result"
        return 1
    }
    sed -n '$d; s/^\([^:]*\): .*/\1/p' "$work/result" >"$work/bad"
}

check() { # check MODE...
    differs "$@" || return 0
    while read -r id; do
        awk -v id="@ $id" '/^@ /{ on = $0 == id } on' "$work/scripts" >"$work/one"
        "$work/oracle" "$work/one" >"$work/one.expected"
        python3 "$here/compare.py" "$work/one.expected" -- "$script" "$@" || return 1
        echo "$id: equal when Lwt runs it alone"
    done <"$work/bad"
    tail -n 1 "$work/result"
}

check
[ "$fibers" = 0 ] || check --fiber
