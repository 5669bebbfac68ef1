#!/bin/sh
# ssh.sh COMMAND...: log in over ssh to where this runs, and run the command there. Root alone, in a root folder and
# with a network of its own.
set -eu
cd "$(mktemp -d)"
[ -c /dev/urandom ] || mknod -m 666 /dev/urandom c 1 9
ip link set lo up
export HOME=/root
mkdir -p ~/.ssh
chmod 700 ~/.ssh
dropbearkey -t ed25519 -f host > key.log 2>&1
dropbearkey -t ed25519 -f user 2>> key.log | grep ^ssh- > ~/.ssh/authorized_keys
chmod 600 ~/.ssh/authorized_keys
dropbear -r host -s -p 127.0.0.1:22 -P "$PWD/server.pid"
failed=0
dbclient -y -y -i user root@127.0.0.1 "$@" 2> client.log || failed=$?
kill "$(cat server.pid)"
[ "$failed" = 0 ] || cat client.log >&2
exit "$failed"
