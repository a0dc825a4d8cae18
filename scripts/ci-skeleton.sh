#!/bin/sh
# Writes the skeleton image as a tar archive: empty folders, into which /usr and the interpreter are bound read-only.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# /sbin is a real folder: the engine puts its init there
for name in usr etc proc sys dev tmp run sbin opt job; do mkdir "$folder/$name"; done
chmod 1777 "$folder/tmp" # a tmpfs takes the mode of the folder below it
for name in bin lib lib64; do ln -s "usr/$name" "$folder/$name"; done
tar -C "$folder" -c .
