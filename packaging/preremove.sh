#!/bin/sh
# Runs before the files of a package go: a .deb says "remove", an .rpm 0. At an upgrade both say something else.
set -eu
case "$1" in
remove | 0) ;;
*) exit 0 ;;
esac
if [ -d /run/systemd/system ]; then
	systemctl --no-reload disable --now mailstead.socket mailstead.service || true # removal goes on
fi
