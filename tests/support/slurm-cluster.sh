#!/bin/sh
# A Slurm of two nodes on this machine, for tests/slurm.rs: `slurm-cluster.sh start DIR` (an empty
# directory with a short absolute path; as root, with slurmctld, slurmd, srun and munged installed) starts
# it and says what to set in the environment, `slurm-cluster.sh stop DIR` ends it. Its ports are
# SLURM_TEST_PORT (17100) and the two after that.
set -eu
[ $# -eq 2 ] || { sed -n '2,5s/^# //p' "$0" >&2; exit 2; }
dir=$2

stop() {
    for name in slurmd-n1 slurmd-n2 slurmctld munged; do
        if [ -s "$dir/$name.pid" ]; then kill "$(cat "$dir/$name.pid")" 2>/dev/null || true; fi
    done
}

if [ "$1" = stop ]; then
    stop
    exit 0
fi
[ "$1" = start ] || { echo "slurm-cluster.sh: neither start nor stop: $1" >&2; exit 2; }

port=${SLURM_TEST_PORT:-17100}
host=$(hostname)
mkdir -p "$dir/state" "$dir/spool-n1" "$dir/spool-n2" "$dir/tmp-n1" "$dir/tmp-n2"
# Programs that authenticate look at all that leads to the socket.
chmod 755 "$dir"
head -c 1024 /dev/urandom > "$dir/munge.key"
chmod 600 "$dir/munge.key"
cat > "$dir/slurm.conf" <<END
ClusterName=hither
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$dir/munge.sock
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool-%n
TmpFS=$dir/tmp-%n
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd-%n.pid
SlurmctldLogFile=$dir/slurmctld.log
SlurmdLogFile=$dir/slurmd-%n.log
SlurmdParameters=config_overrides
ReturnToService=2
NodeName=n1 NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 1)) CPUs=64
NodeName=n2 NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 2)) CPUs=64
PartitionName=all Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP
END
trap 'stop' EXIT
# Each of them goes to the background by itself.
munged --force --key-file="$dir/munge.key" --socket="$dir/munge.sock" --seed-file="$dir/munge.seed" \
    --pid-file="$dir/munged.pid" --log-file="$dir/munged.log"
export SLURM_CONF="$dir/slurm.conf"
slurmctld -f "$SLURM_CONF"
slurmd -N n1 -f "$SLURM_CONF"
slurmd -N n2 -f "$SLURM_CONF"
tries=0
until [ "$(sinfo -h -N -t idle -o %N 2>/dev/null | wc -l)" -eq 2 ]; do
    tries=$((tries + 1))
    [ $tries -lt 100 ] || { echo "slurm-cluster.sh: no nodes; see $dir/*.log" >&2; exit 1; }
    sleep 0.1
done
trap - EXIT
echo "export SLURM_CONF=$SLURM_CONF"
