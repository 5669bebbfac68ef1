#!/bin/sh
# uninstall.sh [OPTION]...: take edgegpu off this box, byte for byte; lies in /opt/edgegpu/VERSION. It takes the options of
# `edgegpu uninstall` (--help lists them), which does the work: the pods that still use shares are named first.
set -eu

ROOT=${EDGEGPU_ROOT-} # tests have a root of their own
RECOVER=/usr/local/lib/edgegpu/edgegpu-recover

broken() { # why: what can be done where this version does not start any more
    cat >&2 << END
uninstall.sh: cannot uninstall: $1 does not start: $2
  Mend it first: paste the line that installed this box again, or without a network \`sh install.sh --offline BUNDLE\`.
  That unpacks this version anew. Then run this again.
END
    if [ -x "$ROOT$RECOVER" ]; then
        echo "  k3s does not need it: an unfinished change is undone without it; \`$RECOVER show\` tells of the last one." >&2
    fi
    exit 1
}

main() {
    here=$(dirname "$(readlink -f "$0")")
    edgegpu=$here/bin/edgegpu
    [ "$(id -u)" = 0 ] || { echo 'uninstall.sh: cannot uninstall: this needs root; run it again as root' >&2 && exit 1; }
    why=$("$edgegpu" version 2>&1 > /dev/null) || broken "$edgegpu" "$(printf '%s\n' "$why" | tail -n 1)"
    exec "$edgegpu" uninstall "$@"
}

main "$@"
