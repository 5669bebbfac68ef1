#!/bin/bash
# build.sh [all | images]: make the lab's programs from source: $EDGEGPU_LAB/build/lab-bin.tar.xz. Nothing is done when it is up to date.
#
#   k3s               the stand-in (standin/), with Kubernetes and kine from the Go module proxy, pinned by standin/go.mod and go.sum
#   bin/              containerd, its shim and ctr, pinned by containerd/go.mod and go.sum; runc, CNI plugins and iptables from
#                     Debian's packages (fetched with apt, unpacked, not installed; their versions stand in the pack's VERSIONS)
#   images/, units/   a pause image and busybox:lab; k3s's unit files
#
# `images` makes only the images (a real k3s needs no more). Needs Go, gcc, apt, xz, 6 GB of disk, 4 GB of memory, no root.
# 5 to 8 minutes on two cores the first time, kept folders make it quick. EDGEGPU_LAB is /var/tmp/edgegpu-lab unless it is set.
set -euo pipefail
export LC_ALL=C

HERE=$(dirname "$(readlink -f "$0")")
OUT=$(readlink -m "${EDGEGPU_LAB:-/var/tmp/edgegpu-lab}")/build
PACK=$OUT/pack BIN=$OUT/pack/bin ARCHIVE=$OUT/lab-bin.tar.xz
KUBERNETES=$(awk '$1 == "k8s.io/kubernetes" {print $2}' "$HERE/standin/go.mod")
CONTAINERD=$(awk '$2 == "github.com/containerd/containerd/v2" {print $3} $1 == "github.com/containerd/containerd/v2" {print $2}' "$HERE/containerd/go.mod" | head -1)
PACKAGES="runc containernetworking-plugins busybox-static iptables libip4tc2 libip6tc2 libxtables12"
TRIPLET=$(uname -m)-linux-gnu

export PATH=$PATH:/usr/local/go/bin CGO_ENABLED=0 GOFLAGS="-trimpath -buildvcs=false"

step() { echo "build.sh: $*" >&2; }
inputs() { # a checksum of all that the pack is made from
    (cd "$HERE" && find standin containerd units mkimage.py pause.c build.sh -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum | cut -d' ' -f1)
}

build_k3s() {
    local v=k8s.io/component-base/version c=k8s.io/client-go/pkg/version flags p
    flags="-s -w -X main.version=$KUBERNETES+k3s1"
    for p in $v $c; do
        flags="$flags -X $p.gitVersion=$KUBERNETES+k3s1 -X $p.gitMajor=1 -X $p.gitMinor=$(cut -d. -f2 <<< "$KUBERNETES") -X $p.gitTreeState=clean"
    done
    step "k3s stand-in, Kubernetes $KUBERNETES (the longest part)"
    (cd "$HERE/standin" && go build -mod=readonly -tags "providerless osusergo netgo" -ldflags "$flags" -o "$PACK/k3s" .)
}
build_containerd() {
    local p=github.com/containerd/containerd/v2
    step "containerd $CONTAINERD"
    (cd "$HERE/containerd" && go build -mod=readonly -tags "no_btrfs no_zfs no_devmapper no_aufs" \
        -ldflags "-s -w -X $p/version.Version=$CONTAINERD" -o "$BIN/" $p/cmd/containerd $p/cmd/containerd-shim-runc-v2 $p/cmd/ctr)
}

fetch_debian() { # package...: unpack them into root/
    local p
    mkdir -p "$OUT/debs" "$OUT/root"
    for p in "$@"; do
        compgen -G "$OUT/debs/${p}_*.deb" > /dev/null ||
            (cd "$OUT/debs" && apt-get download -qq "$p") 2> "$OUT/apt.log" ||
            { cat "$OUT/apt.log" >&2; step "cannot fetch the package $p (apt-get update?)"; exit 1; }
        dpkg -x "$OUT"/debs/"${p}"_*.deb "$OUT/root"
    done
}
install_debian() {
    local p n lib=$OUT/root/usr/lib/$TRIPLET
    step "runc, CNI plugins, iptables"
    # shellcheck disable=SC2086 # a list of words
    fetch_debian $PACKAGES
    cp "$OUT/root/usr/sbin/runc" "$BIN/"
    for p in bridge host-local loopback portmap; do cp "$OUT/root/usr/lib/cni/$p" "$BIN/"; done
    strip -s "$BIN"/{runc,bridge,host-local,loopback,portmap}
    cp -a "$lib"/lib{ip4tc,ip6tc,xtables}.so* "$PACK/lib/"
    cp -a "$lib/xtables" "$PACK/lib/"
    cp "$OUT/root/usr/sbin/xtables-legacy-multi" "$BIN/aux/"
    for n in iptables iptables-save iptables-restore ip6tables ip6tables-save ip6tables-restore; do
        cat > "$BIN/$n" << WRAPPER
#!/bin/sh
d=\$(dirname "\$(readlink -f "\$0")")
LD_LIBRARY_PATH=\$d/../lib XTABLES_LIBDIR=\$d/../lib/xtables exec "\$d/aux/xtables-legacy-multi" $n "\$@"
WRAPPER
        chmod 755 "$BIN/$n"
    done
    (cd "$OUT/debs" && printf '%s\n' *.deb | sort) > "$PACK/VERSIONS"
}

build_images() {
    local busybox=$OUT/root/bin/busybox links
    step "images"
    mkdir -p "$PACK/images"
    fetch_debian busybox-static
    gcc -static -Os -s -o "$OUT/pause" "$HERE/pause.c"
    links=$("$busybox" --list | sed '/^busybox$/d; s|.*|bin/&->busybox|')
    # shellcheck disable=SC2086 # a list of words
    "$HERE/mkimage.py" "$PACK/images/busybox.tar" busybox:lab '["/bin/sh"]' \
        bin/busybox="$busybox" tmp/ etc/ proc/ sys/ dev/ $links
    "$HERE/mkimage.py" "$PACK/images/pause.tar" rancher/mirrored-pause:3.6 '["/pause"]' pause="$OUT/pause"
}

main() {
    local now
    case ${1:-all} in
    images)
        [ -f "$PACK/images/pause.tar" ] || build_images
        return
        ;;
    all) ;;
    *) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' "$0"; exit 2 ;;
    esac
    now=$(inputs)
    if [ -f "$ARCHIVE" ] && [ "$(cat "$OUT/inputs" 2>/dev/null)" = "$now" ]; then
        step "$ARCHIVE is up to date"
        return
    fi
    "$HERE/need" build >&2 || { step "this machine lacks the above"; exit 1; }
    rm -rf "$PACK" "$OUT/root"
    mkdir -p "$BIN/aux" "$PACK"/{units,images,lib}
    install_debian
    build_images
    cp "$HERE"/units/*.service "$PACK/units/"
    build_containerd
    build_k3s
    step "packing"
    tar -C "$PACK" --owner=0 --group=0 --sort=name --mtime=@0 -cf - . | xz -T0 -"${XZ:-6}" > "$ARCHIVE.new"
    mv "$ARCHIVE.new" "$ARCHIVE"
    echo "$now" > "$OUT/inputs"
    step "$ARCHIVE, $(du -h "$ARCHIVE" | cut -f1)"
}

main "$@"; exit
