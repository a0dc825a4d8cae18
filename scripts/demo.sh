#!/usr/bin/env bash
# The main job on the embedded defaults, stage by stage: prepare, measure, post-train, measure again, report.
#   scripts/demo.sh [FOLDER]      FOLDER (default: demo/) keeps all tables, the trained model and report.html.
# WMRL names the command (default: wmrl). Running it again goes on where it was stopped.
set -euo pipefail

wmrl=${WMRL:-wmrl}
demo=${1:-demo}
samples=${SAMPLES:-8}  # trajectories a task: the paper's avg@8
steps=${STEPS:-24}
mkdir -p "$demo"

say() { printf '\n== %s\n' "$*"; }

say "1/5  Real tasks, from data that Python packages ship"
"$wmrl" prepare-tasks offline -o "$demo/data"

say "2/5  The embedded agent on held-out tasks: every script is really executed"
"$wmrl" evaluate --model tiny --tasks "$demo/data/tasks.parquet" --samples "$samples" -o "$demo/run/evaluation/before.parquet"

say "3/5  World Model RL: about 10 % of the groups are executed, the world model predicts the rest"
"$wmrl" train --model tiny --anchor-frac 0.1 --tasks "$demo/data/tasks.parquet" --steps "$steps" -o "$demo/run"

say "4/5  The trained agent on the same draw of the same held-out tasks"
"$wmrl" evaluate --model "$demo/run" --tasks "$demo/data/tasks.parquet" --samples "$samples" \
  -o "$demo/run/evaluation/after.parquet" --against "$demo/run/evaluation/before.parquet"

say "5/5  What happened, in figures"
"$wmrl" report "$demo/run"
