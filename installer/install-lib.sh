# shellcheck shell=sh
# install-lib.sh: how install.sh gets the bundle: from its host, or from a file that was brought. tools/bundle puts it into install.sh.
# It uses say, die, has, pinned, WORK and the options of install.sh.

# --- fetching ---

sha256_of() {
    sum=$(sha256sum < "$1")
    echo "${sum%% *}"
}

is_sha256() { [ ${#1} = 64 ] && case $1 in *[!0-9a-f]*) return 1 ;; esac; }

choose_fetcher() {
    if has curl; then
        FETCH=curl
    elif has wget && wget --version 2> /dev/null | grep -q 'GNU Wget'; then
        FETCH=wget
    else # busybox's wget trusts every certificate, or none
        die 'cannot find curl or GNU wget: apt-get install curl, or bring the bundle and use --offline'
    fi
}

fetch_once() { # URL, file; goes on where an earlier try broke off
    case $FETCH in
    curl)
        set -- --output "$2" "$1"
        [ -z "$CA" ] || set -- --cacert "$CA" "$@"
        [ -z "$BLIND" ] || set -- --insecure "$@"
        curl --fail --silent --show-error --location --proto '=https' --connect-timeout 20 \
            --speed-limit 100 --speed-time 60 --continue-at - "$@"
        ;;
    wget)
        set -- -O "$2" "$1"
        [ -z "$CA" ] || set -- --ca-certificate="$CA" "$@"
        [ -z "$BLIND" ] || set -- --no-check-certificate "$@"
        wget -nv -t 1 -T 60 -c "$@"
        ;;
    esac < /dev/null > /dev/null 2> "$WORK/error"
}

cause() { # of what $WORK/error holds, in one line
    line=$(grep -m 1 -e '^curl: (' -e ERROR "$WORK/error") || line=$(last_line "$WORK/error")
    line=${line#curl: }
    echo "${line:-the connection broke off}"
}

fetch() { # URL, file
    try=1
    until fetch_once "$1" "$2"; do
        words=$(cause)
        give_up_for_good "$1" "$words"
        case $words in *416* | *'byte range'*) rm -f "$2" ;; esac # the host cannot go on in the middle
        [ "$try" -lt "$TRIES" ] ||
            die "cannot fetch $1: $words; check that this box reaches that host; by a proxy: --proxy, without a network: --offline"
        say "fetching again: $words"
        sleep $((1 << try))
        try=$((try + 1))
    done
}

seconds() { date +%s; }

mib() { # bytes, in MiB with one digit
    echo "$(($1 / 1048576)).$(($1 % 1048576 * 10 / 1048576)) MiB"
}

size_of() { # file
    mib "$(($(wc -c < "$1")))"
}

# shellcheck disable=SC2317,SC2329 # runs in the background
show_progress() { # file, bytes of the whole: on a terminal, once a second, for as long as WORK and this script are there
    while sleep 1 && kill -0 $$ 2> /dev/null && [ -d "$WORK" ]; do
        [ -f "$1" ] || continue
        printf '\redgegpu: %s of %s, %s s ' "$(size_of "$1")" "$(mib "$2")" "$(($(seconds) - began))" >&2
    done
}

fetch_shown() { # URL, file, bytes of the whole: says how much it is and how long it took
    began=$(seconds)
    say "fetching $1 ($(mib "$3"))"
    if [ ! -t 2 ]; then
        fetch "$1" "$2"
    else
        show_progress "$2" "$3" &
        shown=$!
        (fetch "$1" "$2") || { kill $shown && exit 1; }
        kill $shown
        printf '\r%60s\r' '' >&2
    fi
    say "fetched $(size_of "$2") in $(($(seconds) - began)) s"
}

give_up_for_good() { # URL, words: end where another try would end the same
    case $2 in
    *[Cc]ertificate*) die "cannot trust $1: $2; give --ca-sha256 if the host has a CA of its own; check this box's clock: $(date)" ;;
    *' 404'*) die "cannot fetch $1: the host has no such file (404); check --url, and that the host has the whole bundle" ;;
    *' 407'* | *tunnel*) die "cannot fetch $1: the proxy refuses: $2; put --proxy or HTTPS_PROXY right" ;;
    *416*) ;;
    *'error: 4'* | *'ERROR 4'* | *'HTTP/1.1 4'*) die "cannot fetch $1: the host refuses: $2; check --url" ;;
    *[Ww]riting* | *'No space'*) die "cannot fetch $1: cannot write it to $WORK: $2; if the disk is full, make room in $OPT, and run this again" ;;
    esac
}

use_proxy() { # in the environment: an argument would show its password
    HTTPS_PROXY=${PROXY:-${HTTPS_PROXY-${https_proxy-}}}
    [ -z "$HTTPS_PROXY" ] || { https_proxy=$HTTPS_PROXY && export HTTPS_PROXY https_proxy; }
}

trust_ca() { # HOST's own, known by its sha256
    [ -n "$CA_SHA256" ] || return 0
    BLIND=1 && fetch "$URL/ca.crt" "$WORK/ca.crt" && BLIND=
    found=$(sha256_of "$WORK/ca.crt")
    [ "$found" = "$CA_SHA256" ] ||
        die "cannot trust $URL: its ca.crt has sha256 $found and not that of --ca-sha256; take the line from your cloud anew"
    CA=$WORK/ca.crt
}

check_sum() { # file, its name for people, sha256
    found=$(sha256_of "$1")
    [ "$found" = "$3" ] ||
        die "cannot use $2: its sha256 is $found and not $3; nothing was unpacked; fetch install.sh and the bundle anew, of one version"
}

# --- who has made the bundle ---

release_keys() { # those that stand here; a script without any takes what this box has by its last install
    case $RELEASE_KEYS in
    @*) cat "$OPT/current/release.pub" 2> /dev/null || : ;;
    *) echo "$RELEASE_KEYS" ;;
    esac
}

can_verify() { # Ed25519 by openssl alone needs version 3: Debian 12 and newer
    case $(openssl version 2> /dev/null) in 'OpenSSL '[3-9]* | 'OpenSSL '[1-9][0-9].*) ;; *) return 1 ;; esac
}

is_signed() { [ -n "$(release_keys)" ] && can_verify; }

bring_signature() { # file, its place
    ! is_signed || cat "$1" > "$2" 2> /dev/null ||
        die "cannot check $BUNDLE: there is no $1; bring the signature beside the bundle"
}

check_signature() { # file, its name for people: its signature lies beside it
    keys=$(release_keys)
    [ -n "$keys" ] || return 0
    if ! can_verify; then
        say 'cannot check its signature here, which needs OpenSSL 3 (Debian 12): its sha256 alone counts'
        return 0
    fi
    printf 'edgegpu release 1\n%s\n%s\n' "$VERSION" "$(sha256_of "$1")" > "$WORK/signed"
    for key in $keys; do
        { # what comes before the 32 bytes of a key is the same for all (RFC 8410)
            echo '-----BEGIN PUBLIC KEY-----'
            echo "MCowBQYDK2VwAyEA$(echo "$key" | tr '_-' '/+')="
            echo '-----END PUBLIC KEY-----'
        } > "$WORK/key"
        if openssl pkeyutl -verify -pubin -inkey "$WORK/key" -rawin -in "$WORK/signed" -sigfile "$1.sig" > /dev/null 2>&1; then
            say 'a release key has signed it'
            return 0
        fi
    done
    die "cannot use $2: no release key has signed it as $VERSION; nothing was unpacked; fetch install.sh and the bundle anew, of one version"
}

fetch_signature() { # URL of the bundle, the bundle
    ! is_signed || fetch "$1.sig" "$2.sig"
}

fetch_bundle() { # BUNDLE
    choose_fetcher
    if has xz; then
        name=edgegpu-$VERSION-linux-amd64.tar.xz wanted=$SHA256_XZ bytes=$BYTES_XZ
    else
        has gzip || die 'cannot find xz or gzip: apt-get install xz-utils, and run this again'
        name=edgegpu-$VERSION-linux-amd64.tar.gz wanted=$SHA256_GZ bytes=$BYTES_GZ
    fi
    BUNDLE=$WORK/$name
    # For these alone: `edgegpu install` speaks with the API server, which is behind no proxy.
    (use_proxy && trust_ca && fetch_shown "$URL/$name" "$BUNDLE" "$bytes" && fetch_signature "$URL/$name" "$BUNDLE") || exit
    check_sum "$BUNDLE" "$URL/$name" "$wanted"
    say 'its sha256 is right'
    check_signature "$BUNDLE" "$URL/$name"
}

# --- a bundle that was brought here ---

offline_version() { # from its name, where this script has none
    name=${BUNDLE##*/}
    case $name in
    edgegpu-[0-9]*-linux-amd64.tar.[xg]z) ;;
    *) die "cannot use $BUNDLE: its name has to be edgegpu-VERSION-linux-amd64.tar.xz or .tar.gz" ;;
    esac
    [ -r "$BUNDLE" ] || die "cannot read $BUNDLE: no such file, or not readable; name the bundle by its path"
    found=${name#edgegpu-} && found=${found%-linux-amd64.tar.*}
    ! pinned || [ "$VERSION" = "$found" ] || die "cannot use $BUNDLE: this install.sh is for $VERSION; take the one of $found"
    VERSION=$found
    case $name in *.xz) has xz || die "cannot find xz for $BUNDLE: apt-get install xz-utils, or bring the .tar.gz" ;; esac
}

offline_sum() { # wanted
    case $BUNDLE in *.xz) wanted=$SHA256_XZ ;; *) wanted=$SHA256_GZ ;; esac
    if [ -n "$SHA256" ]; then
        wanted=$SHA256
    elif ! pinned; then
        sums=$(dirname "$BUNDLE")/SHA256SUMS
        wanted=$(grep " [ *]\{0,1\}${BUNDLE##*/}\$" "$sums" 2> /dev/null) ||
            die "cannot check $BUNDLE: this install.sh has no checksum in it; give --sha256, or put SHA256SUMS beside the bundle"
        wanted=${wanted%% *}
    fi
}
