#!/bin/sh
# install.sh [OPTION]...: put edgegpu on this box. The lines that HOST gives you begin with
#   curl -fsSL https://HOST/install.sh | sh -s -- ...
# `sh install.sh --help` lists the options.
#
# It fetches one bundle, checks it against the sha256 and the release keys that stand here, unpacks it into /opt/edgegpu/VERSION, and runs
# `edgegpu install` from there. What is left out here (k3s, units, labels) that command does, as a transaction.
# Nothing is done before the last line has been read: a script that arrived in part does nothing.
set -eu
umask 022

# Filled in by tools/bundle; the address by it or by the server that hands this file out.
BASE_URL='@EDGEGPU_URL@'
VERSION='@EDGEGPU_VERSION@'
BUILD='@EDGEGPU_BUILD@'
SHA256_XZ='@EDGEGPU_SHA256_XZ@'
SHA256_GZ='@EDGEGPU_SHA256_GZ@'
BYTES_XZ='@EDGEGPU_BYTES_XZ@'
BYTES_GZ='@EDGEGPU_BYTES_GZ@'
NEED_KIB='@EDGEGPU_NEED_KIB@'
# The public keys of those who sign bundles; none: bundles are not signed.
RELEASE_KEYS='@EDGEGPU_RELEASE_KEYS@'

ROOT=${EDGEGPU_ROOT-} # tests have a root of their own
OPT=$ROOT/opt/edgegpu
LOCK=$ROOT/run/edgegpu-unpack.lock # the agent's bundles.py takes it too
TRIES=5

say() { printf 'edgegpu: %s\n' "$*" >&2; }

die() {
    printf 'install.sh: %s\n' "$*" >&2
    exit 1
}

wrong_use() {
    printf 'install.sh: %s; --help lists the options\n' "$*" >&2
    exit 2
}

usage() {
    cat << END
usage: curl -fsSL https://HOST/install.sh | sh -s -- [OPTION]...
       sh install.sh --offline BUNDLE [OPTION]...

Puts edgegpu on this box: fetches one bundle, checks it, unpacks it into /opt/edgegpu, runs \`edgegpu install\`.
Run again, it changes and restarts nothing that is right already. With no option on a terminal it asks.

Where from
  --url URL           the host, https://HOST[/FOLDER]; or EDGEGPU_URL in the environment
  --proxy URL         a proxy to reach it by; HTTPS_PROXY and NO_PROXY in the environment are honoured too. The agent
                      gets it as well (not those of the environment): for HTTPS, and for MQTT that does not go straight
  --ca-sha256 HEX     HOST has a CA of its own: take HOST/ca.crt if its sha256 is this, and trust it for this download
  --offline BUNDLE    fetch nothing: BUNDLE is edgegpu-VERSION-linux-amd64.tar.xz or .tar.gz
  --sha256 HEX        what --offline is checked against, where this script has no checksum in it
                      (else: a SHA256SUMS beside BUNDLE)

The cloud it belongs to: one of
  --token-file FILE   best: nobody on this box sees it
  EDGEGPU_TOKEN       in the environment
  --token TOKEN       shows in this box's process list while this script runs, in nothing that it starts
The cloud is HOST then, with the CA of --ca-sha256; or else: --cloud URL
On a k3s agent node: --join TOKEN, or EDGEGPU_JOIN in the environment, as the server's install has printed it

What to install (all further options are those of \`edgegpu install\`, which lists them with --help)
  --node NAME...      these nodes of the cluster have GPUs; asks nothing
  --yes               take what is found; asks nothing
  --dry-run           print every file, restart and label that it would make, and make none
  --isolation MODE    limiter (the default), mps or none: what holds new containers to their shares
  --role ROLE         server, agent or extender-only; without it, what fits this machine
  --policy POLICY     first-fit, best-fit or spread
  --enrol-wait N      seconds to wait until the cloud has taken the token (60)
  --json              what \`edgegpu install\` says as JSON, on standard output

If HOST has a CA of its own, curl needs the pin of HOST's key as well (with -s alone, curl would hide its errors):
  curl -fsSL -k --pinnedpubkey 'sha256//PIN' https://HOST/install.sh | sh -s -- --url https://HOST --ca-sha256 HEX ...

Exit status: 0 done, 2 a usage error, else refused, undone, or not enrolled: the output says why and what to do.
Taking it off again: /opt/edgegpu/current/uninstall.sh
END
}

# lib-begin: tools/bundle puts the file itself here
if [ ! -r "${0%/*}/install-lib.sh" ]; then
    die 'this install.sh is a template and has no checksum in it: take the one that tools/bundle makes'
fi
# shellcheck source=installer/install-lib.sh
. "${0%/*}/install-lib.sh"
# lib-end

pinned() { [ "${BUILD#@}" = "$BUILD" ]; }

# --- what this box is ---

check_box() {
    [ "$(uname -s)" = Linux ] || die "cannot install: this is $(uname -s); edgegpu runs on Linux"
    case $(uname -m) in
    x86_64 | amd64) ;;
    *) die "cannot install: this box is $(uname -m); edgegpu is for x86_64 (amd64) so far" ;;
    esac
    [ -d "$ROOT/run/systemd/system" ] || die 'cannot install: systemd is not running here; edgegpu needs it for its services'
    for tool in tar sha256sum df readlink; do
        has "$tool" || die "cannot find $tool: install it (apt-get install tar coreutils), and run this again"
    done
}

last_line() { tail -n 1 "$1" 2> /dev/null || :; }

has() { command -v "$1" > /dev/null 2>&1; }

check_space() { # KiB needed
    folder=$OPT
    until [ -d "$folder" ]; do folder=${folder%/*}; done
    free=$(df -Pk "${folder:-/}" | { read -r _ && read -r _ _ _ free _ && echo "$free"; }) || free=
    case $free in '' | *[!0-9]*) return 0 ;; esac
    [ "$free" -ge "$1" ] ||
        die "cannot install: $OPT needs $(($1 / 1024)) MiB and has $((free / 1024)) MiB free; make room there, and run this again"
}

# --- the folder under /opt: all or nothing ---

open_work() { # WORK: everything half done lies there
    made=
    for folder in "$ROOT/opt" "$OPT"; do
        [ -d "$folder" ] || made="$folder $made"
    done
    WORK=$OPT/.$VERSION.new
    trap clean_up EXIT
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM
    mkdir -p "$OPT" || die "cannot write to $OPT: see the line above; make it writable (mount -o remount,rw), and run this again"
    lock_out_others
    rm -rf "$WORK"
    mkdir "$WORK" || die "cannot make $WORK: see the line above; make room in $OPT or make it writable, and run this again"
}

lock_out_others() { # by a file that root alone can open: who can open a file or a folder, if only to read, can lock it
    has flock || return 0
    umask 077
    while :; do
        exec 9>> "$LOCK"
        flock -n 9 || { WORK=; die 'another install.sh or an upgrade is at work on this box: wait until it has ended'; }
        if [ "$LOCK" -ef /proc/self/fd/9 ]; then break; fi # else its last holder has removed it meanwhile
    done
    umask 022
}

in_use() { # is the folder of this version more than an unpacked bundle?
    case $(readlink "$OPT/current" 2> /dev/null) in
    "$VERSION" | */"$VERSION") return 0 ;;
    esac
    [ -f "$ROOT/var/lib/edgegpu/tx/state" ] || return 1
    ! grep -Eq '^state=(COMMITTED|ROLLED_BACK)$' "$ROOT/var/lib/edgegpu/tx/state"
}

# shellcheck disable=SC2317,SC2329 # a trap calls it
clean_up() { # also after `edgegpu install`: one that was refused leaves nothing behind
    [ -n "$WORK" ] || return 0
    rm -rf "$WORK"
    if [ -n "${UNPACKED-}" ] && ! in_use; then
        # killed before its record stood: what it made goes while the program that takes it away is still here
        [ ! -e "$ROOT/var/lib/edgegpu/tx/files" ] ||
            EDGEGPU_RECOVER_ROOT=$ROOT "$OPT/$VERSION/installer/edgegpu-recover" deadline 9<&- || :
        mv "$OPT/$VERSION" "$WORK" && rm -rf "$WORK" # never half of it under its name
    fi
    for folder in $made; do
        rmdir "$folder" 2> /dev/null || :
    done
    rm -f "$LOCK"
}

flush() { sync -f "$1" 2> /dev/null || sync; }

unpack() { # BUNDLE: $WORK/VERSION is what was in it
    mkdir "$WORK/out"
    case $1 in
    *.xz) unpacker='xz -dc' ;;
    *) unpacker='gzip -dc' ;;
    esac
    $unpacker < "$1" | tar -xf - -C "$WORK/out" ||
        die "cannot unpack $1 into $WORK: see the line above; if the disk is full, make room in $OPT, and run this again"
    for folder in "$WORK"/out/*; do
        [ "$(cat "$folder/VERSION")" = "$VERSION" ] || die "cannot use $1: it does not hold edgegpu $VERSION, though its name says so; fetch it anew"
        mv "$folder" "$WORK/$VERSION"
    done
    works "$WORK/$VERSION" ||
        die "cannot start the unpacked edgegpu $VERSION: $(last_line "$WORK/error"); if $OPT is mounted noexec: mount -o remount,exec"
}

put_in_place() { # from $WORK/VERSION to /opt/edgegpu/VERSION
    new=$WORK/$VERSION
    if [ -e "$OPT/$VERSION" ]; then
        if works "$OPT/$VERSION"; then
            if [ "$(build_of "$new")" = "$(build_of "$OPT/$VERSION")" ]; then return 0; fi
            ! in_use || die "cannot install: another build of $VERSION is in use here; uninstall it first ($OPT/current/uninstall.sh)"
        fi
        mv "$OPT/$VERSION" "$WORK/other"
    fi
    flush "$OPT"
    mv "$new" "$OPT/$VERSION"
    UNPACKED=1
    flush "$OPT"
}

works() { "$1/bin/edgegpu" version > /dev/null 2> "$WORK/error"; }

build_of() { cat "$1/BUILD" 2> /dev/null || :; }

already_here() { # the very bundle that this script is for, and it starts
    pinned && [ "$(build_of "$OPT/$VERSION")" = "$BUILD" ] && works "$OPT/$VERSION"
}

# --- the whole ---

check_value() { # option, value: what `edgegpu install` would refuse is told before anything is fetched
    case $1 in
    --role) known='server agent extender-only' ;;
    --policy) known='first-fit best-fit spread' ;;
    --isolation) known='none limiter mps' ;;
    --wait-at-start) known='on off' ;;
    --output | -o) known='json yaml wide' ;;
    --unit-mib | --reserve-mib | --deadline | --enrol-wait)
        case $2 in '' | *[!0-9.]*) wrong_use "$1 needs a number, and not '$2'" ;; esac
        return 0
        ;;
    *) return 0 ;;
    esac
    case " $known " in *" $2 "*) ;; *) wrong_use "$1 is one of $known, and not '$2'" ;; esac
}

check_words() { # what was told to this script
    [ -z "$TOKEN" ] || [ -z "$TOKEN_FILE" ] || wrong_use '--token and --token-file exclude each other'
    for sum in "$SHA256" "$CA_SHA256"; do
        [ -z "$sum" ] || is_sha256 "$sum" || wrong_use "--sha256 and --ca-sha256 need 64 digits of 0-9a-f, and not '$sum'"
    done
    [ -n "$BUNDLE" ] || pinned || die 'this install.sh is a template and has no checksum in it: take the one that tools/bundle makes, or use --offline'
    [ "$(id -u)" = 0 ] || die 'cannot install: this needs root; run it again as root (sudo sh)'
    [ -z "$TOKEN_FILE" ] || [ -s "$TOKEN_FILE" ] || die "cannot read a token from $TOKEN_FILE: no such file, or empty; name the file with the token"
    if [ -n "$BUNDLE" ]; then
        offline_version
        offline_sum
        return 0
    fi
    case ${URL#@} in
    https://?*) URL=${URL%/} ;;
    "$URL") die "cannot fetch from $URL: the address has to begin with https://; put --url right, or EDGEGPU_URL" ;;
    *) die 'cannot find the host: give --url https://HOST, or set EDGEGPU_URL' ;;
    esac
}

# An uninstall that was killed in its last second is completed by its timer, which takes away all that is in /opt/edgegpu
# then: what is put there now too. Its program goes in the last step: where that was cut off, only its journal is left.
finish_uninstall() {
    tx=$ROOT/var/lib/edgegpu/tx program=$ROOT/usr/local/lib/edgegpu/edgegpu-recover waited=0
    grep -qsx 'op=uninstall' "$tx/state" && grep -qsx 'state=COMMITTED' "$tx/state" || return 0
    say 'completing an uninstall that was cut off'
    # systemd does not wait for its end, and without its unit the program is started by itself
    [ ! -e "$program" ] || systemctl start edgegpu-recover.service < /dev/null || sh "$program" deadline < /dev/null || :
    while [ -e "$tx/state" ] && [ -e "$program" ]; do
        [ $waited -lt 90 ] || die 'cannot install: an uninstall is not complete after 90 s; see why (journalctl -u edgegpu-recover), let it end (systemctl start edgegpu-recover.service), and run this again'
        sleep 1
        waited=$((waited + 1))
    done
    take_leftovers
}

take_leftovers() { # files that the uninstall would have removed with its program and its journal
    while read -r number flags _ new path; do
        case $number:$flags:$new in id:*) ;; *:*e:-) rm -f "$ROOT$path" ;; esac
    done 2> /dev/null < "$tx/files" || :
    rm -rf "${tx:?}"
}

install() { # the options of `edgegpu install`
    check_box
    finish_uninstall
    URL=${URL%/}
    [ -n "$BUNDLE" ] || choose_fetcher
    open_work
    if ! already_here; then
        need=$NEED_KIB
        pinned || need=$(($(wc -c < "$BUNDLE") * 8 / 1024))
        check_space "$need"
        if [ -n "$BUNDLE" ]; then
            # a copy of root's: where others can write, they would change it between the check and the unpacking
            cat "$BUNDLE" > "$WORK/${BUNDLE##*/}" ||
                die "cannot copy $BUNDLE to $OPT: see the line above; if the disk is full, make room there, and run this again"
            check_sum "$WORK/${BUNDLE##*/}" "$BUNDLE" "$wanted"
            bring_signature "$BUNDLE.sig" "$WORK/${BUNDLE##*/}.sig"
            check_signature "$WORK/${BUNDLE##*/}" "$BUNDLE"
            BUNDLE=$WORK/${BUNDLE##*/}
            say "checked $(size_of "$BUNDLE"): its sha256 is right"
        else
            fetch_bundle
        fi
        say "unpacking edgegpu $VERSION into $OPT/$VERSION"
        unpack "$BUNDLE"
        put_in_place
    fi
    rm -rf "${WORK:?}" # before anything is changed: a power cut later leaves no half of a bundle
    [ -z "$TOKEN" ] || export EDGEGPU_TOKEN="$TOKEN"
    [ -z "$JOIN" ] || export EDGEGPU_JOIN="$JOIN"
    case $PROXY in http://* | https://*) export EDGEGPU_PROXY="$PROXY" ;; esac
    [ "${URL#@}" != "$URL" ] || export EDGEGPU_URL="$URL"
    status=0
    if [ -n "$TOKEN$TOKEN_FILE" ] && [ -z "$CLOUD" ] && [ "${URL#@}" = "$URL" ]; then CLOUD=$URL; fi
    if [ -n "$CLOUD" ]; then
        # its authority is the one that the download was checked with, where it is that host
        if [ -n "$CA_SHA256" ] && [ "$CLOUD" = "$URL" ]; then set -- --ca-sha256 "$CA_SHA256" "$@"; fi
        set -- --cloud "$CLOUD" "$@"
    fi
    "$OPT/$VERSION/bin/edgegpu" install "$@" 9<&- || status=$?
    unset EDGEGPU_TOKEN EDGEGPU_JOIN EDGEGPU_PROXY
    exit $status
}

main() {
    URL=${EDGEGPU_URL:-$BASE_URL} PROXY=${EDGEGPU_PROXY-} CA_SHA256='' BUNDLE='' SHA256='' TOKEN=${EDGEGPU_TOKEN-} TOKEN_FILE=''
    CA='' BLIND='' WORK='' CLOUD=''
    JOIN=${EDGEGPU_JOIN-} node=''
    unset EDGEGPU_TOKEN EDGEGPU_JOIN EDGEGPU_PROXY
    # Our own options are taken out; what is for `edgegpu install` goes round to the end, in its order.
    left=$#
    while [ $left -gt 0 ]; do
        word=$1 value=''
        shift
        left=$((left - 1))
        case $word in
        --url | --proxy | --ca-sha256 | --offline | --sha256 | --token | --token-file | --join | --cloud | --role | --policy | \
            --exclude | --unit-mib | --reserve-mib | --driver-root | --isolation | --wait-at-start | --cloud-proxy | \
            --cloud-broker | --enrol-wait | --limits-namespace | --deadline | --transaction-id | --output | -o)
            [ $left -gt 0 ] || wrong_use "$word needs a value"
            value=$1
            shift
            left=$((left - 1))
            ;;
        --*=*) value=${word#*=} ;;
        esac
        case $word in
        --url | --url=*) URL=$value ;;
        --proxy | --proxy=*) PROXY=$value ;;
        --ca-sha256 | --ca-sha256=*) CA_SHA256=$value ;;
        --offline | --offline=*) BUNDLE=$value ;;
        --sha256 | --sha256=*) SHA256=$value ;;
        --token | --token=*) TOKEN=$value ;;
        --join | --join=*) JOIN=$value ;;
        --cloud | --cloud=*) CLOUD=${value%/} ;;
        --token-file | --token-file=*)
            TOKEN_FILE=$value
            set -- "$@" --token-file "$value"
            ;;
        -h | --help) usage && exit 0 ;;
        --node)
            [ $left -gt 0 ] || wrong_use "$word needs a value"
            node=0
            set -- "$@" "$word"
            continue
            ;;
        --node=*) set -- "$@" "$word" ;;
        --role | --policy | --exclude | --unit-mib | --reserve-mib | --driver-root | --isolation | --wait-at-start | \
            --cloud-proxy | --cloud-broker | --enrol-wait | --limits-namespace | --deadline | --transaction-id | --output | -o)
            check_value "$word" "$value"
            set -- "$@" "$word" "$value"
            ;;
        --role=* | --policy=* | --exclude=* | --unit-mib=* | --reserve-mib=* | --driver-root=* | --isolation=* | \
            --wait-at-start=* | --cloud-proxy=* | --cloud-broker=* | --enrol-wait=* | --limits-namespace=* | --deadline=* | --transaction-id=* | --output=*)
            check_value "${word%%=*}" "$value"
            set -- "$@" "$word"
            ;;
        --yes | -y | --show-join | --agent-only | --dry-run | --json) set -- "$@" "$word" ;;
        -*) wrong_use "there is no option ${word%%=*}" ;;
        *) # --node NAME NAME: each name gets an option of its own
            [ -n "$node" ] || wrong_use "cannot tell what '$word' is for"
            [ "$node" != 1 ] || set -- "$@" --node
            node=1
            set -- "$@" "$word"
            continue
            ;;
        esac
        [ "$node" != 0 ] || wrong_use '--node needs a value'
        node=''
    done
    case $PROXY in '' | *://*) ;; *) PROXY=http://$PROXY ;; esac
    check_words
    install "$@"
}

{ main "$@"; }
