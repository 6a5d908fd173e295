#!/bin/bash
# Members of an elastic job under Slurm. Each element of the array is a job of its own
# with one machine, so that the end of one machine cancels no other.
#
#   sbatch --array=0-1 --partition=reliable slurm.sh reliable
#   sbatch --array=0-5 --partition=preemptible slurm.sh transient
#
# Both partitions share this folder. A preempted element is requeued, and its new
# process joins the running job.
#SBATCH --job-name=elastic
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=8
#SBATCH --gpus=1
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=elastic-%A-%a.log
# Slurm sends SIGTERM 60 s before the time limit. For preemption, the partition needs
# GraceTime=60.
#SBATCH --signal=TERM@60

set -euo pipefail
role=${1:?give reliable or transient}
place=endpoint.txt
options=()
if [[ $role == reliable && $SLURM_ARRAY_TASK_ID == 0 ]]; then
  options=(--serve-store)
  echo "$(hostname -f):29400" > "$place.new"
  mv "$place.new" "$place"
fi
for _ in {1..600}; do
  [[ -s $place ]] && break
  sleep 1
done

exec srun aikido elastic run --rdzv-endpoint "$(cat "$place")" --role "$role" \
  --nproc-per-node 1 --grace 50 "${options[@]}" train.py
