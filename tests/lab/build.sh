#!/bin/bash
# build.sh [all | images]: make the lab's programs from source: $EDGEGPU_LAB/build/1.37-2.4/lab-bin.tar.xz, a folder for each version.
# Nothing is done when the archive is up to date with what it is made from.
#
#   k3s               the stand-in (standin/), with Kubernetes and kine from the Go module proxy, pinned by standin/versions/*.mod and .sum
#   bin/              containerd, its shim and ctr, pinned by containerd/versions/*.mod and .sum; runc, CNI plugins and iptables from
#                     Debian's packages (fetched with apt, unpacked, not installed). The pack's VERSIONS lists all versions
#   images/, units/   a pause image and busybox:lab; k3s's unit files
#
# EDGEGPU_LAB_KUBERNETES and EDGEGPU_LAB_CONTAINERD choose the versions (see labversion.py); the newest are the default. One build
# runs at a time, a second one waits for it.
# `images` makes only the images (a real k3s needs no more). Needs Go, gcc, apt, xz, 6 GB of disk, 4 GB of memory, no root.
# 5 to 8 minutes on two cores the first time, kept folders make it quick. EDGEGPU_LAB is /var/tmp/edgegpu-lab unless it is set.
set -euo pipefail
export LC_ALL=C

HERE=$(dirname "$(readlink -f "$0")")
OUT=$(readlink -m "${EDGEGPU_LAB:-/var/tmp/edgegpu-lab}")/build
CHOSEN=$(env -u EDGEGPU_LAB_PACK "$HERE/labversion.py")
read -r K8S CRI <<< "$CHOSEN"
PLACE=$OUT/$K8S-$CRI
PACK=$PLACE/pack BIN=$PLACE/pack/bin ARCHIVE=$PLACE/lab-bin.tar.xz
pinned() { sed -n "s|^\(require\)\{0,1\}[[:space:]]*$1 \(v[^ ]*\)\$|\2|p" "$HERE/$2"; }
KUBERNETES=$(pinned k8s.io/kubernetes "standin/versions/$K8S.mod")
CONTAINERD=$(pinned github.com/containerd/containerd/v2 "containerd/versions/$CRI.mod")
KINE=$(pinned github.com/k3s-io/kine "standin/versions/$K8S.mod")
PACKAGES="runc containernetworking-plugins busybox-static iptables libip4tc2 libip6tc2 libxtables12"
TRIPLET=$(uname -m)-linux-gnu

export PATH=$PATH:/usr/local/go/bin CGO_ENABLED=0 GOFLAGS="-trimpath -buildvcs=false"

step() { echo "build.sh: $*" >&2; }
inputs() { # a checksum of all that the pack is made from
    (cd "$HERE" && {
        find standin containerd units mkimage.py pause.c build.sh -type f ! -path '*/versions/*' -print0
        printf '%s\0' "standin/versions/$K8S".{mod,sum} "containerd/versions/$CRI".{mod,sum}
    } | sort -z | xargs -0 sha256sum | sha256sum | cut -d' ' -f1)
}

tags() { # Go's build tags of the stand-in: kubernetes_1_34 and so on, one for each version since 1.33
    local minor
    printf 'providerless osusergo netgo'
    for ((minor = 34; minor <= ${K8S#1.}; minor++)); do printf ' kubernetes_1_%d' "$minor"; done
}
build_k3s() {
    local v=k8s.io/component-base/version c=k8s.io/client-go/pkg/version flags p
    flags="-s -w -X main.version=$KUBERNETES+k3s1"
    for p in $v $c; do
        flags="$flags -X $p.gitVersion=$KUBERNETES+k3s1 -X $p.gitMajor=1 -X $p.gitMinor=$(cut -d. -f2 <<< "$KUBERNETES") -X $p.gitTreeState=clean"
    done
    step "k3s stand-in, Kubernetes $KUBERNETES (the longest part)"
    (cd "$HERE/standin" && go build -mod=readonly -modfile="versions/$K8S.mod" -tags "$(tags)" -ldflags "$flags" -o "$PACK/k3s" .)
}
build_containerd() {
    local p=github.com/containerd/containerd/v2
    step "containerd $CONTAINERD"
    (cd "$HERE/containerd" && go build -mod=readonly -modfile="versions/$CRI.mod" -tags "no_btrfs no_zfs no_devmapper no_aufs" \
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
    {
        echo "kubernetes $KUBERNETES, containerd $CONTAINERD, kine $KINE"
        (cd "$OUT/debs" && printf '%s\n' *.deb | sort)
    } > "$PACK/VERSIONS"
}

build_images() {
    local busybox=$OUT/root/bin/busybox links
    step "images"
    mkdir -p "$OUT/images"
    fetch_debian busybox-static
    gcc -static -Os -s -o "$OUT/pause" "$HERE/pause.c"
    links=$("$busybox" --list | sed '/^busybox$/d; s|.*|bin/&->busybox|')
    # shellcheck disable=SC2086 # a list of words
    "$HERE/mkimage.py" "$OUT/images/busybox.tar" busybox:lab '["/bin/sh"]' \
        bin/busybox="$busybox" tmp/ etc/ proc/ sys/ dev/ $links
    "$HERE/mkimage.py" "$OUT/images/pause.tar" rancher/mirrored-pause:3.6 '["/pause"]' pause="$OUT/pause"
}

main() {
    local checksum
    mkdir -p "$PLACE"
    exec 9> "$OUT/lock"
    flock 9
    case ${1:-all} in
    images)
        [ -f "$OUT/images/pause.tar" ] || build_images
        return
        ;;
    all) ;;
    *) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' "$0"; exit 2 ;;
    esac
    checksum=$(inputs)
    if [ -f "$ARCHIVE" ] && [ "$(cat "$PLACE/inputs" 2>/dev/null)" = "$checksum" ]; then
        step "$ARCHIVE is up to date"
        return
    fi
    "$HERE/need" build >&2 || { step "this machine lacks the above"; exit 1; }
    rm -rf "$PACK" "$OUT/root"
    mkdir -p "$BIN/aux" "$PACK"/{units,lib}
    install_debian
    build_images
    cp -r "$OUT/images" "$PACK/"
    cp "$HERE"/units/*.service "$PACK/units/"
    build_containerd
    build_k3s
    step "packing"
    tar -C "$PACK" --owner=0 --group=0 --sort=name --mtime=@0 -cf - . | xz -T0 -"${XZ:-6}" > "$ARCHIVE.new"
    mv "$ARCHIVE.new" "$ARCHIVE"
    echo "$checksum" > "$PLACE/inputs"
    rm -rf "$PACK"
    step "$ARCHIVE, $(du -h "$ARCHIVE" | cut -f1)"
}

main "$@"; exit
