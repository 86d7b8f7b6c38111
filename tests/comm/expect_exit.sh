#!/usr/bin/env bash
# expect_exit.sh CODE SIGNAL COMMAND...: runs COMMAND and fails unless it exits with CODE. If SIGNAL is not empty, sends
# it to COMMAND as soon as the latter has printed "ready".
set -u
want=$1
signal=$2
shift 2
if [[ -z "$signal" ]]; then
  "$@"
else
  output=$(mktemp)
  trap 'rm -f "$output"' EXIT
  set -m  # else a background job ignores INT
  "$@" >"$output" 2>&1 &
  for ((i = 0; i < 300; ++i)); do
    grep -q ready "$output" && break
    sleep 0.1
  done
  kill -"$signal" $!
  wait $!
fi
code=$?
[[ -n "$signal" ]] && cat "$output"
if [[ "$code" -ne "$want" ]]; then
  echo "expect_exit.sh: exit code $code, not $want: $*" >&2
  exit 1
fi
