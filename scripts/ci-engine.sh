#!/bin/sh
# A real Docker Engine and bubblewrap for continuous integration: as root, without systemd, registry or bridge.
#
#   scripts/ci-engine.sh          install what is missing, start the engine, import the skeleton image
#   scripts/ci-engine.sh stop     stop the engine that this script started
#
# The image holds empty folders only: /usr and the interpreter's folders are bound read-only into each container.
# Running it twice does nothing. Prints the engine's address; DOCKER_HOST in the environment chooses another one.
set -eu

state=${WMRL_ENGINE_DIR:-/var/lib/wmrl-engine}
image=${WMRL_SKELETON_IMAGE:-wmrl-skeleton:2}
host=${DOCKER_HOST:-unix:///var/run/docker.sock}
export DOCKER_HOST="$host"

if [ "${1:-}" = stop ]; then
    [ -f "$state/docker.pid" ] && kill "$(cat "$state/docker.pid")" || true
    exit 0
fi

missing=""
for pair in bwrap:bubblewrap dockerd:docker.io tini:tini setpriv:util-linux; do
    command -v "${pair%%:*}" >/dev/null 2>&1 || missing="$missing ${pair##*:}"
done
if [ -n "$missing" ]; then
    apt-get update -qq >&2
    # shellcheck disable=SC2086
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >&2
fi

if ! docker version >/dev/null 2>&1; then
    mkdir -p "$state"
    nohup dockerd --host "$host" --data-root "$state/data" --exec-root "$state/exec" --pidfile "$state/docker.pid" \
        --iptables=false --ip6tables=false --bridge=none --ip-forward=false >"$state/dockerd.log" 2>&1 </dev/null &
    tries=0
    until docker version >/dev/null 2>&1; do
        tries=$((tries + 1))
        if [ "$tries" -gt 150 ]; then
            echo "the engine did not start; the end of $state/dockerd.log:" >&2
            tail -n 20 "$state/dockerd.log" >&2
            exit 1
        fi
        sleep 0.2
    done
fi

if ! docker image inspect "$image" >/dev/null 2>&1; then
    sh "$(dirname "$0")/ci-skeleton.sh" | docker import --change 'LABEL wmrl.skeleton=1' - "$image" >&2
fi
echo "$host"
