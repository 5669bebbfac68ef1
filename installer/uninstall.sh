#!/bin/sh
# uninstall.sh [OPTION]...: take edgegpu off this box; lies in /opt/edgegpu/VERSION, and takes the options of `edgegpu uninstall`.
set -eu
main() {
    here=$(dirname "$(readlink -f "$0")")
    exec "$here/bin/edgegpu" uninstall "$@"
}
main "$@"
