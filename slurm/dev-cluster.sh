#!/usr/bin/env bash
# Run a Slurm cluster of two nodes on loopback, for development and tests. `up` starts munged, slurmctld and one slurmd per
# node, with their state in one temporary folder, and prints the line that makes a shell use them. `down` stops them.
#
#   line="$(slurm/dev-cluster.sh up)" && eval "$line"   start; installs the Debian packages slurm-wlm and munge if missing
#   slurm/dev-cluster.sh down                           stop
#   slurm/dev-cluster.sh kill-slurmd | start-slurmd     for tests of node failures
#
# REPRO_DEV_CLUSTER                  folder (default: that of SLURM_CONF if `up` created it, otherwise repro-dev-cluster-<uid>
#                                    in the temporary folder), one cluster per folder
# REPRO_DEV_CLUSTER_CPUS             CPUs per node (default: the cores of this machine)
# REPRO_DEV_CLUSTER_MAX_ARRAY_SIZE   Slurm's MaxArraySize (default: 1001)
# REPRO_DEV_CLUSTER_NODES            number of nodes (default: 2). All are this machine, so two jobs may share a core
set -euo pipefail

# `down` in a shell that uses a cluster finds it, even if TMPDIR has changed since.
if [ -z "${REPRO_DEV_CLUSTER:-}" ] && [ -e "$(dirname "${SLURM_CONF:-/}")/cluster-of-repro" ]; then
    REPRO_DEV_CLUSTER="$(dirname "$SLURM_CONF")"
fi
folder="${REPRO_DEV_CLUSTER:-${TMPDIR:-/tmp}/repro-dev-cluster-$(id -u)}"
conf="$folder/slurm.conf"
export SLURM_CONF="$conf"
export PATH="$PATH:/usr/sbin:/sbin"
num_nodes="${REPRO_DEV_CLUSTER_NODES:-2}"

say() { echo "dev-cluster: $*" >&2; }
fail() { say "$*"; exit 1; }

marker="$folder/cluster-of-repro" # a folder without this file was not created here

install_packages() {
    local program missing=""
    for program in slurmctld slurmd munged sbatch; do command -v "$program" >/dev/null || missing=1; done
    [ -n "$missing" ] || return 0
    [ "$(id -u)" = 0 ] || fail "Slurm is not installed; ask an administrator for the packages slurm-wlm and munge"
    command -v apt-get >/dev/null || fail "Slurm is not installed and apt-get is missing; install slurmctld, slurmd and munge"
    say "installing slurm-wlm and munge"
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends slurm-wlm munge; } \
        >"$folder/install.log" 2>&1 || fail "could not install Slurm; see $folder/install.log"
}

# Compare the name too, because the process id of a dead daemon may have been reused.
is_up() { # DAEMON, or slurmd-NODE
    local pid
    pid="$(cat "$folder/$1.pid" 2>/dev/null)" && [ "$(cat "/proc/${pid:-0}/comm" 2>/dev/null)" = "${1%%-*}" ]
}

# Cores available to this process. `nproc` alone would print OMP_NUM_THREADS.
num_cores() { env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc; }

free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

write_configuration() {
    local memory cpus number
    memory="$(awk -v nodes="$num_nodes" '/MemTotal/ {print int($2 / 1024 * 0.9 / nodes)}' /proc/meminfo)"
    cpus="${REPRO_DEV_CLUSTER_CPUS:-$(num_cores)}"
    cat >"$conf" <<CONF
ClusterName=repro-dev
SlurmctldHost=$(hostname -s)(127.0.0.1)
SlurmUser=$(id -un)
SlurmdUser=$(id -un)
SlurmctldPort=$(free_port)
AuthType=auth/munge
AuthInfo=socket=$folder/munge.socket,cred_expire=10
CredType=cred/munge
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool/%n
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd-%n.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SchedulerParameters=batch_sched_delay=0,sched_interval=2,defer_batch
SlurmdParameters=config_overrides
MpiDefault=none
MaxArraySize=${REPRO_DEV_CLUSTER_MAX_ARRAY_SIZE:-1001}
DefMemPerCPU=512
ReturnToService=2
SlurmdTimeout=20
KillWait=10
InactiveLimit=0
MinJobAge=300
PartitionName=dev Nodes=ALL Default=YES MaxTime=INFINITE State=UP
CONF
    for number in $(seq 1 "$num_nodes"); do
        echo "NodeName=dev$number NodeHostname=$(hostname -s) NodeAddr=127.0.0.1 Port=$(free_port) CPUs=$cpus" \
            "RealMemory=$memory State=UNKNOWN" >>"$conf"
    done
}

start_munged() {
    is_up munged && return
    head -c 128 /dev/urandom >"$folder/munge.key"
    chmod 400 "$folder/munge.key"
    # --force, because munged refuses folders inside a world-writable one
    munged --force --key-file="$folder/munge.key" --socket="$folder/munge.socket" --pid-file="$folder/munged.pid" \
        --log-file="$folder/munged.log" --seed-file="$folder/munge.seed" 2>>"$folder/munged.err" \
        || fail "munged did not start; see $folder/munged.err"
}

nodes() { sed -n 's/^NodeName=\([^ ]*\).*/\1/p' "$conf" 2>/dev/null || true; }

start_slurmd() {
    local node
    for node in $(nodes); do
        is_up "slurmd-$node" || slurmd -f "$conf" -N "$node" || fail "slurmd did not start; see $folder/slurmd-$node.log"
    done
}

stop_slurmd() { local node; for node in $(nodes); do stop "slurmd-$node" "${1:-TERM}"; done; }

await() { # NAME COMMAND...: wait until the command succeeds
    local what="$1" attempt
    shift
    for attempt in $(seq 1 100); do "$@" >/dev/null 2>&1 && return; sleep 0.2; done
    fail "$what did not answer within 20 seconds; see the logs in $folder"
}

nodes_are_ready() { [ "$(sinfo --noheader --Node --format=%T | grep -Ec '^(idle|mixed|allocated)$')" = "$(nodes | wc -l)" ]; }

up() {
    [ -e "$marker" ] || [ -z "$(ls -A "$folder" 2>/dev/null)" ] \
        || fail "$folder contains other files; set REPRO_DEV_CLUSTER to an empty or new folder"
    mkdir -p "$folder"/{state,spool}
    touch "$marker"
    [[ "$num_nodes" =~ ^[1-9][0-9]?$ ]] || fail "REPRO_DEV_CLUSTER_NODES=$num_nodes; must be a number from 1 to 99"
    chmod 755 "$folder"
    install_packages
    if ! is_up munged || ! is_up slurmctld; then # the rest of a cluster that lost one of them cannot continue
        stop_slurmd && stop slurmctld && stop munged
        rm -rf "$folder"/{state,spool}/*
        write_configuration
        for node in $(nodes); do mkdir -p "$folder/spool/$node"; done
        start_munged
        slurmctld -f "$conf" || fail "slurmctld did not start; see $folder/slurmctld.log"
    fi
    start_slurmd
    await "a node" nodes_are_ready
    say "up: $(sinfo --noheader --format='%P %D nodes, %C CPUs (allocated/idle/other/total)'), folder $folder"
    echo "export SLURM_CONF=$conf"
}

stop() { # DAEMON [SIGNAL]
    is_up "$1" || return 0
    local pid; pid="$(cat "$folder/$1.pid")"
    kill "-${2:-TERM}" "$pid"
    for _ in $(seq 1 50); do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
    rm -f "$folder/$1.pid"
}

down() {
    local left=""
    if [ ! -e "$marker" ]; then
        [ ! -e "$folder" ] || fail "$folder was not created by \`up\`: nothing is removed"
        say "found no cluster in $folder"
        return
    fi
    if is_up slurmctld; then
        left="$(scontrol listpids 2>/dev/null | awk '$1 ~ /^[0-9]+$/ && $1 > 1 {print $1}' || true)" # fails if there is no job
        scancel --full --state=PENDING,RUNNING,SUSPENDED --user="$(id -un)" 2>/dev/null || true
        for _ in $(seq 1 60); do [ -z "$(squeue --noheader 2>/dev/null)" ] && break; sleep 0.25; done
        # Kill jobs that are still running, because nothing ends them once slurmd has stopped.
        if [ -n "$(squeue --noheader 2>/dev/null)" ] && [ -n "$left" ]; then
            # shellcheck disable=SC2086
            kill -KILL $left 2>/dev/null || true
            sleep 1
        fi
    fi
    stop_slurmd; stop slurmctld; stop munged
    rm -rf "$folder"
    say "down: $folder"
}

# In a shared temporary folder, another user could create it first.
[ ! -e "$folder" ] || { [ -O "$folder" ] && [ ! -L "$folder" ]; } || fail "$folder is not yours; set REPRO_DEV_CLUSTER to another"

case "${1:-}" in
    up) up ;;
    down) down ;;
    kill-slurmd) stop_slurmd KILL ;;
    start-slurmd) start_slurmd ;;
    *) echo "usage: slurm/dev-cluster.sh up|down" >&2; exit 2 ;;
esac
