#!/bin/sh
# extender-tls.sh FOLDER: make the extender's certificates in FOLDER (/etc/edgegpu), and FOLDER/scheduler.yaml with the client's inline.
#
# Own authority, server, client: three keys that open nothing but this machine's extender; run it once per k3s server. The client's
# key ends up in scheduler.yaml alone (0600), the authority's key nowhere. Needs openssl.
set -eu
umask 077

DAYS=7300 # twenty years: nothing on a box renews them by itself

key() { openssl genpkey -quiet -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1" 2> /dev/null ||
    openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1"; }

signed() { # name, extensions
    key "$work/$1.key"
    openssl req -new -key "$work/$1.key" -subj "/CN=edgegpu-$1" -out "$work/$1.csr"
    printf '%s\n' "basicConstraints=critical,CA:false" "$2" > "$work/$1.ext"
    openssl x509 -req -in "$work/$1.csr" -CA "$work/ca.crt" -CAkey "$work/ca.key" -CAcreateserial -days $DAYS \
        -extfile "$work/$1.ext" -out "$work/$1.crt" 2> /dev/null
}

inline() { base64 < "$work/$1" | tr -d '\n'; }

main() {
    [ $# -eq 1 ] || { echo "extender-tls.sh: name the folder, such as /etc/edgegpu" >&2; exit 2; }
    here=$(dirname "$(readlink -f "$0")")
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    key "$work/ca.key"
    openssl req -x509 -new -key "$work/ca.key" -subj /CN=edgegpu-extender-ca -days $DAYS -out "$work/ca.crt"
    signed server "subjectAltName=DNS:edgegpu-extender,IP:127.0.0.1
extendedKeyUsage=serverAuth"
    signed client "extendedKeyUsage=clientAuth"
    mkdir -p "$1/extender"
    sed -e "s|BASE64_OF_ca.crt|$(inline ca.crt)|" -e "s|BASE64_OF_client.crt|$(inline client.crt)|" \
        -e "s|BASE64_OF_client.key|$(inline client.key)|" "$here/scheduler.yaml" > "$1/scheduler.yaml"
    cp "$work/ca.crt" "$work/server.crt" "$work/server.key" "$1/extender/"
    echo "extender-tls.sh: made $1/extender/ and $1/scheduler.yaml"
}

main "$@"
