# For scripts that run a suite of another project, inside network, mount and process namespaces of their own: makes a machine, starts `waypost up`
# on it and imports images. Sourced.
#
# The machine has one link with addresses of the documentation. Its other end is the namespace `suite`, from which the suite runs, and leads nowhere.
# A suite expects to be no node: what a node rejects is EPERM on that node and ECONNREFUSED elsewhere. Nor is its address of the node's network: tests
# of source addresses tell them apart by that.
data=/var/lib/waypost
export KUBECONFIG=$data/kubeconfig

machine() { # machine OUT: makes links, addresses and the data directory, which is kept in OUT
    ip link set lo up
    mkdir -p /run/netns
    mount -t tmpfs tmpfs /run/netns
    ip netns add suite
    ip link add eth0 type veth peer name wire netns suite
    ip -n suite link set lo up
    ip -n suite link set wire up
    ip -n suite address add 192.0.2.1/24 dev wire
    ip -n suite address add 2001:db8::1/64 dev wire nodad
    ip -n suite address add 198.51.100.1/32 dev lo
    ip -n suite route replace 192.0.2.0/24 dev wire src 198.51.100.1
    ip link set eth0 up
    ip address add 192.0.2.10/24 dev eth0
    ip address add 2001:db8::10/64 dev eth0 nodad
    ip route add default via 192.0.2.1
    ip -6 route add default via 2001:db8::1
    echo "nameserver 192.0.2.1" >"$1/resolv.conf"
    mount --bind "$1/resolv.conf" /etc/resolv.conf
    mkdir -p "$1/data" "$data"
    mount --bind "$1/data" "$data"
}

up() { # up BINARY OUT [ARGUMENT…]: starts the program; what is left of Pods and data goes when the script ends
    local binary=$1 out=$2 ready=
    shift 2
    "$binary" up "$@" >"$out/up.out" 2>"$out/up.log" &
    local program=$!
    # shellcheck disable=SC2064 # the values of now
    trap "finish '$binary' '$out' $program" EXIT
    for _ in $(seq 300); do
        kill -0 "$program" 2>/dev/null || { tail -n 20 "$out/up.log" >&2; exit 1; }
        [ "$(curl -sk https://127.0.0.1:6443/readyz)" = ok ] && ready=1 && break
        sleep 0.2
    done
    [ -n "$ready" ] || { echo "the server is not ready" >&2; exit 1; }
}

finish() { # finish BINARY OUT PID
    "$1" down --keep-data >>"$2/up.out" 2>&1 || true
    kill "$3" 2>/dev/null || true
    wait "$3" || true
    umount "$data" && rm -rf "$2/data" && umount /etc/resolv.conf && rm -f "$2/resolv.conf"
}

images() { # images BINARY WORK OUT: imports the images of a suite
    while read -r name file; do
        "$1" image import "$2/images/$file" "$name" >>"$3/up.out"
    done <"$2/images/list"
}
