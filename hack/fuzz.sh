#!/usr/bin/env bash
# fuzz.sh [TIME [PATTERN]] fuzzes every target of the repository, one after the other, each
# for the time given, and prints a table. PATTERN picks some by <package>/<target>. A target
# that fails leaves the input that does it in its package's testdata/fuzz, where every later
# `go test` tries it again.
set -euo pipefail

time=${1:-1m}
only=${2:-.}
cd "$(dirname "$0")/.."
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT

# Only packages that mention a target are compiled; go test itself says what their targets are.
mapfile -t packages < <(git grep --untracked -l '^func Fuzz' -- '*_test.go' | xargs -n 1 dirname | sort -u | sed 's#^#./#')
targets=$(go test -list '^Fuzz' "${packages[@]}" | awk '/^Fuzz/ {names[++n] = $1} /^ok/ {for (i = 1; i <= n; i++) print $2, names[i]; n = 0}')

row='%-34s %-20s %-7s %12s %8s %8s\n'
# shellcheck disable=SC2059
printf "$row" PACKAGE TARGET RESULT EXECS INPUTS SECONDS
failed=0 tried=0
while read -r package target; do
  [[ "$package/$target" =~ $only ]] || continue
  tried=$((tried + 1))
  log=$logs/$target
  start=$SECONDS
  result=ok
  go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "$package" >"$log" 2>&1 || { result=FAILED failed=1; }
  # The last progress line: fuzz: elapsed: 3s, execs: 1 (2/sec), new interesting: 3 (total: 4)
  last=$(grep '^fuzz: elapsed:.*execs:' "$log" | tail -1 || true)
  execs=$(sed -n 's/.*execs: \([0-9]*\).*/\1/p' <<<"$last")
  inputs=$(sed -n 's/.*total: \([0-9]*\)).*/\1/p' <<<"$last")
  # Inputs known before are tried first; a target that got no further was not fuzzed.
  [ "$result$execs" = ok ] && { result=IDLE failed=1; }
  # shellcheck disable=SC2059
  printf "$row" "${package#github.com/pawl-run/pawl/}" "$target" "$result" "${execs:--}" "${inputs:--}" "$((SECONDS - start))"
  [ "$result" = ok ] || cat "$log"
done <<<"$targets"
if ((tried == 0)); then
  echo "no target matches $only" >&2
  exit 1
fi
exit "$failed"
