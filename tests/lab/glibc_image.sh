#!/bin/sh
# glibc_image.sh [OUT.tar | --check]: make the image edgegpu-test:lab, for pods that run dynamically linked programs bound in by CDI
# (nvidia-smi, CUDA programs): busybox, and this machine's glibc in Debian's folders. Default OUT: $EDGEGPU_LAB/images/edgegpu-test.tar,
# from where every `k3sdirect up` takes it. Its entry point ends at once on TERM. Arguments of the pod are run under it (`args:`);
# a pod's `command:` takes its place. With --check: only say what is missing.
#
# The image has no ldconfig and no ld.so.cache: the loader looks into /lib/TRIPLET, /usr/lib/TRIPLET, /lib, /usr/lib and LD_LIBRARY_PATH.
set -eu

HERE=$(dirname "$(readlink -f "$0")")
ARCH=$(uname -m)
DIR=/lib/$ARCH-linux-gnu
LIBS="libc.so.6 libm.so.6 libdl.so.2 libpthread.so.0 librt.so.1 libresolv.so.2 libgcc_s.so.1"
case $ARCH in
aarch64) LOADER=/lib/ld-linux-aarch64.so.1 ;;
*) LOADER=/lib64/ld-linux-x86-64.so.2 ;;
esac

busybox_path() {  # only a static one runs in an image
    for b in /bin/busybox /usr/bin/busybox; do
        [ -x "$b" ] && ! grep -qaF "$LOADER" "$b" && echo "$b" && return 0
    done
    return 1
}

check() {
    rc=0
    busybox_path > /dev/null || { echo "a static busybox: apt-get install busybox-static"; rc=1; }
    for f in $LIBS; do
        [ -e "$DIR/$f" ] || { echo "the library $DIR/$f: apt-get install libc6 libgcc-s1"; rc=1; }
    done
    [ -e "$LOADER" ] || { echo "glibc's loader $LOADER: apt-get install libc6"; rc=1; }
    return $rc
}

make_image() {
    out=$1
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    busybox=$(busybox_path)
    cat > "$work/entry" << 'ENTRY'
#!/bin/sh
# runs its arguments (or nothing, for ever) and ends at once on TERM: PID 1 would else ignore it
trap 'kill $! 2>/dev/null; exit 0' TERM INT
[ $# -gt 0 ] || set -- sleep 2147483647
"$@" &
wait $!
ENTRY
    set -- "entry=$work/entry" "bin/busybox=$busybox" "$LOADER=$(readlink -f "$LOADER")" tmp/ etc/ proc/ sys/ dev/ run/ root/ usr/bin/ usr/lib/
    for f in $LIBS; do
        set -- "$@" "$DIR/$f=$(readlink -f "$DIR/$f")"
    done
    for a in $("$busybox" --list); do
        [ "$a" = busybox ] || set -- "$@" "bin/$a->busybox"
    done
    mkdir -p "$(dirname "$out")"
    # Others may be copying it at this moment: it is replaced, never written over.
    python3 "$HERE/mkimage.py" "$out.new.$$" edgegpu-test:lab '["/entry"]' "$@"
    mv -f "$out.new.$$" "$out"
}

main() {
    if [ "${1:-}" = --check ]; then
        check
        return
    fi
    check >&2
    make_image "${1:-${EDGEGPU_LAB:-/var/tmp/edgegpu-lab}/images/edgegpu-test.tar}"
}

main "$@"
