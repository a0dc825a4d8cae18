#!/bin/sh
# The sandbox tests on a machine with control groups of version 2: a virtual machine with Debian 12 and systemd.
#
#   scripts/cgroup_v2_vm.sh [PYTEST-ARGUMENTS]     default: the tests of control groups, bubblewrap and docker
#
# Needs root on a Debian machine, 5 GB of disk and 4 GB of memory; installs qemu and mmdebstrap where they are missing.
# The first call makes the root file system (minutes), later ones use it again. The tests run three times: as root and
# as a plain user in a scope with `Delegate=yes`, and as a plain user without one. Without hardware virtualization
# everything is emulated, and takes an hour or more. Exit code 0 where all passed; the output is in `console.log`.
#
# WMRL_VM_DIR      where the file system and the logs are kept       [default: /var/tmp/wmrl-vm]
# WMRL_VM_PIP      more arguments for `pip install` in the machine
# WMRL_VM_TIME_S   when the machine is given up                      [default: 14400]
set -eu
repository=$(cd "$(dirname "$0")/.." && pwd)
folder=${WMRL_VM_DIR:-/var/tmp/wmrl-vm}
root=$folder/root
mkdir -p "$folder"

missing=""
for pair in qemu-system-x86_64:qemu-system-x86 mmdebstrap:mmdebstrap mke2fs:e2fsprogs; do
    command -v "${pair%%:*}" >/dev/null 2>&1 || missing="$missing ${pair##*:}"
done
if [ -n "$missing" ]; then
    apt-get update -qq >&2
    # shellcheck disable=SC2086
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >&2
fi

if [ ! -f "$folder/made" ]; then
    rm -rf "$root"
    mmdebstrap --variant=minbase --include=linux-image-cloud-amd64,systemd-sysv,dbus-user-session,libpam-systemd \
        --include=udev,kmod,procps,python3-venv,ca-certificates,bubblewrap,libseccomp2,docker.io,apparmor,tini bookworm "$root"
    cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
    chroot "$root" python3 -m venv /opt/venv
    # shellcheck disable=SC2086
    chroot "$root" /opt/venv/bin/pip install -q ${WMRL_VM_PIP:-} httpx 'numpy>=1.26' packaging pandas pyarrow rich \
        scikit-learn scipy typer docker pytest hypothesis
    chroot "$root" useradd --create-home --shell /bin/sh plain
    mkdir -p "$root/var/lib/systemd/linger" "$root/etc/systemd/system/multi-user.target.wants"
    touch "$root/var/lib/systemd/linger/plain" # its own systemd runs from the start
    for unit in docker.service docker.socket containerd.service; do
        ln -sf /dev/null "$root/etc/systemd/system/$unit" # scripts/ci-engine.sh starts the engine
    done
    cat >"$root/etc/systemd/system/wmrl-tests.service" <<'UNIT'
[Unit]
Wants=user@1000.service
After=multi-user.target user@1000.service
[Service]
Type=oneshot
ExecStartPre=mkdir -p /opt/wmrl
ExecStartPre=tar -x --no-same-owner -C /opt/wmrl -f /dev/vdb
ExecStart=sh /opt/wmrl/inside.sh
ExecStopPost=systemctl --no-block poweroff
StandardOutput=tty
StandardError=inherit
TTYPath=/dev/ttyS0
[Install]
WantedBy=default.target
UNIT
    ln -s ../wmrl-tests.service "$root/etc/systemd/system/multi-user.target.wants/"
    touch "$folder/made"
fi

cat >"$folder/inside.sh" <<'INSIDE'
cd /opt/wmrl
chmod -R a+rX .
export PATH=/opt/venv/bin:$PATH PYTHONPATH=/opt/wmrl PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
export WMRL_SOAK=60
while read -r word; do set -- "$@" "$word"; done <arguments
failed=""
run() { # NAME WORD...: runs the tests by way of these words
    name=$1
    shift
    echo "wmrl-vm: $name"
    "$@" || failed="$failed, $name"
}
scope="systemd-run --quiet --scope --property=Delegate=yes"
plain="runuser -u plain -- env HOME=/home/plain XDG_RUNTIME_DIR=/run/user/1000"
echo "wmrl-vm: kernel $(uname -r), $(systemctl --version | head -n 1), $(findmnt -n -o FSTYPE /sys/fs/cgroup)"
set -- python -m pytest -q --color=no -p no:cacheprovider "$@"
# shellcheck disable=SC2086
{
    run engine scripts/ci-engine.sh
    run "root, delegated" $scope "$@"
    run "plain user, delegated" $plain $scope --user "$@"
    run "plain user, not delegated" $plain "$@"
}
scripts/ci-engine.sh stop
echo "wmrl-vm: ${failed:+failed}${failed:-all passed}"
INSIDE

[ $# -gt 0 ] || for name in cgroups hostile parts faults leases soak; do set -- "$@" "tests/sandbox/test_$name.py"; done
printf '%s\n' "$@" >"$folder/arguments"
tar -cf "$folder/tree.tar" -C "$repository" --exclude=__pycache__ wmrl_cli tests scripts tasks pyproject.toml \
    -C "$folder" inside.sh arguments
rm -f "$folder/disk"
truncate -s 5G "$folder/disk"
mke2fs -q -F -t ext4 -d "$root" "$folder/disk"

accelerator="tcg -cpu max"
if [ -w /dev/kvm ] && grep -qE '^flags.* (vmx|svm)' /proc/cpuinfo; then accelerator="kvm -cpu host"; fi
# shellcheck disable=SC2086
timeout "${WMRL_VM_TIME_S:-14400}" qemu-system-x86_64 -accel $accelerator -smp 2 -m 4G -nographic -no-reboot -nic none \
    -kernel "$root"/boot/vmlinuz-* -initrd "$root"/boot/initrd.img-* -append "root=/dev/vda rw console=ttyS0 loglevel=1" \
    -drive "file=$folder/disk,if=virtio,format=raw,cache=unsafe" \
    -drive "file=$folder/tree.tar,if=virtio,format=raw,readonly=on" </dev/null | tee "$folder/console.log"
grep -q "wmrl-vm: all passed" "$folder/console.log"
