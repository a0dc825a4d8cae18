#!/bin/sh
# A real Podman behind its Docker-compatible socket, for continuous integration: as root, without systemd or registry.
#
#   scripts/ci-podman.sh          install what is missing, start the service, import the skeleton image
#   scripts/ci-podman.sh stop     stop the service that this script started
#
# Running it twice does nothing. Prints the socket's address, which goes into DOCKER_HOST (tests: WMRL_PODMAN_HOST).
set -eu

state=${WMRL_PODMAN_DIR:-/var/lib/wmrl-podman}
image=${WMRL_SKELETON_IMAGE:-wmrl-skeleton:2}
host=unix://$state/podman.sock
here=$(dirname "$0")

if [ "${1:-}" = stop ]; then
    [ -f "$state/podman.pid" ] && kill "$(cat "$state/podman.pid")" || true
    exit 0
fi

missing=""
for pair in podman:podman runc:runc catatonit:catatonit curl:curl; do
    command -v "${pair%%:*}" >/dev/null 2>&1 || [ -x "/usr/libexec/podman/${pair%%:*}" ] || missing="$missing ${pair##*:}"
done
if [ -n "$missing" ]; then
    apt-get update -qq >&2
    # shellcheck disable=SC2086
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >&2
fi

# runc, because crun refuses control groups of versions 1 and 2 side by side; and limits that a root without
# CAP_SYS_RESOURCE may set: by default Podman asks for more and starts nothing
mkdir -p "$state"
cat >"$state/containers.conf" <<CONF
[containers]
default_ulimits = ["nofile=4096:4096", "nproc=32768:32768"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "runc"
CONF
export CONTAINERS_CONF="$state/containers.conf"
podman="podman --root $state/root --runroot $state/run"
answers() { curl --silent --fail --max-time 10 --unix-socket "$state/podman.sock" http://podman/_ping >/dev/null 2>&1; }

if ! answers; then
    # from a folder of its own: for a container that ran out of memory, its monitor leaves a file where it was started
    (cd "$state" && exec nohup $podman system service --time=0 "$host" >"$state/podman.log" 2>&1 </dev/null) &
    echo $! >"$state/podman.pid"
    tries=0
    until answers; do
        tries=$((tries + 1))
        if [ "$tries" -gt 150 ]; then
            echo "podman did not start; the end of $state/podman.log:" >&2
            tail -n 20 "$state/podman.log" >&2
            exit 1
        fi
        sleep 0.2
    done
fi

# the compatible socket looks for short names on docker.io only
if ! $podman image exists "docker.io/library/$image"; then
    sh "$here/ci-skeleton.sh" | $podman import --change 'LABEL wmrl.skeleton=1' - "docker.io/library/$image" >&2
fi
echo "$host"
