#!/bin/sh
# Install what the tests on real cluster software need and this machine lacks: Slurm, PostgreSQL,
# a browser, what makes network namespaces and certificates. Only as root and with apt-get; elsewhere say which
# tests will be skipped. Nothing that is here already is touched, and no service is started.
set -eu
PATH=$PATH:/usr/sbin:/sbin

missing=""
need() {  # need PACKAGE PROGRAM…
    package=$1
    shift
    for program in "$@"; do
        command -v "$program" >/dev/null 2>&1 || {
            missing="$missing $package"
            return 0
        }
    done
}

need slurmctld slurmctld
need slurmd slurmd
need slurm-client sbatch scancel scontrol sinfo squeue
need munge munged
need iproute2 ip
command -v google-chrome >/dev/null 2>&1 || need chromium chromium
need openssl openssl
case $missing in *slurm*) missing="$missing slurm-wlm-basic-plugins" ;; esac
set -- /usr/lib/postgresql/*/bin/initdb
[ -x "$1" ] || missing="$missing postgresql"

[ -n "$missing" ] || exit 0
if [ "${CLUSTER_TOOLS:-yes}" = no ] || [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    echo "Not installed:$missing; the tests that need them will be skipped."
    exit 0
fi
echo "Installing for the tests:$missing"
log=$(mktemp)
# In runlevel 1 packages start no services; the tests start private ones of their own.
export DEBIAN_FRONTEND=noninteractive RUNLEVEL=1
# shellcheck disable=SC2086  # a list of words
if { apt-get update -q && apt-get install -q -y --no-install-recommends \
    -o DPkg::Lock::Timeout=60 $missing; } \
    >"$log" 2>&1 </dev/null; then
    rm -f "$log"
else
    tail -n 3 "$log"
    echo "They could not be installed ($log); the tests that need them will be skipped."
fi
